use serde::{Deserialize, Deserializer, Serializer};
use serde_bytes::ByteBuf;

/// Signed bytes as one run of bytes instead of a list of numbers.
pub(crate) fn serialize<S: Serializer>(values: &[i8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytemuck::cast_slice(values))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i8>, D::Error> {
    let bytes = ByteBuf::deserialize(deserializer)?;
    Ok(bytes.into_iter().map(|byte| byte as i8).collect())
}
