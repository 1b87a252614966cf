//! Clients that one process plays: the same plugin, each with its share of the data.

use super::begin::{Start, check_run};
use super::conductor::Conductor;
use super::memory::Memory;
use super::onnx::first_of;
use super::orders::{self, Clients};
use super::record::{FedEvent, FedStatus, Record, ended_already};
use super::strategy;
use super::wire::{Answer, Order, Work};
use super::worker::carry_out;
use crate::config::FederatedConfig;
use crate::runtime::Runtime;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use karman_engine::Plugin;
use karman_fed::{ClientId, Run};
use karman_types::TaskError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;

struct Simulated {
    runtime: Runtime,
    plugin: Arc<Plugin>,
    memory: Arc<Memory>,
    /// As many train at once as there are cores; the others wait without memory of a guest.
    places: Arc<Semaphore>,
}

impl Clients for Simulated {
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let (plugin, memory, places) = (self.plugin.clone(), self.memory.clone(), self.places.clone());
        let context = self.runtime.context(time);
        let driver = self.runtime.id();
        let own = FederatedConfig::default();
        async move {
            let _place = places.acquire_owned().await;
            // What its operator asks for is about what leaves this node.
            carry_out(&plugin, (&memory, &own), driver, order, context).await
        }
        .boxed()
    }

    fn memory(&self) -> Option<&Memory> {
        Some(&self.memory)
    }
}

/// Runs a federated run whose clients are all played by this process, to its end. One that has not ended goes on from where it
/// stands; one that has ended begins anew where `again` says so. `told` hears of each event.
///
/// The first of the plugins trains; the second is the strategy, where the description names one.
///
/// # Errors
/// A description that cannot be followed; what a plugin says; what the disk refuses.
pub async fn simulate(
    runtime: &Runtime,
    (plugin, brings): (Arc<Plugin>, Option<Arc<Plugin>>),
    mut run: Run,
    again: bool,
    mut told: impl FnMut(&FedEvent, &FedStatus),
) -> Result<FedStatus, TaskError> {
    check_run(&run)?;
    brings.as_deref().map_or(Ok(()), strategy::check)?;
    let count = run.clients.simulated;
    run.start_with = run.start_with.max(count as usize);
    let store = runtime.home().store()?;
    // No node runs there that could be asked how far it is.
    store.held_by(&format!("karman fed run {}", run.name))?;
    let mut record = match Record::read(&store, &run.name)? {
        Some(record) if !record.has_ended() && !again => same(record, &run)?,
        Some(record) if !again => return Err(ended_already(&record.run.name)),
        _ => Record::new(run),
    };
    let first = match record.checkpoint {
        Some(_) => None,
        None => first_of(&store, &record.run, runtime.models().limits())?,
    };
    record.begins_with(first.as_ref())?;
    let clients = Arc::new(Simulated {
        memory: Arc::new(Memory::in_process(record.clients.clone())),
        places: Arc::new(Semaphore::new(cores())),
        runtime: runtime.clone(),
        plugin,
    });
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let known = introductions(&clients, &record, count).await?;
    known.into_iter().for_each(|event| drop(outbox.send(event)));
    let mut heard = record.events();
    let start = Start {
        first: first.map(|first| first.frames),
        brings,
    };
    let (conductor, mut handle) = Conductor::new(record, store, clients, channel, start)?;
    let driven = tokio::spawn(conductor.drive());
    loop {
        handle.more_than(heard).await;
        let status = handle.status(heard);
        status.log.iter().for_each(|event| told(event, &status));
        heard = status.events;
        if !handle.is_running() && heard >= handle.status(0).events {
            break;
        }
    }
    driven
        .await
        .unwrap_or_else(|error| Err(TaskError::internal(error.to_string())))?;
    Ok(handle.status(0))
}

/// What clients say of their data, in their order; nothing where the checkpoint knows it.
async fn introductions(
    clients: &Arc<Simulated>,
    record: &Record,
    count: u32,
) -> Result<Vec<karman_fed::Event>, TaskError> {
    if record.checkpoint.is_some() {
        return Ok(Vec::new());
    }
    let asked = (0..count).map(|number| {
        let client = ClientId(number.into());
        let order = Order::new(&record.id, &record.run, client, Work::Describe);
        let answer = clients.ask(order, None);
        async move { Ok::<_, TaskError>(orders::here(client, &answer.await?)) }
    });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}

/// A run goes on by the description that it began with.
pub(super) fn same(record: Record, run: &Run) -> Result<Record, TaskError> {
    if record.run == *run {
        return Ok(record);
    }
    Err(
        TaskError::invalid(format!("`{}` has begun with another description", run.name))
            .with_field("name")
            .with_hint("give it another name, or begin it anew with --again"),
    )
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
