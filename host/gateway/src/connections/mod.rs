//! Connections: accepted up to a number, with or without TLS, HTTP/1.1 or HTTP/2, and let go when they ask for nothing.

mod acme;
mod attend;
mod reused;
mod sending;
mod streams;
mod table;
mod tls;

pub(crate) use reused::Reused;
pub(crate) use sending::Sending;
pub(crate) use table::Busy;

use crate::config::{GatewayConfig, GatewayLimits};
use acme::{ACME_TLS, Acme};
use attend::attend;
use http::{Request, Response};
use hyper::body::Incoming;
use karman_node::{Awake, ShutDown};
use karman_types::TaskError;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams::Streams;
use table::{Seated, Table};
use tls::Shown;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files of the certificate are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long sent bytes may stay without an answer of the other side's system, before the connection is given up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Descriptors that are left to files and to other nodes.
const OTHER_DESCRIPTORS: usize = 256;

/// An address on which requests come in.
pub(crate) struct Door {
    listener: TcpListener,
    tls: Option<Shown>,
    /// Who gets its certificate, where nobody else does.
    acme: Option<Acme>,
    limits: GatewayLimits,
    table: Arc<Table>,
}

/// Tells connections to finish, and waits for them.
struct Farewell {
    stop: watch::Sender<bool>,
    alive: watch::Sender<()>,
}

impl Farewell {
    /// Says it, and waits for so long, unless it has to be quick.
    async fn say(self, most: Duration, shut_down: &ShutDown) {
        self.stop.send_replace(true);
        tokio::select! {
            _ = timeout(most, self.alive.closed()) => {}
            () = shut_down.hurried() => {}
        }
        match self.alive.receiver_count() {
            0 => tracing::info!("every request has ended"),
            connections => tracing::warn!(connections, "requests that have not ended are given up"),
        }
    }
}

impl Door {
    /// Takes the address.
    ///
    /// # Errors
    /// `unavailable` when it is in use or not ours, `invalid` when the certificate does not read.
    pub(crate) async fn open(address: SocketAddr, config: &GatewayConfig) -> Result<Self, TaskError> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            TaskError::unavailable(format!("cannot listen on {address}: {error}"))
                .with_field("listen")
                .with_hint("stop what listens there, or name another address with --listen")
        })?;
        let acme = config.acme.as_ref().map(Acme::open).transpose()?;
        let tls = match (&config.tls, &acme) {
            (Some(tls), _) => Some(Shown::open(tls)?),
            (None, Some(acme)) => Some(Shown::awaited(&acme.kept().tls(), acme.challenges())?),
            (None, None) => None,
        };
        Ok(Self {
            listener,
            tls,
            acme,
            limits: config.limits,
            table: Table::new(most_connections(&config.limits)),
        })
    }

    /// Where it is reached: `http://127.0.0.1:8080`.
    pub(crate) fn url(&self) -> Result<String, TaskError> {
        let address = self.listener.local_addr();
        let address = address.map_err(|error| TaskError::internal(error.to_string()))?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    }

    /// How many are connected.
    pub(crate) fn connections(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let table = self.table.clone();
        move || table.count()
    }

    /// Answers requests until the shutdown, each connection in a task of its own.
    pub(crate) async fn serve<S, F, B>(mut self, service: S, shut_down: &ShutDown)
    where
        S: Fn(Request<Incoming>, Busy, SocketAddr) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let farewell = Farewell {
            stop: watch::Sender::new(false),
            alive: watch::Sender::new(()),
        };
        let shown = self.tls.take().map(|shown| {
            let (tell, shows) = watch::channel(shown.acceptor());
            tokio::spawn(renew(shown, tell));
            shows
        });
        // Nobody orders certificates any more once this is dropped.
        let mut ordering = JoinSet::new();
        if let Some(acme) = self.acme.take() {
            ordering.spawn(acme.keep());
        }
        let mut stop = pin!(closing(shut_down, self.limits.notice.0));
        let others = Handle::current();
        let mut refused = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => {
                    refused = false;
                    accepted
                }
                Err(error) => {
                    // Out of descriptors, say: it passes when connections end. Until then it is told once.
                    if !std::mem::replace(&mut refused, true) {
                        tracing::warn!(%error, "connections cannot be accepted");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            // Every connection has a request under way: this one would only wait. Closed, it knows.
            let Some(seat) = self.table.sit(Instant::now()) else {
                continue;
            };
            prepare(&stream);
            let (service, busy) = (service.clone(), seat.seat());
            let answer = move |request| service(request, Busy::new(busy.clone()), peer);
            let tls = shown.as_ref().map(|shown| shown.borrow().clone());
            let (limits, streams) = (self.limits, Streams::beside(others.clone()));
            let (stopped, alive) = (farewell.stop.subscribe(), farewell.alive.subscribe());
            karman_node::attend(stream, move |stream| async move {
                let stream = Awake::also_beside_others(stream);
                match tls {
                    None => attend(stream, streams, answer, seat, limits, stopped).await,
                    Some(tls) => {
                        let shaken = shake_hands(&tls, stream, &seat, peer).await;
                        if let Some(stream) = shaken {
                            attend(stream, streams, answer, seat, limits, stopped).await;
                        }
                    }
                }
                drop(alive);
            });
        }
        drop(self.listener);
        farewell.say(self.limits.time.0, shut_down).await;
    }
}

/// Until nobody else is let in: whoever sends callers here is given notice first.
async fn closing(shut_down: &ShutDown, notice: Duration) {
    shut_down.started().await;
    let _ = timeout(notice, shut_down.hurried()).await;
}

/// Looks for a renewed certificate, until nobody shows it any more. The disk that it lies on may take its time: nobody waits for it.
async fn renew(mut shown: Shown, tell: watch::Sender<TlsAcceptor>) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = tell.closed() => return,
        }
        let looking = tokio::task::spawn_blocking(move || {
            let renewed = shown.look();
            (shown, renewed)
        });
        let (looked, renewed) = match looking.await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "nobody looks for a renewed certificate any more: restart the gateway");
                return;
            }
        };
        shown = looked;
        if renewed {
            tell.send_replace(shown.acceptor());
        }
    }
}

fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    // One that takes nothing of what it asked for would hold it for ever.
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

/// As many as the operator allows, and as the system gives descriptors for.
fn most_connections(limits: &GatewayLimits) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // The soft limit is a relic of programs that count in bits: what the hard one allows may be had.
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        },
    );
    let have = if raised.is_ok() { now.maximum } else { now.current };
    let have = have.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    limits
        .connections
        .min(have.saturating_sub(OTHER_DESCRIPTORS).max(16))
}

/// The stream that is encrypted; nothing when the handshake failed, took too long, was all that was wanted, or the connection must make
/// room.
async fn shake_hands(
    tls: &TlsAcceptor,
    stream: Awake<TcpStream>,
    seat: &Seated,
    peer: SocketAddr,
) -> Option<TlsStream<Awake<TcpStream>>> {
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        () = seat.must_leave() => return None,
    };
    match shaken {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ACME_TLS) => {
            tracing::info!(%peer, "a server of ACME has looked at a name");
        }
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a handshake failed"),
        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::FutureExt;
    use http_body_util::Full;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn a_farewell_lasts_as_long_as_what_is_under_way_unless_it_has_to_be_quick() {
        const HOUR: Duration = Duration::from_secs(3600);
        let farewell = || Farewell {
            stop: watch::Sender::new(false),
            alive: watch::Sender::new(()),
        };
        let (shut_down, first, second) = (ShutDown::default(), farewell(), farewell());
        let (under_way, told) = (first.alive.subscribe(), first.stop.subscribe());
        let mut waiting = pin!(first.say(HOUR, &shut_down));
        assert!(waiting.as_mut().now_or_never().is_none() && *told.borrow());
        drop(under_way);
        waiting.await;

        let _never_ends = second.alive.subscribe();
        let mut waiting = pin!(second.say(HOUR, &shut_down));
        assert!(waiting.as_mut().now_or_never().is_none());
        shut_down.hurry();
        waiting.await;
    }

    #[tokio::test]
    async fn a_handshake_that_does_not_end_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let config = GatewayConfig {
            tls: Some(tls::tests::certificate(folder.path()).0),
            limits: GatewayLimits {
                connections: 1,
                ..GatewayLimits::default()
            },
            ..GatewayConfig::default()
        };
        let door = Door::open(([127, 0, 0, 1], 0).into(), &config).await.unwrap();
        let address = door.listener.local_addr().unwrap();
        let shut_down = ShutDown::default();
        let service =
            |_: Request<Incoming>, _: Busy, _: SocketAddr| async { Response::new(Full::<Bytes>::default()) };
        let callers = async {
            let started = Instant::now();
            let mut first = TcpStream::connect(address).await.unwrap();
            let _second = TcpStream::connect(address).await.unwrap();
            // Closed, in whatever way.
            let read = first.read(&mut [0]).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
            assert!(
                started.elapsed() < HANDSHAKE,
                "only the time of handshakes ended it"
            );
            shut_down.now();
        };
        tokio::join!(door.serve(service, &shut_down), callers);
    }
}
