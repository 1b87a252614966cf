use super::key::{RootKey, random};
use super::{MembershipError, MeshKey, word};
use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

/// The digit is the version of all below: the layout and what the passphrase is stretched by.
const PREFIX: &str = "kmk1";
const FIELD: &str = "backup";
const LEAST_CHARACTERS: usize = 8;

/// Mesh key, salt, nonce, then the encrypted seed with its tag.
const LENGTHS: [usize; 4] = [32, 16, 24, 48];

impl RootKey {
    /// The key under a passphrase: one word of 204 characters that begins with `kmk1`, to be kept on paper or apart from
    /// the nodes. White space and case do not matter.
    ///
    /// The passphrase is stretched by Argon2id with 64 MiB, 3 passes and 4 lanes (RFC 9106, section 4, the second
    /// recommended option): about half a second and that much memory on a small board. The seed is encrypted with
    /// XChaCha20-Poly1305.
    ///
    /// # Errors
    /// [`MembershipError::WeakPassphrase`] under 8 characters, [`MembershipError::NoRandomness`].
    pub fn backup(&self, passphrase: &str) -> Result<String, MembershipError> {
        if passphrase.chars().count() < LEAST_CHARACTERS {
            return Err(MembershipError::WeakPassphrase {
                least: LEAST_CHARACTERS,
            });
        }
        let (mesh, salt, nonce) = (self.public(), random::<16>()?, random::<24>()?);
        let payload = Payload {
            msg: self.seed(),
            aad: mesh.as_bytes(),
        };
        let sealed = cipher(passphrase, &salt)
            .encrypt(&XNonce::from(nonce), payload)
            .expect("32 bytes are fewer than the cipher's limit");
        Ok(word::write(
            PREFIX,
            &[mesh.as_bytes(), &salt[..], &nonce, &sealed].concat(),
        ))
    }

    /// The key of a [`backup`](Self::backup).
    ///
    /// # Errors
    /// [`MembershipError::Typo`] for a text that was copied wrongly, [`MembershipError::Passphrase`] for another
    /// passphrase, [`MembershipError::Malformed`] for any other text.
    pub fn restore(text: &str, passphrase: &str) -> Result<Self, MembershipError> {
        let bytes = word::read(FIELD, PREFIX, text)?;
        if bytes.len() != LENGTHS.iter().sum::<usize>() {
            return Err(MembershipError::malformed(
                FIELD,
                "has another length; copy all of it",
            ));
        }
        let mut rest = &bytes[..];
        let [mesh, salt, nonce, sealed] = LENGTHS.map(|length| {
            let (part, after) = rest.split_at(length);
            rest = after;
            part
        });
        let nonce = XNonce::try_from(nonce).expect("the nonce has its length");
        let seed = cipher(passphrase, salt)
            .decrypt(
                &nonce,
                Payload {
                    msg: sealed,
                    aad: mesh,
                },
            )
            .map_err(|_| MembershipError::Passphrase)?;
        let seed = Zeroizing::new(seed);
        let seed: &[u8; 32] = seed[..].try_into().expect("the seed has its length");
        let key = Self::from_seed(seed);
        if MeshKey::as_bytes(&key.public()) != mesh {
            return Err(MembershipError::malformed(
                FIELD,
                "holds the key of another mesh than it says",
            ));
        }
        Ok(key)
    }
}

fn cipher(passphrase: &str, salt: &[u8]) -> XChaCha20Poly1305 {
    let params = Params::new(64 * 1024, 3, 4, Some(32)).expect("the parameters are within Argon2's bounds");
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), salt, key.as_mut())
        .expect("salt and output are within Argon2's bounds");
    XChaCha20Poly1305::new((&*key).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_gives_the_key_back_to_who_knows_the_passphrase() {
        let root = RootKey::from_seed(&[3; 32]);
        let text = root.backup("correct horse").unwrap();
        assert_eq!(text.len(), 204);
        let wrapped = format!("{}\n{}\n", &text[..100].to_uppercase(), &text[100..]);
        assert_eq!(
            RootKey::restore(&wrapped, "correct horse").unwrap().seed(),
            root.seed()
        );
        assert_eq!(
            RootKey::restore(&text, "correct horsf").unwrap_err(),
            MembershipError::Passphrase
        );
        assert_eq!(
            RootKey::restore(&text[..203], "correct horse").unwrap_err(),
            MembershipError::Typo { prefix: "kmk1" }
        );
        assert!(matches!(
            RootKey::restore(&word::write(PREFIX, b"short"), "correct horse"),
            Err(MembershipError::Malformed { field: "backup", .. })
        ));
        assert!(matches!(
            root.backup("short"),
            Err(MembershipError::WeakPassphrase { .. })
        ));
    }
}
