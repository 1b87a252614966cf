//! What nodes say to each other, and what they write down for themselves, as CBOR.

use crate::services::{apart, blocking};
use bytes::Bytes;
use karman_types::TaskError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a message.
pub(super) fn write(message: &impl Serialize) -> Result<Bytes, TaskError> {
    let bytes = cbor4ii::serde::to_vec(Vec::new(), message);
    let bytes = bytes.map_err(|error| TaskError::internal(error.to_string()))?;
    Ok(bytes.into())
}

/// Reads a message.
///
/// # Errors
/// `invalid`, with what it should be as the field.
pub(super) fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, TaskError> {
    cbor4ii::serde::from_slice(bytes)
        .map_err(|error| TaskError::invalid(format!("{what}: {error}")).with_field(what))
}

/// [`write()`], where it may take its time.
pub(super) async fn write_apart(message: impl Serialize + Send + 'static) -> Result<Bytes, TaskError> {
    blocking(move || write(&message)).await
}

/// [`read`], where it may take its time.
pub(super) async fn read_apart<T: DeserializeOwned + Send + 'static>(
    what: &'static str,
    bytes: Bytes,
) -> Result<T, TaskError> {
    apart(bytes.len(), move || read(what, &bytes)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_messages_read_as_short_ones_do() {
        for length in [1, 100_000] {
            let message = vec!["weight".to_owned(); length];
            let written = write_apart(message.clone()).await.unwrap();
            let read: Vec<String> = read_apart("answer", written).await.unwrap();
            assert_eq!(read, message);
            let garbage = Bytes::from(vec![0xff; length]);
            let error = read_apart::<Vec<String>>("answer", garbage).await.unwrap_err();
            assert_eq!(error.field.as_deref(), Some("answer"), "{error}");
        }
    }
}
