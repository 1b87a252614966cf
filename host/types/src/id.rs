use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The BLAKE3 digest of a file: the identity of a plugin or a model.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// A digest that was computed before.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 8 characters, as people see it.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

/// A text that is no id.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not an id of {1} hexadecimal characters")]
pub struct ParseIdError(String, usize);

impl FromStr for Digest {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError(text.into(), 64))?;
        Ok(Self(bytes))
    }
}

crate::serde_as_text!(Digest);

/// A task, the same for each of its attempts. Sorts by the time of submission.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct TaskId(ulid::Ulid);

impl TaskId {
    /// An id from the time of submission in milliseconds since 1970 and 80 random bits.
    pub const fn from_parts(unix_ms: u64, random: u128) -> Self {
        Self(ulid::Ulid::from_parts(unix_ms, random))
    }

    /// The time of submission in milliseconds since 1970, by the clock of the node that took it.
    pub const fn unix_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error| format!("`{text}` is not the id of a task: {error}"))
    }
}

/// A node: the first 8 bytes of the digest of its public key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId([u8; 8]);

impl NodeId {
    /// The id of the node that holds this public key.
    pub fn of_key(public_key: &[u8]) -> Self {
        let mut id = [0; 8];
        id.copy_from_slice(&Digest::of(public_key).0[..8]);
        Self(id)
    }
}

impl NodeId {
    /// The first 8 characters, as people see it.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for NodeId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let mut bytes = [0; 8];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError(text.into(), 16))?;
        Ok(Self(bytes))
    }
}

crate::serde_as_text!(NodeId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_reads_what_it_writes() {
        let digest = Digest::of(b"karman");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("karman".parse::<Digest>().is_err());
        assert!(digest.to_string().starts_with(&digest.short()));
    }

    #[test]
    fn node_reads_what_it_writes() {
        let node = NodeId::of_key(b"karman");
        assert_eq!(node.to_string().parse(), Ok(node));
        assert!("karman".parse::<NodeId>().is_err());
    }
}
