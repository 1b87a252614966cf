//! Calls of plugins whose bodies are streams: neither body has to fit in memory.

use super::answer::Refusal;
use super::public::{describe, request_head};
use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::try_unfold;
use karman_engine::{Plugin, StreamHead, StreamRequest};
use karman_types::{CallContext, TaskError};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio_util::io::StreamReader;

/// Bytes of a response that wait for a slow caller.
const WAITING: usize = 64 << 10;
/// The most bytes that go on at once.
const CHUNK: usize = 16 << 10;

/// The rest of a call whose head is out. The response's body drives it: a caller that goes away cancels it.
struct Rest {
    /// What the plugin writes; it ends when that does.
    written: DuplexStream,
    running: Option<BoxFuture<'static, Result<(), TaskError>>>,
}

/// Answers as soon as the plugin has told the head of its response. An error after that cuts the body short, which every HTTP
/// client tells from its end.
pub(super) async fn call(
    plugin: Arc<Plugin>,
    headers: &HeaderMap,
    body: Body,
    context: CallContext,
) -> Result<Response<Body>, Refusal> {
    let (content_type, metadata) = request_head(headers)?;
    let body = body.into_data_stream().map_err(io::Error::other);
    let request = StreamRequest {
        content_type,
        metadata,
        body: Box::pin(StreamReader::new(body)),
    };
    let (told, mut head) = oneshot::channel();
    let (plugins_end, written) = duplex(WAITING);
    let begin = Box::new(move |head: StreamHead| {
        // Nobody listens any more when the caller has gone, and then the call ends.
        let _ = told.send(head);
        Box::pin(plugins_end) as Pin<Box<dyn AsyncWrite + Send>>
    });
    let name = plugin.manifest().name.clone();
    let running = async move {
        let ended = plugin.call_stream(request, begin, context).await;
        ended
            .map(|_| ())
            .inspect_err(|error| tracing::warn!(plugin = name, %error, "a streamed call failed"))
    };
    let mut running = running.boxed();
    let (head, running) = tokio::select! {
        biased;
        told = &mut head => match told {
            Ok(head) => (Some(head), Some(running)),
            // It ended without.
            Err(_) => { running.await?; (None, None) }
        },
        ended = &mut running => { ended?; (head.try_recv().ok(), None) }
    };
    let head = head.ok_or_else(|| TaskError::internal("the call ended well and told no head"))?;
    let rest = try_unfold(Rest { written, running }, next);
    let mut response = Response::new(Body::from_stream(rest));
    describe(response.headers_mut(), head.content_type, head.metadata);
    Ok(response)
}

/// The next bytes of the response; nothing once it is whole.
async fn next(mut rest: Rest) -> io::Result<Option<(Bytes, Rest)>> {
    let mut bytes = BytesMut::with_capacity(CHUNK);
    loop {
        let running = async {
            match &mut rest.running {
                Some(running) => running.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = running => {
                rest.running = None;
                ended.map_err(io::Error::other)?;
            }
            read = rest.written.read_buf(&mut bytes) => {
                if read? > 0 {
                    return Ok(Some((bytes.freeze(), rest)));
                }
                // All is written; whether it is whole, the plugin has yet to say.
                if let Some(running) = rest.running.take() {
                    running.await.map_err(io::Error::other)?;
                }
                return Ok(None);
            }
        }
    }
}
