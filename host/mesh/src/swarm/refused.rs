//! QUIC has no answer for a port on which nobody listens: who dials it waits until the handshake has timed out. Every node takes TCP on the
//! same port, where the machine refuses at once. So where QUIC is not answered soon, TCP is tried beside it, only to hear that.

use super::reach::ip_of;
use futures::FutureExt;
use futures::future::BoxFuture;
use libp2p::core::transport::{DialOpts, ListenerId, TransportError, TransportEvent};
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, Transport, quic};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long a handshake may take before TCP is tried.
const HEAD_START: Duration = Duration::from_millis(500);
/// How long it may take after TCP was refused, at least: a router near by may have refused that, and by way of a satellite the packet that
/// was lost is sent again after a second.
const GRACE: Duration = Duration::from_secs(2);
/// Round trips that this is at least.
const ROUND_TRIPS: u32 = 4;

/// QUIC that gives up where the machine says that nobody is there.
pub(super) struct Heedful(pub(super) quic::tokio::Transport);

impl Transport for Heedful {
    type Output = <quic::tokio::Transport as Transport>::Output;
    type Error = quic::Error;
    type ListenerUpgrade = <quic::tokio::Transport as Transport>::ListenerUpgrade;
    type Dial = BoxFuture<'static, Result<Self::Output, Self::Error>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<Self::Error>> {
        self.0.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.0.remove_listener(id)
    }

    fn dial(
        &mut self,
        address: Multiaddr,
        options: DialOpts,
    ) -> Result<Self::Dial, TransportError<Self::Error>> {
        // Who punches a hole waits for the other side.
        let at = place(&address).filter(|_| options.role.is_dialer());
        let dials = self.0.dial(address, options)?;
        Ok(match at {
            Some(at) => unless_refused(dials, at).boxed(),
            None => dials,
        })
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        Pin::new(&mut self.0).poll(context)
    }
}

fn place(address: &Multiaddr) -> Option<SocketAddr> {
    let port = address.iter().find_map(|part| match part {
        Protocol::Udp(port) => Some(port),
        _ => None,
    });
    Some(SocketAddr::new(ip_of(address)?, port?))
}

async fn unless_refused<T>(
    dials: impl Future<Output = Result<T, quic::Error>>,
    at: SocketAddr,
) -> Result<T, quic::Error> {
    let mut dials = pin!(dials);
    if let Ok(dialled) = timeout(HEAD_START, &mut dials).await {
        return dialled;
    }
    tokio::select! {
        biased;
        dialled = &mut dials => dialled,
        refused = refusal(at) => Err(refused.into()),
    }
}

/// Over when the machine has refused TCP, and some round trips have passed since.
async fn refusal(at: SocketAddr) -> io::Error {
    let begun = Instant::now();
    let failed = TcpStream::connect(at).await.err();
    match failed.filter(|error| error.kind() == ErrorKind::ConnectionRefused) {
        Some(error) => {
            sleep(GRACE.max(ROUND_TRIPS * begun.elapsed())).await;
            error
        }
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::net::TcpListener;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn quic_and_tcp_are_at_the_same_port() {
        let place = |text: &str| place(&text.parse().unwrap());
        let at = place("/ip4/192.0.2.1/udp/7117/quic-v1");
        assert_eq!(at, Some("192.0.2.1:7117".parse().unwrap()));
        assert_eq!(place("/ip4/192.0.2.1/tcp/7117"), None);
    }

    #[tokio::test]
    async fn a_port_on_which_nobody_listens_is_given_up() {
        // Of those that no system gives to anybody who asks for any.
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
        let never = pending::<Result<(), quic::Error>>();
        let dialled = timeout(SOON, unless_refused(never, at)).await.unwrap();
        let is_refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
        assert!(matches!(&dialled, Err(quic::Error::Io(error)) if is_refused(error)));
    }

    #[tokio::test]
    async fn a_handshake_that_takes_its_time_is_waited_for_where_somebody_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let answers_late = async {
            listener.accept().await.unwrap();
            Ok::<_, quic::Error>(7)
        };
        let dialled = timeout(SOON, unless_refused(answers_late, at)).await.unwrap();
        assert_eq!(dialled.unwrap(), 7);
    }
}
