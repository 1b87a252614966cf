use super::awake::Awake;
use super::threads;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use karman_types::TaskError;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long connections may take to finish once the node shuts down.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// Tells listeners to stop: no new connections, those there finish.
#[derive(Clone, Debug)]
pub struct ShutDown(watch::Sender<Stage>);

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    /// There is none.
    Open,
    /// What is under way may finish.
    Farewell,
    /// Nobody waits for it any more.
    Hurry,
}

impl Default for ShutDown {
    fn default() -> Self {
        Self(watch::Sender::new(Stage::Open))
    }
}

impl ShutDown {
    /// Starts the shutdown.
    pub fn now(&self) {
        self.reach(Stage::Farewell);
    }

    /// Starts it, and lets nobody wait for what is under way.
    pub fn hurry(&self) {
        self.reach(Stage::Hurry);
    }

    /// Whether it has started.
    pub fn has_started(&self) -> bool {
        *self.0.borrow() >= Stage::Farewell
    }

    /// Waits until it starts.
    pub async fn started(&self) {
        self.reached(Stage::Farewell).await;
    }

    /// Waits until nobody is to wait for what is under way.
    pub async fn hurried(&self) {
        self.reached(Stage::Hurry).await;
    }

    /// There is no way back.
    fn reach(&self, stage: Stage) {
        self.0.send_modify(|now| *now = stage.max(*now));
    }

    async fn reached(&self, stage: Stage) {
        let _ = self.0.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// An address on which requests come in.
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Takes the address.
    ///
    /// # Errors
    /// `unavailable` when it is in use or not ours.
    pub async fn bind(address: SocketAddr) -> Result<Self, TaskError> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            TaskError::unavailable(format!("cannot listen on {address}: {error}"))
                .with_field("listen")
                .with_hint("stop what listens there, or name another address with --listen")
        })?;
        threads::start();
        Ok(Self { listener })
    }

    /// The address, with the port that the system chose where 0 was asked for.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until the shutdown, each connection on one of the [threads](super::attend) for them.
    pub async fn serve<S, F, B>(self, service: S, shut_down: &ShutDown)
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(shut_down.started());
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, say: it passes when connections end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let service = service.clone();
            let answer = service_fn(move |request| {
                let answer = service(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let watcher = graceful.watcher();
            threads::attend(stream, |stream| async move {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_PATIENCE)
                    .serve_connection(TokioIo::new(Awake::new(stream)), answer);
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(%error, "a connection ended early");
                }
            });
        }
        drop(self.listener);
        tokio::select! {
            _ = tokio::time::timeout(FAREWELL, graceful.shutdown()) => {}
            () = shut_down.hurried() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_shutdown_goes_one_way() {
        let shut_down = ShutDown::default();
        assert!(!shut_down.has_started() && shut_down.started().now_or_never().is_none());
        shut_down.now();
        assert!(shut_down.has_started() && shut_down.started().now_or_never().is_some());
        assert!(shut_down.hurried().now_or_never().is_none());
        shut_down.hurry();
        shut_down.now();
        assert!(shut_down.has_started() && shut_down.hurried().now_or_never().is_some());
    }
}
