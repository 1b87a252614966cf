//! How a client waits for the outcome of its round, and when it leaves.

use super::{Seat, SwarmOutcome};
use crate::drive::swarm::stage::{Playing, Stage};
use karman_fed::Instant;
use karman_fed::swarm::{Neglect, Neighbourhood};
use karman_types::{Digest, TaskError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a client that waits looks whether its round is still led, in the longest time that it waits for that.
const LOOKS: u32 = 8;

impl Seat {
    /// What comes of the round, or why it is left: `told` says it where there is something to say.
    pub(in crate::drive::swarm) async fn outcome(
        &self,
        mut told: oneshot::Receiver<Result<SwarmOutcome, TaskError>>,
    ) -> Result<SwarmOutcome, TaskError> {
        let between = (self.entry.neglect / LOOKS).max(Duration::from_millis(1));
        loop {
            match tokio::time::timeout(between, &mut told).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(_)) => return Err(TaskError::cancelled("the round ended without an outcome")),
                Err(_) => self.look(self.now())?,
            }
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::default().after(self.began.elapsed())
    }

    /// Leaves a round that nobody leads, or whose leader keeps this client from what it needs.
    pub(super) fn look(&self, now: Instant) -> Result<(), TaskError> {
        if self.swarming.lock().is_some() {
            // It needs no leader any more ([`Seat::swarm`]).
            return Ok(());
        }
        let needed = self.supplied(now);
        let led = self.attention.lock().check(now, needed);
        led.map_err(|neglect| self.quit(neglected(&neglect)))
    }

    /// Notes how many chunks are here; how many have to be, where these are fewer.
    pub(super) fn supplied(&self, now: Instant) -> Option<u32> {
        let (held, needed) = match &*self.stage.lock() {
            Stage::Playing(playing) => playing.supply(),
            Stage::Waiting | Stage::Open(_) | Stage::Over => (0, None),
        };
        self.attention.lock().holds(now, held);
        needed
    }

    /// The warm-up is over. Who asked for a cover goes on with it, or not at all.
    pub(super) fn ends_warm_up(&self, round: Digest, hood: Neighbourhood) -> Result<(), TaskError> {
        let protected = self.entry.protection > 0.0;
        let ends = |playing: &mut Playing| Ok(playing.check_end(&hood, protected));
        self.playing(round, ends)?.map_err(|why| self.quit(why))?;
        self.playing(round, |playing| playing.swarm(hood))
    }

    /// Leaves the round, and says why to whoever waits for its outcome.
    pub(super) fn quit(&self, why: TaskError) -> TaskError {
        tracing::warn!(name = self.name(), %why, "this node leaves a swarm round");
        self.leave();
        let tell = self.tell.lock().take();
        if let Some(tell) = tell {
            // Nobody may wait for it any more.
            let _ = tell.send(Err(why.clone()));
        }
        why
    }
}

/// What a client says that leaves because of that.
fn neglected(neglect: &Neglect) -> TaskError {
    TaskError::deadline(format!("this node leaves the round: {neglect}"))
        .with_field("lead")
        .with_hint("`neglect` under `[federated]` in its node.toml says how long it waits")
}
