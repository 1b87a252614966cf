use crate::PublicKey;
use karman_types::Digest;
use std::fmt;
use std::str::FromStr;

/// What grants, state and upgrades belong to. Written `ed25519:KEY/NAME` or `blake3:DIGEST`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Identity {
    /// A signed plugin: every version of it, by the same publisher under the same name.
    Publisher {
        /// The publisher that signed it.
        key: PublicKey,
        /// Its name in the manifest.
        name: String,
    },
    /// An unsigned plugin, or a foreign component: this very file.
    Digest(Digest),
}

impl Identity {
    /// As people see it: `ed25519:7Kq4Zb0x/hello`, `blake3:9c01d2e7`.
    pub fn short(&self) -> String {
        match self {
            Self::Publisher { key, name } => format!("{}/{name}", key.short()),
            Self::Digest(digest) => format!("blake3:{}", digest.short()),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publisher { key, name } => write!(f, "{key}/{name}"),
            Self::Digest(digest) => write!(f, "blake3:{digest}"),
        }
    }
}

/// A text that is no identity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a plugin's identity: write `ed25519:KEY/NAME` or `blake3:DIGEST`")]
pub struct ParseIdentityError(String);

impl FromStr for Identity {
    type Err = ParseIdentityError;

    fn from_str(text: &str) -> Result<Self, ParseIdentityError> {
        let error = || ParseIdentityError(text.into());
        if let Some(digest) = text.strip_prefix("blake3:") {
            return digest.parse().map(Self::Digest).map_err(|_| error());
        }
        let (key, name) = text.split_once('/').ok_or_else(error)?;
        if name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        {
            return Err(error());
        }
        Ok(Self::Publisher {
            key: key.parse().map_err(|_| error())?,
            name: name.into(),
        })
    }
}

karman_types::serde_as_text!(Identity);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretKey;

    #[test]
    fn an_identity_reads_what_it_writes() {
        for identity in [
            Identity::Publisher {
                key: SecretKey::generate().public(),
                name: "event-screen".into(),
            },
            Identity::Digest(Digest::of(b"file")),
        ] {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        for text in [
            "",
            "blake3:",
            "ed25519:",
            "ed25519:AAAA/name",
            "hello",
            "/",
            "blake3:/a",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
