//! Bounded CBOR: what is too long is not decoded, and of all encodings of a value only ours is read.

use super::MembershipError;
use bytes::Bytes;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a fixed number, as a CBOR byte string.
#[derive(Clone, Copy)]
pub(super) struct Fixed<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Serialize for Fixed<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Fixed<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        <[u8; N]>::try_from(&*bytes)
            .map(Self)
            .map_err(|_| D::Error::invalid_length(bytes.len(), &&*format!("{N} bytes")))
    }
}

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    cbor4ii::serde::to_vec(Vec::new(), value).expect("a vector takes all that is written to it")
}

/// Decodes at most `limit` bytes.
pub(super) fn decode<T: DeserializeOwned + Serialize>(
    field: &'static str,
    bytes: &[u8],
    limit: usize,
) -> Result<T, MembershipError> {
    if bytes.len() > limit {
        return Err(MembershipError::TooLong { field, limit });
    }
    let value: T = cbor4ii::serde::from_slice(bytes).map_err(|error| {
        MembershipError::malformed(field, format!("does not decode ({error}); fetch it again"))
    })?;
    if encode(&value) != bytes {
        return Err(MembershipError::malformed(
            field,
            "is not in its only form; fetch it again",
        ));
    }
    Ok(value)
}
