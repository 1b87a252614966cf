//! A client's place in a round: who may say what to it, and what it does then.

use super::company::{self, Members};
use super::errands::{Errand, Room, by_neighbour};
use super::stage::{Open, Playing, Stage};
use super::talk::{ENVELOPE, LONGEST_LIST, invalid, say};
use crate::services::blocking;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::swarm::{
    Answer, Attention, Beginning, Chunk, Client, Letter, Link, MeanRule, Message, Opening, Transfer,
};
use karman_mesh::Mesh;
use karman_types::{Digest, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

mod leaving;

/// The longest slot of the exchange, and the longest exchange, that a coordinator can ask for.
const LONGEST_SLOT: Duration = Duration::from_secs(60);
const LONGEST_EXCHANGE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a node brings into a round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SwarmEntry {
    /// The round.
    pub(crate) name: String,
    /// The node that leads it: it learns whose update is whose, and must not share the clients' interests.
    pub(crate) lead: NodeId,
    /// The update.
    pub(crate) update: Vec<f32>,
    /// What it counts in the mean, at least 1.
    pub(crate) weight: u32,
    /// How the mean is made; nothing where any finite numbers are added up in double precision.
    pub(crate) rule: Option<MeanRule>,
    /// The chunks that this node's link carries in a slot.
    pub(crate) link: Link,
    /// How long to wait for the outcome.
    pub(crate) patience: Duration,
    /// How long `lead` may leave this node without a word, or, before clients are by themselves, without a chunk while it needs more; then it
    /// leaves the round. Where they are by themselves, it takes what it has once neither has come for so long.
    pub(crate) neglect: Duration,
    /// The least protection that it takes part with ([`SwarmSettings::protection`]): others' chunks that hide its own, as a share of those of one
    /// update. It leaves a round whose warm-up ends before it has its cover. 0 where nothing need be hidden.
    ///
    /// [`SwarmSettings::protection`]: karman_fed::swarm::SwarmSettings::protection
    pub(crate) protection: f64,
    /// The most bytes that the updates of all may take together on the disk of this node, for as long as the round goes on.
    pub(crate) disk: u64,
}

/// What a round comes to for one client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SwarmOutcome {
    /// The weighted mean of the updates that it could rebuild: of the same ones everybody has the same, bit by bit.
    pub(crate) mean: Vec<f32>,
    /// The pseudonyms of those updates.
    pub(crate) rebuilt: Vec<Digest>,
    /// How many updates there were.
    pub(crate) of: usize,
    /// Updates that were rebuilt and are no numbers to take a mean of, and why.
    pub(crate) left_out: Vec<(Digest, String)>,
    /// Whether every client had its cover before the exchange began. If not, neighbours may have seen whose update is whose.
    pub(crate) covered: bool,
    /// Chunks of its own that this client sent outside of any cover.
    pub(crate) unprotected: u32,
    /// The clients that have sent it what is no chunk of the round, by their numbers.
    pub(crate) altered: Vec<Client>,
}

/// A client in a round, or one that waits for it.
pub(super) struct Seat {
    entry: SwarmEntry,
    folder: PathBuf,
    stage: Mutex<Stage>,
    began: Instant,
    attention: Mutex<Attention>,
    tell: Mutex<Option<oneshot::Sender<Result<SwarmOutcome, TaskError>>>>,
    /// The exchange, once it has begun.
    swarming: Mutex<Option<AbortHandle>>,
}

impl Seat {
    pub(super) fn new(
        entry: SwarmEntry,
        folder: &Path,
        tell: oneshot::Sender<Result<SwarmOutcome, TaskError>>,
    ) -> Result<Self, TaskError> {
        if let Some(place) = entry.update.iter().position(|number| !number.is_finite()) {
            let says = format!("number {place} of the update is {}", entry.update[place]);
            return Err(TaskError::invalid(says).with_field("update"));
        }
        let attention = Attention::new(karman_fed::Instant::default(), entry.neglect);
        Ok(Self {
            entry,
            folder: folder.into(),
            stage: Mutex::new(Stage::Waiting),
            began: Instant::now(),
            attention: Mutex::new(attention),
            tell: Mutex::new(Some(tell)),
            swarming: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Takes no part any more.
    pub(super) fn leave(&self) {
        if let Some(swarming) = self.swarming.lock().take() {
            swarming.abort();
        }
        *self.stage.lock() = Stage::Over;
    }

    /// Does something in the round that it takes part in, if that is this one.
    pub(super) fn playing<T>(
        &self,
        round: Digest,
        does: impl FnOnce(&mut Playing) -> Result<T, TaskError>,
    ) -> Result<T, TaskError> {
        match &mut *self.stage.lock() {
            Stage::Playing(playing) if playing.round == round => does(playing),
            Stage::Waiting | Stage::Open(_) | Stage::Playing(_) | Stage::Over => {
                let says = format!(
                    "this node takes no part in round {} of `{}`",
                    round.short(),
                    self.name()
                );
                Err(TaskError::unavailable(says))
            }
        }
    }

    /// The longest letter that is taken from this node. It is looked at before a letter is read: what a few bytes are in one may be many in
    /// memory.
    pub(super) fn longest(&self, from: NodeId) -> usize {
        let leads = from == self.entry.lead;
        let link = self.entry.link;
        match &*self.stage.lock() {
            Stage::Open(open) if leads => open.longest_led(self.entry.disk, link),
            Stage::Playing(playing) if leads => playing.longest_led(link),
            Stage::Playing(playing) => playing.longest(),
            Stage::Waiting | Stage::Open(_) | Stage::Over => LONGEST_LIST + ENVELOPE,
        }
    }

    /// The longest letter that is taken from anybody: nobody has more to say than the leader.
    pub(super) fn longest_of_all(&self) -> usize {
        self.longest(self.entry.lead)
    }

    /// Takes a letter.
    pub(super) async fn take(
        self: &Arc<Self>,
        mesh: &Mesh,
        from: NodeId,
        letter: Letter,
    ) -> Result<Answer, TaskError> {
        let Letter { round, message } = letter;
        match message {
            Message::Chunk { chunk, bytes } => {
                let client = self.playing(round, |playing| playing.client_at(from))?;
                let seat = self.clone();
                blocking(move || seat.keep(round, client, chunk, &bytes)).await?;
                Ok(Answer::Done)
            }
            Message::Sealed(sealed) => {
                self.playing(round, |playing| playing.client_at(from))?;
                let seat = self.clone();
                blocking(move || seat.unseal(round, &sealed)).await?;
                Ok(Answer::Done)
            }
            Message::Relay { to, sealed } => {
                let node = self.playing(round, |playing| playing.relay(from, to, &sealed))?;
                say(mesh, self.name(), round, node, Message::Sealed(sealed)).await
            }
            Message::Want(chunks) => self.playing(round, |playing| playing.wanted(from, &chunks)),
            Message::Has(chunks) => {
                self.playing(round, |playing| playing.has(from, &chunks))?;
                Ok(Answer::Done)
            }
            order if from == self.entry.lead => self.obey(mesh, round, order).await,
            _ => Err(TaskError::denied(format!(
                "node {} does not lead `{}`",
                from.short(),
                self.name()
            ))),
        }
    }

    /// Keeps bytes that are said to be a chunk: on the shelf before anybody hears that they are here, and only where they are what they
    /// should be. Neither the hash nor the disk is waited for with the stage locked, which others need meanwhile.
    fn keep(&self, round: Digest, from: Client, chunk: Chunk, bytes: &[u8]) -> Result<(), TaskError> {
        let about = |playing: &mut Playing| Ok((playing.size(), playing.lacks(chunk), playing.shelf()));
        let (size, lacks, shelf) = self.playing(round, about)?;
        let digest = (bytes.len() == size).then(|| Digest::of(bytes));
        if lacks.is_some() && lacks == digest {
            shelf.put(chunk, bytes)?;
        }
        self.playing(round, |playing| playing.received(from, chunk, digest))
    }

    /// Keeps a chunk that was sprayed to this client. Who passed it on says nothing of who has it.
    fn unseal(&self, round: Digest, sealed: &[u8]) -> Result<(), TaskError> {
        let (me, mailbox) = self.playing(round, |playing| Ok(playing.mailbox()))?;
        let plain = mailbox.open(round.as_bytes(), sealed);
        let plain = plain.ok_or_else(|| invalid(&"a sprayed chunk was not sealed to this client"))?;
        let (chunk, bytes) = plain
            .split_first_chunk::<4>()
            .ok_or_else(|| invalid(&"a sprayed chunk is cut off"))?;
        self.keep(round, me, Chunk::from_le_bytes(*chunk), bytes)
    }

    /// What the coordinator says.
    async fn obey(self: &Arc<Self>, mesh: &Mesh, round: Digest, order: Message) -> Result<Answer, TaskError> {
        self.attention.lock().heard(self.now());
        match order {
            Message::Open(opening) => {
                let (seat, members) = (self.clone(), mesh.standing().clone());
                return blocking(move || seat.open(round, opening, &*members)).await;
            }
            Message::Begin(beginning) => {
                let (seat, members) = (self.clone(), mesh.standing().clone());
                blocking(move || seat.begin(round, beginning, &*members)).await?;
            }
            Message::Slot(transfers) => {
                let errands = self.told(round, &transfers)?;
                self.run_all(mesh, round, errands).await;
            }
            Message::Swarm(hood) => self.ends_warm_up(round, hood)?,
            Message::Go { slot_ms, within_ms } => {
                // Who has not heard that the warm-up is over would end its exchange at once, and count as one that needs no leader.
                self.playing(round, Playing::exchanges)?;
                let slot = Duration::from_millis(slot_ms.max(1)).min(LONGEST_SLOT);
                let within = Duration::from_millis(within_ms).min(LONGEST_EXCHANGE);
                let mut swarming = self.swarming.lock();
                if swarming.is_none() {
                    let task = tokio::spawn(self.clone().swarm(mesh.clone(), round, slot, within));
                    *swarming = Some(task.abort_handle());
                }
            }
            Message::Report { gone } => {
                return self.playing(round, |playing| Ok(playing.report(&gone)));
            }
            // It may be said twice. Nobody waits for the sum of many numbers.
            Message::End => {
                if self.playing(round, |_| Ok(())).is_ok() {
                    let seat = self.clone();
                    tokio::spawn(async move { seat.finish().await });
                }
            }
            Message::Chunk { .. }
            | Message::Relay { .. }
            | Message::Sealed(_)
            | Message::Want(_)
            | Message::Has(_) => return Err(invalid(&"this is nothing that a coordinator says")),
        }
        Ok(Answer::Done)
    }

    /// What it is to send in a slot.
    fn told(&self, round: Digest, transfers: &[Transfer]) -> Result<Vec<Errand>, TaskError> {
        let told = |playing: &mut Playing| Ok(playing.told(transfers, self.entry.link));
        self.playing(round, told)?.map_err(|why| self.quit(why))
    }

    /// Says what everybody may know of its update. That is cut and hashed without the stage locked, which others need meanwhile.
    fn open(&self, round: Digest, opening: Opening, members: &dyn Members) -> Result<Answer, TaskError> {
        let answered = self.answered(&self.stage.lock(), round)?;
        if let Some(answer) = answered {
            return Ok(answer);
        }
        let SwarmEntry {
            update,
            weight,
            protection,
            ..
        } = &self.entry;
        let open = Open::new(round, opening, update, *weight, *protection, members)?;
        let mut stage = self.stage.lock();
        // Where it was asked twice at once, what was said first holds: every opening has another pseudonym.
        if let Some(answer) = self.answered(&stage, round)? {
            return Ok(answer);
        }
        let answer = open.answer(self.entry.link);
        *stage = Stage::Open(Arc::new(open));
        Ok(answer)
    }

    /// What it has said when this round opened; nothing where it may say it yet.
    fn answered(&self, stage: &Stage, round: Digest) -> Result<Option<Answer>, TaskError> {
        match stage {
            Stage::Open(open) if open.round == round => Ok(Some(open.answer(self.entry.link))),
            Stage::Waiting | Stage::Open(_) => Ok(None),
            Stage::Playing(_) | Stage::Over => {
                let says = format!("this node is in another round of `{}`", self.name());
                Err(TaskError::unavailable(says))
            }
        }
    }

    /// The others are known. All that is hashed and put on the disk for that is done without the stage locked.
    fn begin(&self, round: Digest, beginning: Beginning, members: &dyn Members) -> Result<(), TaskError> {
        let not_open = || invalid(&"a round begins that did not open here");
        let open = match &*self.stage.lock() {
            Stage::Playing(playing) if playing.round == round => return Ok(()),
            Stage::Open(open) if open.round == round => open.clone(),
            Stage::Waiting | Stage::Open(_) | Stage::Playing(_) | Stage::Over => return Err(not_open()),
        };
        company::check(&beginning, round, self.entry.lead, members)?;
        let playing = open.begin(beginning, &self.folder, self.entry.disk)?;
        let mut stage = self.stage.lock();
        if matches!(&*stage, Stage::Playing(playing) if playing.round == round) {
            // It was said twice at once, and the other time is done.
            return Ok(());
        }
        // Another round may have opened meanwhile, and this one anew.
        if !matches!(&*stage, Stage::Open(still) if Arc::ptr_eq(still, &open)) {
            return Err(not_open());
        }
        *stage = Stage::Playing(Box::new(playing));
        Ok(())
    }

    /// The exchange, slot by slot, until the coordinator ends the round, the time is over, or nothing comes any more from anybody.
    async fn swarm(self: Arc<Self>, mesh: Mesh, round: Digest, slot: Duration, within: Duration) {
        let started = Instant::now();
        let mut slots = interval(slot);
        slots.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let Ok(at_once) = self.playing(round, |playing| Ok(playing.at_once())) else {
            return;
        };
        let room = Room::of(at_once);
        let (mut under_way, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        while started.elapsed() < within {
            tokio::select! {
                _ = slots.tick() => {
                    let now = self.now();
                    self.supplied(now);
                    if self.attention.lock().is_over(now) {
                        break;
                    }
                    let step = self.playing(round, |playing| playing.step(self.entry.link, &busy));
                    let Ok(errands) = step else { return };
                    // Who has not taken what was sent to it gets no more: a link that carries less sets the pace, for itself.
                    for (to, errands) in by_neighbour(errands) {
                        busy.insert(to);
                        under_way.push(self.run_for(&mesh, round, to, errands, &room));
                    }
                }
                Some(to) = under_way.next() => {
                    busy.remove(&to);
                }
            }
        }
        tracing::warn!(
            name = self.name(),
            "the coordinator does not end the round: this client takes what it has"
        );
        self.finish().await;
    }

    async fn finish(&self) {
        let before = std::mem::replace(&mut *self.stage.lock(), Stage::Over);
        let Stage::Playing(playing) = before else {
            return;
        };
        let rule = self.entry.rule;
        let outcome = blocking(move || playing.outcome(rule)).await;
        let tell = self.tell.lock().take();
        if let Some(tell) = tell {
            // Nobody may wait for it any more.
            let _ = tell.send(outcome);
        }
    }

    /// How many chunks are here.
    #[cfg(test)]
    pub(super) fn held(&self) -> u32 {
        match &*self.stage.lock() {
            Stage::Playing(playing) => playing.held(),
            Stage::Waiting | Stage::Open(_) | Stage::Over => 0,
        }
    }
}

#[cfg(test)]
mod tests;
