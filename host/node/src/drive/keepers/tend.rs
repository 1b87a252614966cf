//! What goes on by itself.

use super::Inner;
use super::group::Key;
use super::seat::Seat;
use super::shorten::keep_short;
use super::wire::{Answer, Question};
use crate::drive::tasks;
use crate::services::blocking;
use karman_mesh::membership::Charter;
use karman_tasks::{Effect, Event};
use karman_types::TaskError;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Tells the tasks of this node which of them have another owner.
pub(super) async fn tell(tasks: Weak<tasks::Inner>, mut done: mpsc::UnboundedReceiver<Effect>) {
    while let Some(effect) = done.recv().await {
        if let Effect::Owned { .. } = effect {
            let Some(tasks) = tasks.upgrade() else { return };
            tasks.feed(Event::Kept(effect));
        }
    }
}

/// Takes the node's seat when a charter names it, and leaves it when others have taken its place.
pub(super) async fn sit(keepers: Weak<Inner>) {
    let Some(mut charters) = keepers.upgrade().map(|inner| inner.charter.subscribe()) else {
        return;
    };
    loop {
        let Some(inner) = keepers.upgrade() else { return };
        if let Err(error) = inner.arrange().await {
            tracing::warn!(%error, "the keepers");
        }
        let pulse = inner.limits.pulse();
        drop(inner);
        if let Ok(Err(_)) = timeout(pulse, charters.changed()).await {
            return;
        }
    }
}

impl Inner {
    async fn arrange(&self) -> Result<(), TaskError> {
        let Some(charter) = self.charter() else {
            return Ok(());
        };
        let keepers: BTreeSet<Key> = charter.keepers().iter().copied().map(Key).collect();
        let named = keepers.contains(&self.me);
        let seat = match self.seat() {
            Ok(seat) => seat,
            Err(_) if named || self.has_log().await? => self.sit_down(&charter, &keepers).await?,
            Err(_) => return Ok(()),
        };
        if let Some(why) = seat.broken() {
            tracing::error!(why, "this keeper has stopped, and is started again");
            *self.seat.write() = None;
            return Ok(());
        }
        seat.change(&keepers).await?;
        if !named && self.in_place(&keepers).await {
            *self.seat.write() = None;
            seat.leave().await;
            let store = self.runtime.home().store()?;
            blocking(move || store.keepers().clear().map_err(TaskError::from)).await?;
            tracing::info!("this node is a keeper no more");
        }
        Ok(())
    }

    /// A former keeper that was stopped before others had taken its place is still needed.
    async fn has_log(&self) -> Result<bool, TaskError> {
        let store = self.runtime.home().store()?;
        let last = blocking(move || store.keepers().last().map_err(TaskError::from));
        Ok(last.await?.is_some())
    }

    async fn sit_down(&self, charter: &Charter, keepers: &BTreeSet<Key>) -> Result<Arc<Seat>, TaskError> {
        let store = self.runtime.home().store()?;
        let (mesh, effects) = (self.mesh()?.clone(), self.effects.clone());
        let seat = Seat::take(self.me, mesh, store, self.limits.clone(), effects).await?;
        if charter.number() == 1 {
            seat.found(keepers).await;
        }
        let seat = Arc::new(seat);
        *self.seat.write() = Some(seat.clone());
        let most = self.limits.log_bytes.0;
        tokio::spawn(keep_short(Arc::downgrade(&seat), seat.watch_log(), most));
        tracing::info!("this node is a keeper");
        Ok(seat)
    }

    /// Whether these keepers decide by now, as one of them says.
    pub(super) async fn in_place(&self, keepers: &BTreeSet<Key>) -> bool {
        for keeper in keepers {
            let asked = timeout(self.limits.turn(), self.ask_one(*keeper, Question::Report));
            if let Ok(Ok(Answer::Report(report))) = asked.await
                && report.leader.is_some()
                && report.members.is_some_and(|members| members.iter().eq(keepers))
            {
                return true;
            }
        }
        false
    }
}

/// Tells the keepers that this node is there, as long as it owns kept tasks; takes up those that are its own and that it does not
/// know of: after a restart, or when nobody could tell it that one was accepted.
pub(super) async fn claim(keepers: Weak<Inner>) {
    let Some(mut charters) = keepers.upgrade().map(|inner| inner.charter.subscribe()) else {
        return;
    };
    let mut asked = false;
    loop {
        if charters.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let Some(inner) = keepers.upgrade() else { return };
        let Some(tasks) = inner.tasks() else { return };
        let knows = tasks.kept();
        if knows > 0 || !asked {
            match inner.claim(&tasks, knows).await {
                Ok(()) => {
                    if !asked {
                        tasks.away.keep_open(|task| tasks.is_open(task), &tasks.threads);
                    }
                    asked = true;
                }
                Err(error) => tracing::debug!(%error, "a sign of life"),
            }
        }
        let pulse = inner.limits.pulse();
        drop((inner, tasks));
        sleep(pulse).await;
    }
}

impl Inner {
    async fn claim(&self, tasks: &Arc<tasks::Inner>, knows: u64) -> Result<(), TaskError> {
        if self.alive().await? > knows {
            let owned = self.owned().await?;
            tasks.feed(Event::Orphaned(owned));
        }
        Ok(())
    }
}

/// Where this node leads the keepers, it takes over what owners have left that are lost.
pub(super) async fn take_over(keepers: Weak<Inner>) {
    let mut told = Vec::new();
    loop {
        let Some(inner) = keepers.upgrade() else { return };
        if let (Ok(seat), Some(tasks)) = (inner.seat(), inner.tasks()) {
            let lost = seat.lost();
            for owner in &lost {
                let left = seat.replica.kept().owned_by(*owner);
                if !told.contains(owner) {
                    tracing::warn!(owner = %owner.short(), tasks = left.len(), "an owner of kept tasks is lost");
                }
                tasks.feed(Event::Orphaned(left));
            }
            told = lost;
        }
        let pulse = inner.limits.pulse();
        drop(inner);
        sleep(pulse).await;
    }
}
