//! Tells the supervisor that started this process how it is: systemd, or whoever else speaks the protocol of `sd_notify(3)`. Where
//! nobody listens, nothing is told.

use karman_node::{Node, ShutDown};
use sd_notify::NotifyState;
use std::time::Duration;

/// Tells that the node answers; when it stops; and until then that it lives, as often as a watchdog asks for. One that only a new start
/// helps says why and falls silent: the watchdog sees to that start.
pub(crate) fn watched(node: &Node, shut_down: &ShutDown) {
    tell(&[NotifyState::Ready]);
    let (node, shut_down) = (node.clone(), shut_down.clone());
    tokio::spawn(async move {
        let lives = async {
            match sd_notify::watchdog_enabled() {
                Some(patience) if !patience.is_zero() => lives(node, patience).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lives => shut_down.started().await,
            () = shut_down.started() => {}
        }
        tell(&[NotifyState::Stopping]);
    });
}

/// Until nothing but a new start helps the node.
async fn lives(node: Node, patience: Duration) {
    let mut ticks = tokio::time::interval(patience / 2);
    loop {
        ticks.tick().await;
        if let Some(why) = node.not_live() {
            tracing::error!(why, "the watchdog is to start this node again");
            return tell(&[NotifyState::Status(&why)]);
        }
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor is not told how this node is");
    }
}
