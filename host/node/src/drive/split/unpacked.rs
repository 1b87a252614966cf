use super::wire::unpack;
use crate::services::apart;
use bytes::Bytes;
use karman_engine::capability::nn::Tensors;
use karman_mesh::decoded_bytes;
use karman_types::TaskError;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// KiB of tensors that all calls of other nodes together may decode to at once: what one call may, twice. A few bytes of packed zeros
/// stand for many.
const MOST_KIB: u32 = 512 << 10;

/// How long a call waits for room.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// Room for what the calls of other nodes decode to.
#[derive(Clone)]
pub(in crate::drive) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_KIB as usize)))
    }
}

/// What a call brought. Its memory is counted for as long as this is held.
pub(in crate::drive) struct Unpacked<H> {
    pub(in crate::drive) head: H,
    pub(in crate::drive) tensors: Tensors,
    pub(in crate::drive) room: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Unpacks a call once there is room for it.
    ///
    /// # Errors
    /// `invalid` for what cannot be read.
    pub(in crate::drive) async fn unpack<H: DeserializeOwned + Send + 'static>(
        &self,
        body: &Bytes,
    ) -> Result<Unpacked<H>, TaskError> {
        let kib = decoded_bytes(body).div_ceil(1 << 10).min(u64::from(MOST_KIB)) as u32;
        let room = match kib {
            0 => None,
            _ => Some(self.take(kib).await?),
        };
        let (head, tensors) = unpack_apart(body).await?;
        Ok(Unpacked { head, tensors, room })
    }

    /// Not for long: who holds some may wait for a node that waits for this one.
    async fn take(&self, kib: u32) -> Result<OwnedSemaphorePermit, TaskError> {
        let free = timeout(MOST_WAIT, self.0.clone().acquire_many_owned(kib)).await;
        free.ok().and_then(Result::ok).ok_or_else(|| {
            TaskError::unavailable("this node decodes as many tensors of other nodes as it has room for")
                .with_hint("try again in a while, or ask another node")
        })
    }
}

/// Unpacks a header and tensors, on another thread where much of it has to be decoded.
///
/// # Errors
/// `invalid` for what cannot be read.
pub(in crate::drive) async fn unpack_apart<H: DeserializeOwned + Send + 'static>(
    body: &Bytes,
) -> Result<(H, Tensors), TaskError> {
    let (bytes, body) = (decoded_bytes(body), body.clone());
    apart(bytes as usize, move || unpack(&body)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use karman_mesh::pack_encoded_tensors;
    use karman_tensor::encode::{Encoded, Encoding};
    use karman_tensor::{Shape, Tensor};
    use std::pin::pin;

    #[tokio::test]
    async fn what_decodes_to_much_waits_until_there_is_room() {
        let zeros = vec![0.0_f32; 4 << 20];
        let shape = Shape::new(&[zeros.len() as u32]).unwrap();
        let tensors = [("x".to_owned(), Tensor::from_slice(shape, &zeros).unwrap())];
        let encode = |tensor: &Tensor| {
            let numbers = tensor.view::<f32>().unwrap();
            let encoded = Encoded::encode(tensor.shape(), numbers, Encoding::NonZero).ok()?;
            Some(encoded.pack())
        };
        let body = pack_encoded_tensors(&7_u32, &tensors, encode)
            .unwrap()
            .into_bytes();
        assert!(body.len() < 64 << 10, "{} bytes", body.len());
        assert_eq!(decoded_bytes(&body), 16 << 20);

        let room = Room::default();
        let mut held = Vec::new();
        for _ in 0..32 {
            held.push(room.unpack::<u32>(&body).await.unwrap());
        }
        assert_eq!((held[0].head, &held[0].tensors[..]), (7, &tensors[..]));
        let mut waits = pin!(room.unpack::<u32>(&body));
        assert!(poll!(&mut waits).is_pending());
        held.pop();
        assert_eq!(waits.await.unwrap().head, 7);
    }
}
