//! What is written down of a run, and what people see of it.

use super::log::FedForgotten;
use super::memory::Remembered;
use super::wire::RunId;
use karman_fed::{Checkpoint, ClientId, Layout, Loss, RoundReport, Run, Status, SwarmReport};
use karman_store::Store;
use karman_types::{Digest, NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that happened in a run, for people and programs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum FedEvent {
    /// A round has made a version.
    Round {
        /// The round, counted from 1, failed ones included.
        round: u64,
        /// The version.
        version: u64,
        /// Clients whose updates are in it.
        clients: Vec<ClientId>,
        /// Orders that were not answered.
        lost: u32,
        /// Mean loss of the training, by weight; nothing where nobody trained, which happens where chance draws the clients.
        loss: Option<f64>,
        /// Mean staleness of the updates.
        staleness: f64,
        /// Bytes of updates.
        bytes_up: u64,
        /// Bytes of models sent.
        bytes_down: u64,
        /// In a private run, the ε that it has spent up to this version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epsilon: Option<f64>,
        /// How its updates went from client to client, where they did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        swarm: Option<SwarmReport>,
        /// The greatest rank by which a matrix of `[low-rank]` has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        /// From its opening to its closing.
        ms: u64,
    },
    /// A client has done something wrong, or nothing at all.
    Trouble {
        /// Who.
        client: ClientId,
        /// What.
        what: String,
    },
    /// A client is not asked though it is there, and why; told once as long as the reason is the same.
    PassedOver {
        /// Who.
        client: ClientId,
        /// Why.
        why: String,
    },
    /// A round has made no version.
    Failed {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// Clients have judged a version.
    Judged {
        /// The version.
        version: u64,
        /// How many clients.
        clients: usize,
        /// The share of their samples that it gets right.
        accuracy: f64,
        /// The mean loss.
        loss: f64,
    },
    /// The run is over.
    Finished {
        /// The last version.
        version: u64,
        /// Why it did not get where it should, if it did not.
        failure: Option<String>,
    },
}

/// A run as people see it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FedStatus {
    /// Its name.
    pub name: String,
    /// How far it is; nothing before its model has begun.
    pub status: Option<Status>,
    /// Whether it is driven now.
    pub running: bool,
    /// The nodes of its clients: client 0 first; empty where one process plays them.
    pub members: Vec<NodeId>,
    /// How many events there were.
    pub events: usize,
    /// The first of them, which are kept no longer.
    #[serde(default, skip_serializing_if = "FedForgotten::is_none")]
    pub forgotten: FedForgotten,
    /// Those that were asked for.
    pub log: Vec<FedEvent>,
}

impl FedStatus {
    /// The same with its events after so many, of one that has all that are kept.
    pub(super) fn since(&self, after: usize) -> Self {
        Self {
            name: self.name.clone(),
            status: self.status.clone(),
            running: self.running,
            members: self.members.clone(),
            events: self.events,
            forgotten: self.forgotten.clone(),
            log: self.forgotten.since(&self.log, after).to_vec(),
        }
    }

    /// Takes over what has happened in a run since.
    pub(super) fn follow(&mut self, record: &Record) {
        let gone = record.forgotten.events - self.forgotten.events;
        self.log.drain(..gone.min(self.log.len()));
        let new = record.forgotten.since(&record.log, self.events);
        self.log.extend_from_slice(new);
        self.forgotten.clone_from(&record.forgotten);
        self.events = record.events();
    }
}

/// A model as it was made.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FedModel {
    /// The run.
    pub name: String,
    /// The version.
    pub version: u64,
    /// Its arrays.
    pub layout: Layout,
    /// Their numbers, in one row.
    pub numbers: Vec<f32>,
}

/// A run on the disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    pub(super) id: RunId,
    pub(super) run: Run,
    /// The file of the model that it began with, where it did with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began_with: Option<Digest>,
    /// Nothing before there is a model.
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) members: Vec<NodeId>,
    /// What simulated clients keep.
    pub(super) clients: BTreeMap<ClientId, Remembered>,
    /// Its last events, and what is left of those before them. A [`Writer`](super::log::Writer) adds to both.
    pub(super) log: Vec<FedEvent>,
    #[serde(default, skip_serializing_if = "FedForgotten::is_none")]
    pub(super) forgotten: FedForgotten,
}

impl Record {
    pub(super) fn new(run: Run) -> Self {
        Self {
            id: RunId(format!("{:032x}", fastrand::u128(..))),
            run,
            began_with: None,
            checkpoint: None,
            members: Vec::new(),
            clients: BTreeMap::new(),
            log: Vec::new(),
            forgotten: FedForgotten::default(),
        }
    }

    pub(super) fn read(store: &Store, name: &str) -> Result<Option<Self>, TaskError> {
        store.runs().get(&key(name)).map_err(TaskError::from)
    }

    pub(super) fn write(&self, store: &Store) -> Result<(), TaskError> {
        store
            .runs()
            .put(&key(&self.run.name), self)
            .map_err(TaskError::from)
    }

    /// The names of all runs.
    pub(super) fn names(store: &Store) -> Result<Vec<String>, TaskError> {
        let names = store.runs().names(RUN)?;
        Ok(names
            .into_iter()
            .map(|name| name[RUN.len()..].to_owned())
            .collect())
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.log.last(), Some(FedEvent::Finished { .. }))
    }

    pub(super) fn status(&self, after: usize) -> FedStatus {
        FedStatus {
            name: self.run.name.clone(),
            status: self.checkpoint.as_ref().map(Checkpoint::status),
            running: false,
            members: self.members.clone(),
            events: self.events(),
            forgotten: self.forgotten.clone(),
            log: self.forgotten.since(&self.log, after).to_vec(),
        }
    }

    /// How many events there were.
    pub(super) fn events(&self) -> usize {
        self.forgotten.events + self.log.len()
    }

    pub(super) fn model(&self) -> Result<FedModel, TaskError> {
        let Some(checkpoint) = &self.checkpoint else {
            return Err(TaskError::unavailable(format!(
                "`{}` has no model yet",
                self.run.name
            )));
        };
        Ok(FedModel {
            name: self.run.name.clone(),
            version: checkpoint.version(),
            layout: checkpoint.layout().clone(),
            numbers: checkpoint.model().to_vec(),
        })
    }
}

const RUN: &str = "run/";

fn key(name: &str) -> String {
    format!("{RUN}{name}")
}

/// The most characters that are kept of what a client, or its plugin, says.
const MOST_SAID: usize = 500;

impl FedEvent {
    /// The same as people read it, and as it goes to the disk with every version: what others say in it is no longer than that, and in
    /// one line that steers no terminal.
    pub(super) fn in_short(mut self) -> Self {
        match &mut self {
            Self::Trouble { what: said, .. }
            | Self::Failed { why: said, .. }
            | Self::Finished {
                failure: Some(said), ..
            } => *said = short(said),
            Self::Round { .. }
            | Self::Judged { .. }
            | Self::PassedOver { .. }
            | Self::Finished { failure: None, .. } => {}
        }
        self
    }
}

fn short(said: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = said.chars().take(MOST_SAID).map(plain).collect();
    if said.chars().nth(MOST_SAID).is_some() {
        short.push('…');
    }
    short
}

impl From<&RoundReport> for FedEvent {
    fn from(report: &RoundReport) -> Self {
        Self::Round {
            round: report.round,
            version: report.version,
            clients: report.clients.clone(),
            lost: report.lost,
            loss: report.loss,
            staleness: report.staleness,
            bytes_up: report.bytes_up,
            bytes_down: report.bytes_down,
            epsilon: report.epsilon,
            swarm: report.swarm.clone(),
            rank: report.rank,
            ms: report.time.as_millis() as u64,
        }
    }
}

/// A loss in words; nothing where the refusal before it has said so.
pub(super) fn words(loss: &Loss) -> Option<String> {
    match loss {
        Loss::Gone => Some("gone: it cannot be reached".into()),
        Loss::Late => Some("late: its time is over".into()),
        Loss::GaveUp(why) => Some(format!("gave up: {why}")),
        Loss::LeftOut(why) => Some(format!("not in the mean: {why}")),
        Loss::Refused => None,
    }
}

/// The federated runs in the store of a folder that no node holds.
///
/// # Errors
/// What the disk refuses.
pub fn stored_runs(store: &Store) -> Result<Vec<FedStatus>, TaskError> {
    let names = Record::names(store)?;
    let run = |name: &String| status_of(store, name, usize::MAX);
    names.iter().filter_map(|name| run(name).transpose()).collect()
}

/// One of them, if it is there, with its events after so many.
pub(super) fn status_of(store: &Store, name: &str, after: usize) -> Result<Option<FedStatus>, TaskError> {
    Ok(Record::read(store, name)?.map(|record| record.status(after)))
}

/// One of them, with its events after so many.
///
/// # Errors
/// `invalid` when there is none of this name; what the disk refuses.
pub fn stored_run(store: &Store, name: &str, after: usize) -> Result<FedStatus, TaskError> {
    status_of(store, name, after)?.ok_or_else(|| unknown_run(name))
}

/// The model that it has made so far.
///
/// # Errors
/// `invalid` when there is none of this name, `unavailable` when it has not begun; what the disk refuses.
pub fn stored_model(store: &Store, name: &str) -> Result<FedModel, TaskError> {
    let record = Record::read(store, name)?.ok_or_else(|| unknown_run(name))?;
    record.model()
}

/// Removes a run that nobody drives.
///
/// # Errors
/// `invalid` when there is none of this name; what the disk refuses.
pub fn remove_stored_run(store: &Store, name: &str) -> Result<(), TaskError> {
    let (runs, key) = (store.runs(), key(name));
    // The record holds a whole model, which takes a while to read.
    if runs.names(&key)?.first() != Some(&key) {
        return Err(unknown_run(name));
    }
    runs.remove(&[&key]).map_err(TaskError::from)
}

/// What is said of a run that is not here: `invalid`.
pub fn unknown_run(name: &str) -> TaskError {
    TaskError::invalid(format!("there is no federated run `{name}` here"))
        .with_field("name")
        .with_hint("`karman fed status` lists them")
}

/// What is said of a run that is over: `invalid`.
pub(super) fn ended_already(name: &str) -> TaskError {
    TaskError::invalid(format!("`{name}` has ended already"))
        .with_field("name")
        .with_hint(format!(
            "`karman fed status {name}` shows it; --again begins it anew"
        ))
}

/// Why a run is not to be stopped that nobody drives: `invalid`.
pub fn not_driven(run: &FedStatus) -> TaskError {
    let name = &run.name;
    match &run.status {
        Some(status) if status.ended => ended_already(name),
        _ => TaskError::invalid(format!("`{name}` does not run now"))
            .with_field("name")
            .with_hint("`karman fed run` with its description has it go on"),
    }
}

/// Why a run is not to be removed that is driven: `invalid`.
pub(super) fn still_driven(name: &str) -> TaskError {
    TaskError::invalid(format!("`{name}` runs now"))
        .with_field("name")
        .with_hint(format!(
            "`karman fed stop {name}` ends it with the version that it has"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_removed_by_its_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for name in ["digits", "digits-2"] {
            let mut record = super::super::testing::described("");
            record.run.name = name.into();
            record.write(&store).unwrap();
        }
        for unknown in ["digit", "digits-", ""] {
            let error = remove_stored_run(&store, unknown).unwrap_err();
            assert_eq!(error.message, unknown_run(unknown).message);
        }
        remove_stored_run(&store, "digits").unwrap();
        assert_eq!(Record::names(&store).unwrap(), ["digits-2"]);
        remove_stored_run(&store, "digits").unwrap_err();
    }

    #[test]
    fn of_what_a_client_says_a_line_is_kept() {
        let trouble = |what: String| FedEvent::Trouble {
            client: ClientId(1),
            what,
        };
        let said = |what: &str| match trouble(what.to_owned()).in_short() {
            FedEvent::Trouble { what, .. } => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(said("gave up: no data"), "gave up: no data");
        assert_eq!(said("one\ntwo\u{1b}[2J"), "one two [2J");
        let long = said(&"ü".repeat(1 << 20));
        assert_eq!(long, "ü".repeat(MOST_SAID) + "…");
    }
}
