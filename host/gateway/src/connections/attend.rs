//! One connection, from its first request to its last.

use super::streams::Streams;
use super::table::Seated;
use crate::config::GatewayLimits;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

/// How long a connection without a request under way may stay once the gateway shuts down: the end of its last answer may be on its way.
const UNASKED: Duration = Duration::from_secs(10);
/// How long a connection that must go may take to say so.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Requests of one HTTP/2 connection at once.
const STREAMS: u32 = 256;
/// The longest head of a request.
const HEAD: u32 = 64 << 10;

/// What has come about.
enum End {
    /// The gateway stops: what is under way may finish.
    Near,
    /// It was idle for too long, or must make room.
    Here,
}

/// Answers on one connection until it ends, is idle for too long, must make room, or the gateway stops.
pub(super) async fn attend<I, S, F, B>(
    stream: I,
    streams: Streams,
    answer: S,
    seat: Seated,
    limits: GatewayLimits,
    stopped: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let builder = builder(streams);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Asked when one of them has come about, and not with each request.
    let mut ends = FuturesUnordered::from_iter([end(&seat, &limits, limits.idle.0, Some(stopped))]);
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            Some(end_is) = ends.next() => match end_is {
                End::Near => {
                    connection.as_mut().graceful_shutdown();
                    ends.push(end(&seat, &limits, limits.idle.0.min(UNASKED), None));
                }
                End::Here => break,
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_WORDS, connection).await;
}

/// A head that comes slowly has no time of its own: until it is there its connection is idle.
fn builder(streams: Streams) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(HEAD as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}

async fn end(
    seat: &Seated,
    limits: &GatewayLimits,
    idle: Duration,
    stopped: Option<watch::Receiver<bool>>,
) -> End {
    let stops = async {
        match stopped {
            Some(mut stopped) => drop(stopped.wait_for(|stop| *stop).await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = is_idle(seat, idle, limits.time.0) => End::Here,
        () = seat.must_leave() => End::Here,
        () = stops => End::Near,
    }
}

/// Until a connection has been idle for so long. Until then it gives up the answers that its caller does not take.
async fn is_idle(seat: &Seated, most: Duration, untaken: Duration) {
    loop {
        let since = seat.idle_since().unwrap_or_else(Instant::now);
        sleep_until((since + most.min(untaken)).into()).await;
        seat.give_up(untaken);
        if seat.idle_since().is_some_and(|since| since.elapsed() >= most) {
            return;
        }
    }
}
