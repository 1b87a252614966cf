//! Bodies of requests, read whole: no longer than they may be, no slower, and no more of them than there is room for.

use crate::admission::{Admission, PIECE};
use crate::config::GatewayLimits;
use crate::prompt;
use crate::refusal::Refusal;
use crate::span;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use karman_types::{ByteSize, TaskError};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// What a body brings each second at least, on the whole.
const SLOWEST: u64 = 16 << 10;

/// Shorter chunks are copied together: each by itself would take more than its bytes.
const SHORT: usize = 1 << 10;

/// A body, and the room that it takes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Refuses a body that is compressed: whoever reads it would take it for something else.
///
/// # Errors
/// `invalid` (field `content-encoding`), as 415.
pub(crate) fn must_be_plain(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_plain =
        |encoding: &HeaderValue| encoding.is_empty() || encoding.as_bytes().eq_ignore_ascii_case(b"identity");
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(encoding) = encodings.find(|encoding| !is_plain(encoding)) else {
        return Ok(());
    };
    let encoding = span::cut(encoding.to_str().unwrap_or_default());
    let error = TaskError::invalid(format!(
        "the body comes as `{encoding}`, which is not decoded here"
    ));
    let error = error.with_field("content-encoding").with_hint("send it as it is");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

/// Reads a body of at most this many bytes.
///
/// # Errors
/// `limit` (field `body`) when it is longer, `deadline` when it comes too slowly, `unavailable` when there is no room for it,
/// `invalid` (field `body`) when it is no body of its protocol, `cancelled` when the caller goes away.
pub(crate) async fn read<B>(
    body: B,
    most: u64,
    limits: &GatewayLimits,
    admission: &Admission,
) -> Result<Held, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Error + 'static,
{
    let too_long =
        || TaskError::limit(format!("the body is longer than {}", ByteSize(most))).with_field("body");
    let mut body = pin!(body);
    // What announces itself as too long is not read at all.
    if body.size_hint().lower() > most {
        return Err(too_long().into());
    }
    let mut chunks = Chunks::default();
    let mut room: Option<OwnedSemaphorePermit> = None;
    let started = Instant::now();
    loop {
        let frame = match prompt::within(limits.body_pause.0, pin!(body.frame())).await {
            Ok(frame) => frame,
            Err(_) => return Err(too_slow(limits.body_pause.0)),
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = chunks.length + data.len() as u64;
        if length > most {
            return Err(too_long().into());
        }
        let most_time = limits.body_pause.0 + Duration::from_secs(length / SLOWEST);
        if started.elapsed() > most_time.min(limits.time.0) {
            return Err(too_slow(started.elapsed()));
        }
        // On the whole: what comes byte by byte takes no more room than what comes at once.
        let has = room.as_ref().map_or(0, |room| room.num_permits() as u64 * PIECE);
        if length > has {
            let more = admission.room(length - has)?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
        }
        chunks.add(data);
        if body.is_end_stream() {
            break;
        }
    }
    Ok(Held {
        bytes: chunks.joined(),
        room,
    })
}

/// Nobody is left to be told that a body broke off; who has sent what is none is.
fn broken(error: &(dyn Error + 'static)) -> TaskError {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    let mut kinds = causes.filter_map(|cause| Some((cause, cause.downcast_ref::<io::Error>()?.kind())));
    let unread = kinds.find(|(_, kind)| matches!(kind, ErrorKind::InvalidData | ErrorKind::InvalidInput));
    match unread {
        Some((why, _)) => TaskError::invalid(format!("the body does not read: {why}")).with_field("body"),
        None => TaskError::cancelled(format!("the body broke off: {error}")),
    }
}

pub(crate) fn too_slow(time: Duration) -> Refusal {
    let error = TaskError::deadline(format!(
        "the body comes too slowly: it is given up after {time:.0?}"
    ));
    Refusal::new(StatusCode::REQUEST_TIMEOUT, error.with_field("body"))
}

/// What has come of a body.
#[derive(Default)]
struct Chunks {
    all: Vec<Bytes>,
    /// The short ones that came after those.
    short: BytesMut,
    length: u64,
}

impl Chunks {
    fn add(&mut self, chunk: Bytes) {
        self.length += chunk.len() as u64;
        if self.all.is_empty() || chunk.len() >= SHORT {
            self.end_short();
            self.all.push(chunk);
        } else {
            self.short.extend_from_slice(&chunk);
        }
    }

    fn end_short(&mut self) {
        if !self.short.is_empty() {
            self.all.push(self.short.split().freeze());
        }
    }

    /// What came in one piece stays as it is.
    fn joined(mut self) -> Bytes {
        self.end_short();
        if self.all.len() < 2 {
            return self.all.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.length as usize);
        self.all.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Speaks;
    use axum::body::Body as AxumBody;
    use futures::stream;
    use karman_node::Time;
    use std::convert::Infallible;

    fn limits() -> GatewayLimits {
        GatewayLimits {
            body_pause: Time(Duration::from_millis(50)),
            bodies: ByteSize::kib(8),
            ..GatewayLimits::default()
        }
    }

    fn chunks(count: usize, size: usize) -> AxumBody {
        let chunk = Bytes::from(vec![7u8; size]);
        AxumBody::from_stream(stream::iter(vec![Ok::<_, Infallible>(chunk); count]))
    }

    #[test]
    fn a_compressed_body_is_refused_and_how_to_send_it_is_told() {
        let of = |encodings: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for encoding in encodings {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            }
            must_be_plain(&headers)
        };
        for plain in [&[] as &[&str], &[""], &["Identity"]] {
            assert_eq!(of(plain), Ok(()));
        }
        for compressed in [
            &["gzip"] as &[&str],
            &["identity", "deflate"],
            &["gzip, identity"],
        ] {
            let refused = of(compressed).unwrap_err().response(Speaks::Inference);
            assert_eq!(
                (refused.status(), &refused.headers()[header::ACCEPT_ENCODING]),
                (
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    &HeaderValue::from_static("identity")
                )
            );
        }
    }

    #[tokio::test]
    async fn a_body_is_read_whole_and_its_room_is_given_back() {
        let (limits, admission) = (limits(), Admission::new(&limits()));
        let held = read(chunks(3, 1000), 4000, &limits, &admission).await.unwrap();
        assert_eq!((held.bytes.len(), admission.load().2), (3000, 3 << 10));
        drop(held);
        assert_eq!(admission.load().2, 0);
    }

    #[tokio::test]
    async fn what_comes_byte_by_byte_takes_no_more_room_than_what_comes_at_once() {
        let (limits, admission) = (limits(), Admission::new(&limits()));
        let held = read(chunks(2000, 1), 4000, &limits, &admission).await.unwrap();
        assert_eq!((held.bytes.len(), admission.load().2), (2000, 2 << 10));
    }

    #[test]
    fn chunks_are_joined_in_their_order_and_short_ones_together() {
        let mut chunks = Chunks::default();
        let lengths = [0, 1, 2, SHORT, 3, 0, 4, 2 * SHORT, SHORT, 5];
        let each = lengths.iter().zip(1u8..);
        let each: Vec<Vec<u8>> = each.map(|(length, byte)| vec![byte; *length]).collect();
        each.iter().for_each(|chunk| chunks.add(chunk.clone().into()));
        assert_eq!(chunks.all.len(), 6, "the last is among the short ones");
        assert_eq!(chunks.length, each.concat().len() as u64);
        assert_eq!(chunks.joined(), each.concat());
    }

    #[tokio::test]
    async fn too_long_too_slow_and_too_much_at_once_are_refused() {
        let (limits, admission) = (limits(), Admission::new(&limits()));
        let refused = |body| read(body, 12_000, &limits, &admission);
        let long = refused(chunks(2, 6500)).await.unwrap_err();
        assert!(long.error.message.contains("longer than"), "{long:?}");
        let much = refused(chunks(10, 1000)).await.unwrap_err();
        assert!(much.error.message.contains("take up 8 KiB"), "{much:?}");
        let stuck = AxumBody::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let slow = refused(stuck).await.unwrap_err();
        assert!(slow.error.message.contains("too slowly"), "{slow:?}");
        assert_eq!(admission.load().2, 0);
    }
}
