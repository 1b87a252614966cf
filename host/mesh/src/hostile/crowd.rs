//! A stranger that opens connections and says nothing.

use super::{SOON, Scene};
use crate::support::{head, invite, start};
use libp2p::multiaddr::Protocol;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// More than a node has places for connections on their way in.
const CROWD: usize = 300;
/// Not where the others come from.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

async fn idle(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Else the newcomer could not dial from the port on which it listens, where one of these has the same.
    socket.set_reuseaddr(true).unwrap();
    socket.bind((STRANGER, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_opens_connections_and_says_nothing_keeps_nobody_out() {
    let scene = Scene::begin().await;
    let port = scene.tcp().iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap()));
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(idle(to).await);
    }
    scene.refuses("crowd", 100).await;
    // By TCP, as the crowd: QUIC has places of its own.
    let newcomer = start(Some(invite(&scene.root, &[scene.tcp().clone()])), None);
    newcomer.mesh.admitted(SOON).await.unwrap();
    let called = newcomer
        .mesh
        .call(scene.first.mesh.me(), head("vision/echo"), vec![7]);
    called.await.unwrap();
    drop(crowd);
    scene.end().await;
}
