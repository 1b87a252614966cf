//! Before a sum: who is there, as which node, and with which file of the plugin.

use super::{Summing, Taker, nobody};
use crate::drive::fed::orders::Clients;
use crate::drive::fed::sum::identity::Credential;
use crate::drive::fed::sum::message::{Answered, Step};
use crate::drive::fed::wire::{Course, NOT_ASKED};
use crate::services::blocking;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::ClientId;
use karman_types::{Digest, NodeId, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to say who it is, at most; never more than a quarter of the round.
const MEETING: Duration = Duration::from_secs(50);
/// How long one that cannot be reached is tried: it may be starting again.
const BEFORE: Duration = Duration::from_secs(30);

/// What a client shows of itself.
struct Shown {
    node: NodeId,
    credential: Credential,
    /// The file of its plugin.
    plugin: Digest,
}

impl Summing {
    /// Hears from every client which node it is, and with which file of the plugin it trains. One that is no member is left out: all
    /// others would refuse to join with it. So is one with another file than most: what it learns is something else.
    pub(super) async fn meet(&mut self) -> Result<Digest, TaskError> {
        let mut files = BTreeMap::new();
        for (client, order, shown) in self.introduced().await {
            let entered = shown.and_then(|shown| self.enter(client, &order, shown));
            match entered {
                Ok((node, plugin)) => {
                    files.insert(node, plugin);
                }
                Err(error) => self.sum.tell_lost(client, order.assignment, &error),
            }
        }
        let plugin = most_have(&files).ok_or_else(nobody)?;
        let others = files.iter().filter(|(_, file)| **file != plugin);
        for (node, file) in others {
            if let Some(taker) = self.takers.remove(node) {
                let error = TaskError::failed(format!(
                    "its `{}` is the file {}, that of most others is {}: what is learnt with both has no sum",
                    self.sum.run.clients.plugin,
                    file.short(),
                    plugin.short()
                ));
                self.sum.tell_lost(taker.client, taker.assignment, &error);
            }
        }
        Ok(plugin)
    }

    async fn introduced(&mut self) -> Vec<(ClientId, karman_fed::Order, Result<Shown, TaskError>)> {
        let orders = std::mem::take(&mut self.sum.orders);
        let left = self.ends.saturating_duration_since(Instant::now());
        let time = MEETING.min(left / 4);
        let answers: FuturesUnordered<_> = orders
            .into_iter()
            .map(|(client, order)| {
                let asked = self.ask(client, order.assignment, Step::Who, time, BEFORE);
                let who = identified(self.sum.clients.clone(), asked);
                async move { (client, order, who.await) }
            })
            .collect();
        answers.collect().await
    }

    /// One more takes part; which node it is, and its plugin.
    fn enter(
        &mut self,
        client: ClientId,
        order: &karman_fed::Order,
        shown: Shown,
    ) -> Result<(NodeId, Digest), TaskError> {
        let karman_fed::Work::Train(train) = &order.work else {
            return Err(TaskError::internal("only trainings are summed"));
        };
        let Shown {
            node,
            credential,
            plugin,
        } = shown;
        // The number of a client belongs to one node.
        if self.client_on(node) != Some(client) {
            let says = format!("it shows the key of another node, {}", node.short());
            return Err(TaskError::failed(says));
        }
        let taker = Taker {
            client,
            assignment: order.assignment,
            version: order.version,
            course: Course::from(train),
            credential,
            part: None,
        };
        self.takers.insert(node, taker);
        Ok((node, plugin))
    }
}

/// The file that most of them have; of two that as many have, always the same one.
fn most_have(files: &BTreeMap<NodeId, Digest>) -> Option<Digest> {
    let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
    for file in files.values() {
        *counts.entry(*file).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(file, _)| file)
}

/// The node that shows itself, and what it shows.
async fn identified(
    clients: Arc<dyn Clients>,
    asked: impl Future<Output = Result<Answered, TaskError>>,
) -> Result<Shown, TaskError> {
    let Answered::Who { credential, plugin } = asked.await? else {
        return Err(TaskError::failed(NOT_ASKED));
    };
    blocking(move || {
        let node = clients.identify(&credential)?;
        Ok(Shown {
            node,
            credential,
            plugin,
        })
    })
    .await
}
