//! Federated runs: this node drives its own, and has its clients carry out the orders of others.
//!
//! | file | what |
//! |---|---|
//! | `wire` | what a driver and its clients say to each other |
//! | `outside` | the same as it comes from anyone |
//! | `begin` | what a run begins with: its description checked, its coordinator made or resumed |
//! | `strategy` | by what its versions are made, where a plugin makes them too |
//! | `onnx` | the model that a run begins with, and the file that it ends as |
//! | `conductor` | a run: events into `karman-fed`'s coordinator, what it says done |
//! | `orders` | the orders of a run that are under way, and what becomes of each |
//! | `clock` | the time of a run |
//! | `in_view` | when clients are in view, by contact plans |
//! | `handle` | a run as the rest of the node sees it |
//! | `news` | what has happened in runs since somebody looked last |
//! | `known` | which clients are there, and what they have said of themselves |
//! | `members` | clients on nodes of the mesh: who there is, orders to them, orders from others |
//! | `longest` | how long a client's answer may be |
//! | `simulated` | clients that one process plays |
//! | `worker` | an order carried out by the plugin |
//! | `exercise` | a training: what it has changed is encoded, and kept to be answered again |
//! | `noise` | noise that a client adds to its update, and the account of what it has given away |
//! | `adapters` | the same where the plugin trains low-rank adapters in place of the model |
//! | `joint` | what the driver of the two kinds of round below has, and how it asks a client |
//! | `sum/` | rounds whose updates nobody sees one by one |
//! | `spread/` | rounds whose updates go from client to client |
//! | `table` | the rounds made together that the clients of a node are in, and how many they may be |
//! | `memory`, `given` | what a client keeps of a run on its node; what it gave to sums and other clients, and may still give |
//! | `record`, `log` | a run on the disk, and as people see it; its events, of which the last ones are kept |
//!
//! A run is on the disk before its first order goes out, and whenever it has made a version. A driver that was killed sends the
//! orders of that moment again, under the same numbers; a client that has carried one out answers with what came of it then, so
//! that the run comes to the same versions, bit by bit.

mod adapters;
mod begin;
mod clock;
mod conductor;
mod exercise;
mod given;
mod handle;
mod in_view;
mod joint;
mod known;
mod log;
mod longest;
mod members;
mod memory;
mod news;
mod noise;
mod onnx;
mod orders;
mod outside;
mod record;
mod simulated;
mod spread;
mod strategy;
mod sum;
mod table;
#[cfg(test)]
mod testing;
mod wire;
mod worker;

pub use begin::check_run;
#[cfg(test)]
mod tests;

pub use log::FedForgotten;
pub(crate) use members::serve;
pub use news::{FedNews, FedSeen};
pub use onnx::stored_onnx;
pub use outside::{read_fed_answer, read_fed_order};
pub use record::{
    FedEvent, FedModel, FedStatus, not_driven, remove_stored_run, stored_model, stored_run, stored_runs,
    unknown_run,
};
pub use simulated::simulate;

use super::swarm::Swarms;
use crate::node::{Inner, Node};
use crate::services::blocking;
use begin::Start;
use conductor::Conductor;
use handle::Handle;
use karman_engine::Plugin;
use karman_fed::{Checkpoint, Event, Run};
use karman_types::TaskError;
use known::Before;
use members::Members;
use memory::Memory;
use news::AtRest;
use onnx::{First, first_of};
use parking_lot::Mutex;
use record::{Record, ended_already, still_driven};
use simulated::same;
use spread::Seats;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use sum::Sums;
use tokio::sync::mpsc::unbounded_channel;

/// The runs that this node drives, and what it keeps as a client.
#[derive(Default)]
pub(crate) struct Federated {
    runs: Mutex<BTreeMap<String, Handle>>,
    at_rest: AtRest,
    memory: OnceLock<Arc<Memory>>,
    sums: Arc<Sums>,
    seats: Arc<Seats>,
    swarms: Swarms,
}

impl Federated {
    /// The rounds in which it takes part whose updates go from node to node.
    pub(crate) const fn swarms(&self) -> &Swarms {
        &self.swarms
    }

    fn memory(&self, node: &Node) -> Result<Arc<Memory>, TaskError> {
        if let Some(memory) = self.memory.get() {
            return Ok(memory.clone());
        }
        let store = node.runtime().home().store()?;
        let most = node.runtime().config().federated.kept;
        let memory = || Arc::new(Memory::on_disk(store, most));
        Ok(self.memory.get_or_init(memory).clone())
    }
}

impl Node {
    /// Begins a federated run on nodes of the mesh, or has one go on that has not ended. One that has ended begins anew where
    /// `again` says so.
    ///
    /// # Errors
    /// A description that cannot be followed; a run of this name that has ended, or has begun otherwise; what the disk refuses.
    pub async fn start_fed(&self, run: Run, again: bool) -> Result<FedStatus, TaskError> {
        check_run(&run)?;
        if run.clients.simulated > 0 {
            let says = "simulated clients are played by `karman fed run` itself, not by a node";
            return Err(TaskError::invalid(says).with_field("clients.simulated"));
        }
        super::deploy::check_selector(&run.clients.on)?;
        if run.swarm.is_some() {
            super::mesh_of(self)?;
        }
        let node = self.clone();
        // Models have many megabytes, and the disk takes its time.
        blocking(move || node.begin_fed(run, again)).await
    }

    /// Blocks.
    fn begin_fed(&self, run: Run, again: bool) -> Result<FedStatus, TaskError> {
        let store = self.runtime().home().store()?;
        // Nobody else waits for this; whether it is needed shows then.
        let first = first_of(&store, &run, self.runtime().models().limits());
        let mut runs = self.federated().runs.lock();
        let driven = runs.get(&run.name).filter(|handle| handle.is_running());
        let mut record = match (Record::read(&store, &run.name)?, driven) {
            (Some(record), Some(handle)) => {
                same(record, &run)?;
                return Ok(handle.status(usize::MAX));
            }
            (Some(record), None) if !record.has_ended() && !again => same(record, &run)?,
            (Some(record), None) if !again => return Err(ended_already(&record.run.name)),
            _ => Record::new(run),
        };
        // A model that is not there is told at once, not when the run goes on.
        let first = match record.checkpoint {
            Some(_) => None,
            None => first?,
        };
        record.begins_with(first.as_ref())?;
        let brings = self.strategy_of(&record.run)?;
        // On the disk before anybody hears of it: what was begun goes on at the next start.
        record.write(&store)?;
        let handle = self.drive(record, first, brings)?;
        let status = handle.status(usize::MAX);
        self.federated().at_rest.lock().remove(&status.name);
        runs.insert(status.name.clone(), handle);
        Ok(status)
    }

    /// The plugin that a description names as its strategy, if it does. It is the same one until the run is driven anew.
    fn strategy_of(&self, run: &Run) -> Result<Option<Arc<Plugin>>, TaskError> {
        let Some(named) = run.strategy.plugin() else {
            return Ok(None);
        };
        let slot = self.plugins().named(&named.plugin);
        let plugin = slot.map_err(|_| strategy::missing(&named.plugin))?.current();
        strategy::check(&plugin)?;
        Ok(Some(plugin))
    }

    fn drive(
        &self,
        record: Record,
        first: Option<First>,
        brings: Option<Arc<Plugin>>,
    ) -> Result<Handle, TaskError> {
        let name = record.run.name.clone();
        let checkpoint = record.checkpoint.iter();
        let before = Before {
            nodes: record.members.clone(),
            present: checkpoint.clone().flat_map(Checkpoint::present).collect(),
            planned: checkpoint.flat_map(Checkpoint::planned).collect(),
        };
        let members = Members::new(self, &record.run, before);
        let members = Arc::new(members);
        let channel = unbounded_channel();
        let (outbox, id, run) = (channel.0.clone(), record.id.clone(), record.run.clone());
        let store = self.runtime().home().store()?;
        let start = Start {
            first: first.map(|first| first.frames),
            brings,
        };
        let (conductor, handle) = Conductor::new(record, store, members.clone(), channel, start)?;
        let announcing = members::announce(members, id, run, conductor.clock(), outbox);
        tokio::spawn(async move {
            let announcing = tokio::spawn(announcing);
            if let Err(error) = conductor.drive().await {
                tracing::warn!(run = name, %error, "a federated run stopped");
            }
            announcing.abort();
        });
        Ok(handle)
    }

    /// Every federated run of this node, without its events.
    ///
    /// # Errors
    /// What the disk refuses.
    pub async fn fed_runs(&self) -> Result<Vec<FedStatus>, TaskError> {
        let node = self.clone();
        blocking(move || {
            let store = node.runtime().home().store()?;
            // One that is removed meanwhile is left out.
            let run = |name: &String| {
                node.told(&store, name, |run, _| run.since(usize::MAX))
                    .transpose()
            };
            Record::names(&store)?.iter().filter_map(run).collect()
        })
        .await
    }

    /// One of them, with its events after so many.
    ///
    /// # Errors
    /// `invalid` when there is none of this name; what the disk refuses.
    pub async fn fed_run(&self, name: &str, after: usize) -> Result<FedStatus, TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let store = node.runtime().home().store()?;
            let run = node.told(&store, &name, |run, _| run.since(after))?;
            run.ok_or_else(|| unknown_run(&name))
        })
        .await
    }

    /// [`Node::fed_run`], as soon as there are such events, the run is over, or so much time has passed.
    ///
    /// # Errors
    /// Those of [`Node::fed_run`].
    pub async fn fed_run_within(
        &self,
        name: &str,
        after: usize,
        wait: Duration,
    ) -> Result<FedStatus, TaskError> {
        let driven = self.federated().runs.lock().get(name).cloned();
        if let Some(mut driven) = driven {
            // Whether more have come or the time is over, what there is now is told.
            let _ = tokio::time::timeout(wait, driven.more_than(after)).await;
        }
        self.fed_run(name, after).await
    }

    /// The model that a run has made so far: that of its last checkpoint.
    ///
    /// # Errors
    /// `invalid` when there is no such run, `unavailable` when it has not begun; what the disk refuses.
    pub async fn fed_model(&self, name: &str) -> Result<FedModel, TaskError> {
        let (store, name) = (self.runtime().home().store()?, name.to_owned());
        blocking(move || stored_model(&store, &name)).await
    }

    /// The same as an ONNX file: the model that the run began with, with what was learnt.
    ///
    /// # Errors
    /// Those of [`Node::fed_model`]; `invalid` when the run did not begin with a model.
    pub async fn fed_onnx(&self, name: &str) -> Result<Vec<u8>, TaskError> {
        let (store, name) = (self.runtime().home().store()?, name.to_owned());
        let limits = self.runtime().models().limits().clone();
        blocking(move || stored_onnx(&store, &name, &limits)).await
    }

    /// Ends a run with the version that it has.
    ///
    /// # Errors
    /// `invalid` when no run of this name is driven; what the disk refuses.
    pub async fn stop_fed(&self, name: &str) -> Result<(), TaskError> {
        let driven = self.federated().runs.lock().get(name).cloned();
        match driven.filter(Handle::is_running) {
            Some(handle) => handle.tell(Event::Stop),
            None => return Err(not_driven(&self.fed_run(name, usize::MAX).await?)),
        }
        Ok(())
    }
}

impl Node {
    /// Removes a run that is not driven now: its model, its events, and what clients that were played by a process have kept. What
    /// clients on nodes keep of it goes there as that of any other run.
    ///
    /// # Errors
    /// `invalid` when it runs, or there is none of this name; what the disk refuses.
    pub async fn remove_fed(&self, name: &str) -> Result<(), TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let store = node.runtime().home().store()?;
            // Held to the end: it may be begun anew at this very moment.
            let mut runs = node.federated().runs.lock();
            if runs.get(&name).is_some_and(Handle::is_running) {
                return Err(still_driven(&name));
            }
            remove_stored_run(&store, &name)?;
            runs.remove(&name);
            node.federated().at_rest.lock().remove(&name);
            Ok(())
        })
        .await
    }
}

/// After a start: has every run go on that has not ended. One that cannot does not keep the others from it.
pub(crate) fn go_on(node: &Weak<Inner>) {
    let Some(node) = Node::upgrade(node) else { return };
    let names = node
        .runtime()
        .home()
        .store()
        .and_then(|store| Record::names(&store));
    match names {
        Ok(names) => names.iter().for_each(|name| {
            if let Err(error) = node.go_on_with(name) {
                tracing::warn!(run = name, %error, "a federated run does not go on");
            }
        }),
        Err(error) => tracing::warn!(%error, "federated runs do not go on"),
    }
}

impl Node {
    fn go_on_with(&self, name: &str) -> Result<(), TaskError> {
        let store = self.runtime().home().store()?;
        // Its operator may have it go on at this very moment, too.
        let mut runs = self.federated().runs.lock();
        if runs.get(name).is_some_and(Handle::is_running) {
            return Ok(());
        }
        // Simulated clients were played by a command, which goes on when it is given again.
        let goes_on = |record: &Record| !record.has_ended() && record.run.clients.simulated == 0;
        if let Some(mut record) = Record::read(&store, name)?.filter(goes_on) {
            let first = match record.checkpoint {
                Some(_) => None,
                None => first_of(&store, &record.run, self.runtime().models().limits())?,
            };
            record.begins_with(first.as_ref())?;
            let brings = self.strategy_of(&record.run)?;
            let handle = self.drive(record, first, brings)?;
            runs.insert(name.to_owned(), handle);
        }
        Ok(())
    }
}
