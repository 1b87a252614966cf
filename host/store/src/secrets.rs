use crate::keys::{Key, random};
use crate::tables::SECRETS;
use crate::{Store, StoreError, limits};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use redb::{ReadableTable, ReadableTableMetadata};
use zeroize::Zeroizing;

/// Secrets by name, encrypted at rest with XChaCha20-Poly1305 under the key file `keys/secrets.key`, which is made with
/// the first of them. The name is authenticated with the value: a record that is moved to another name does not decrypt.
#[derive(Clone, Copy, Debug)]
pub struct Secrets<'a>(pub(crate) &'a Store);

/// A secret in the clear. Debug output does not show it, and the memory is wiped when it is dropped.
#[derive(Clone, Eq, PartialEq)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// The text, where it is one.
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretValue(redacted)")
    }
}

const NONCE: usize = 24;

impl Secrets<'_> {
    /// Sets a secret.
    ///
    /// # Errors
    /// [`StoreError::Name`] (1 to 128 bytes), [`StoreError::Limit`] when the value is too long, [`StoreError::Key`] when
    /// there are secrets but the key file is gone.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        limits::name("secret", name, 128)?;
        limits::at_most("secret", value.len(), self.0.limits().secret.0)?;
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(SECRETS)?;
            let key = match self.0.keys().secrets()? {
                Some(key) => key,
                None if table.is_empty()? => self.0.keys().make_secrets()?,
                None => return Err(self.gone()),
            };
            let nonce = random::<NONCE>()?;
            let payload = Payload {
                msg: value,
                aad: name.as_bytes(),
            };
            let sealed = cipher(&key)
                .encrypt(&XNonce::from(*nonce), payload)
                .map_err(|_| self.sealed(name))?;
            table.insert(name, [nonce.as_slice(), &sealed].concat().as_slice())?;
            Ok(())
        })
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] when it was encrypted with another key or changed on the disk, [`StoreError::Key`] when
    /// the key file is gone or open to others.
    pub fn get(&self, name: &str) -> Result<Option<SecretValue>, StoreError> {
        let table = self.0.tables().read()?.open_table(SECRETS)?;
        let Some(record) = table.get(name)? else {
            return Ok(None);
        };
        let key = self.0.keys().secrets()?.ok_or_else(|| self.gone())?;
        let (nonce, sealed) = record
            .value()
            .split_first_chunk::<NONCE>()
            .ok_or_else(|| self.sealed(name))?;
        let payload = Payload {
            msg: sealed,
            aad: name.as_bytes(),
        };
        let value = cipher(&key)
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| self.sealed(name))?;
        Ok(Some(SecretValue(Zeroizing::new(value))))
    }

    /// The names of all secrets.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<String>, StoreError> {
        let table = self.0.tables().read()?.open_table(SECRETS)?;
        table.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
    }

    /// Removes a secret; whether there was one.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        self.0
            .tables()
            .write(|txn| Ok(txn.open_table(SECRETS)?.remove(name)?.is_some()))
    }

    fn gone(&self) -> StoreError {
        StoreError::Key {
            path: self.0.keys().secrets_path(),
            problem: "is gone; restore it from a backup, or remove all secrets and set them again",
        }
    }

    fn sealed(&self, name: &str) -> StoreError {
        StoreError::Sealed {
            name: name.into(),
            path: self.0.keys().secrets_path(),
        }
    }
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new((&**key).into())
}
