use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::str::FromStr;

/// The publisher of a plugin: an Ed25519 key. Written `ed25519:` and 43 characters of unpadded base64url.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PublicKey([u8; 32]);

/// A text that is no key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not a public key as it is written on one line.
    #[error("`{0}` is not a public key: write `ed25519:` and 43 characters of base64url")]
    PublicText(String),
    /// Not a public key's PEM.
    #[error("not the PEM of an Ed25519 public key (`-----BEGIN PUBLIC KEY-----`)")]
    PublicPem,
    /// Not a secret key's PEM.
    #[error(
        "not the PEM of an Ed25519 secret key (`-----BEGIN PRIVATE KEY-----`); make one with \
         `openssl genpkey -algorithm ed25519`"
    )]
    SecretPem,
}

impl PublicKey {
    const PREFIX: &str = "ed25519:";

    /// The key of these bytes. Whether they are a point on the curve shows when a signature is verified.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As people see it: `ed25519:` and the first 8 characters.
    pub fn short(&self) -> String {
        format!("{}{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(&self.0[..6]))
    }

    /// Reads a PEM file's text (SubjectPublicKeyInfo), as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// [`KeyError::PublicPem`] for any other text.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let key = wasmsign2::PublicKey::from_pem(text).map_err(|_| KeyError::PublicPem)?;
        Ok(Self(*key.pk))
    }

    /// The text of a PEM file (SubjectPublicKeyInfo).
    pub fn to_pem(&self) -> String {
        self.signer().to_pem()
    }

    pub(crate) fn signer(&self) -> wasmsign2::PublicKey {
        // `wasmsign2` marks the algorithm by a byte before the key.
        let mut tagged = vec![1];
        tagged.extend_from_slice(&self.0);
        wasmsign2::PublicKey::from_bytes(&tagged).expect("32 bytes behind the tag of Ed25519 are a key")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.short())
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        text.strip_prefix(Self::PREFIX)
            .and_then(|key| URL_SAFE_NO_PAD.decode(key).ok())
            .and_then(|key| key.try_into().ok())
            .map(Self)
            .ok_or_else(|| KeyError::PublicText(text.into()))
    }
}

karman_types::serde_as_text!(PublicKey);

/// A publisher's secret. Its debug form shows only the public half.
#[derive(Clone, Eq, PartialEq)]
pub struct SecretKey(wasmsign2::SecretKey);

impl SecretKey {
    /// A fresh key from the system's random source.
    ///
    /// # Panics
    /// When the system has no random source.
    pub fn generate() -> Self {
        Self(wasmsign2::KeyPair::generate().sk)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(*self.0.sk.public_key())
    }

    /// Reads a PEM file's text: unencrypted PKCS#8, as `openssl genpkey -algorithm ed25519` writes it.
    ///
    /// # Errors
    /// [`KeyError::SecretPem`] for any other text.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        wasmsign2::SecretKey::from_pem(text)
            .map(Self)
            .map_err(|_| KeyError::SecretPem)
    }

    /// The text of a PEM file (unencrypted PKCS#8).
    pub fn to_pem(&self) -> String {
        self.0.to_pem()
    }

    pub(crate) fn signer(&self) -> &wasmsign2::SecretKey {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public().short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first key pair of RFC 8410, section 10.
    const SECRET: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn keys_of_other_tools_are_read_and_written() {
        let key = SecretKey::from_pem(SECRET).unwrap();
        assert_eq!(key.public(), PublicKey::from_pem(PUBLIC).unwrap());
        assert_eq!(key.to_pem(), SECRET);
        assert_eq!(key.public().to_pem(), PUBLIC);
    }

    #[test]
    fn a_public_key_reads_what_it_writes() {
        let key = SecretKey::generate().public();
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!(key.to_string().starts_with(&key.short()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(SecretKey::from_pem(PUBLIC), Err(KeyError::SecretPem));
        assert_eq!(PublicKey::from_pem(SECRET), Err(KeyError::PublicPem));
        for text in ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", "ed25519:@"] {
            assert!(text.parse::<PublicKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let key = SecretKey::from_pem(SECRET).unwrap();
        assert_eq!(format!("{key:?}"), "SecretKey(of ed25519:Gb9ECWmE)");
    }
}
