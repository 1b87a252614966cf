//! Arrays of `f32` in what is written down: as bytes, little-endian, not number by number.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::{ByteBuf, Bytes};

pub(crate) fn serialize<S: Serializer>(values: &impl AsRef<[f32]>, serializer: S) -> Result<S::Ok, S::Error> {
    Bytes::new(bytemuck::cast_slice(values.as_ref())).serialize(serializer)
}

pub(crate) fn deserialize<'de, T: From<Vec<f32>>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    read(&ByteBuf::deserialize(deserializer)?)
        .map(T::from)
        .map_err(D::Error::custom)
}

fn read(bytes: &[u8]) -> Result<Vec<f32>, &'static str> {
    let (floats, rest) = bytes.as_chunks::<4>();
    match rest {
        [] => Ok(floats.iter().map(|float| f32::from_le_bytes(*float)).collect()),
        _ => Err("its bytes are not a multiple of four"),
    }
}

/// The same for several arrays.
pub(crate) mod several {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(arrays: &[Vec<f32>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(arrays.iter().map(|array| Bytes::new(bytemuck::cast_slice(array))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f32>>, D::Error> {
        let arrays = Vec::<ByteBuf>::deserialize(deserializer)?;
        arrays
            .iter()
            .map(|bytes| read(bytes).map_err(D::Error::custom))
            .collect()
    }
}
