//! What comes of a round for its driver: what clients have come to, and the mean that they agree on.

use super::driver::{AFTERWARDS, Spreading};
use super::message::{Answered, Came, Step};
use crate::drive::fed::wire::NOT_ASKED;
use crate::drive::swarm::SwarmLed;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::swarm::{self, Client};
use karman_fed::{Absent, Apart, ClientId, Part, Reached, SwarmReport, Swarmed};
use karman_types::{Digest, TaskError};
use std::collections::{BTreeMap, BTreeSet};

impl Spreading {
    /// Whether a client was no longer in the round when that ended.
    pub(super) fn has_left(&self, client: &ClientId, led: &SwarmLed) -> bool {
        let members = self.spread.clients.members();
        let node = members.get(client.0 as usize);
        node.is_none_or(|node| led.gone.contains(node))
    }

    /// What those have come to that stayed to the end.
    pub(super) async fn outcomes(&self, name: &str, led: &SwarmLed) -> BTreeMap<ClientId, Came> {
        // One that never says what it has come to takes no more than half of the time that the mean is to come in.
        let time = self.left() / 2;
        let mut answers: FuturesUnordered<_> = self
            .takers
            .values()
            .filter(|taker| !self.has_left(&taker.part.client, led))
            .map(|taker| {
                let Part {
                    client, assignment, ..
                } = taker.part;
                let name = name.to_owned();
                let asked = self.ask(client, assignment, Step::Outcome { name }, time, AFTERWARDS);
                async move { (client, assignment, asked.await) }
            })
            .collect();
        let mut all = BTreeMap::new();
        while let Some((client, assignment, answer)) = answers.next().await {
            match answer {
                Ok(Answered::Came(came)) => drop(all.insert(client, *came)),
                Ok(_) => self
                    .spread
                    .tell_lost(client, assignment, &TaskError::failed(NOT_ASKED)),
                Err(error) => self.spread.tell_lost(client, assignment, &error),
            }
        }
        all
    }

    /// The clients that gave others what is no piece of the round, by what all say of each other.
    pub(super) fn audit(&self, led: &SwarmLed, came: &BTreeMap<ClientId, Came>) -> Vec<ClientId> {
        let members = self.spread.clients.members();
        let number = |client: &ClientId| -> Option<Client> {
            let node = members.get(client.0 as usize)?;
            let place = led.clients.iter().position(|other| other == node)?;
            Client::try_from(place).ok()
        };
        let said: BTreeMap<Client, BTreeSet<Client>> = came
            .iter()
            .filter_map(|(client, came)| Some((number(client)?, came.altered.iter().copied().collect())))
            .collect();
        let found_out = swarm::audit(&led.neighbours, &said);
        let is_one = |client: &&ClientId| number(client).is_some_and(|number| found_out.contains(&number));
        self.takers.keys().filter(is_one).copied().collect()
    }

    /// The mean that clients agree on, from one of them; and how many bytes came for it.
    pub(super) async fn mean(
        &self,
        name: &str,
        (reached, who): &(Reached, Vec<ClientId>),
    ) -> Result<(Vec<f32>, u64), String> {
        let mut bytes = 0;
        let mut untried = who.clone();
        // It is as long as the model: not always from the same one.
        fastrand::shuffle(&mut untried);
        for client in untried {
            let Some(taker) = self.takers.get(&client) else {
                continue;
            };
            let name = name.to_owned();
            let numbers = self.spread.length;
            let step = Step::Mean { name, numbers };
            // Nor one that never sends it all of the rest: another may.
            let time = self.left() / 3 * 2;
            let asked = self.ask(client, taker.part.assignment, step, time, AFTERWARDS);
            match asked.await {
                Ok(Answered::Mean(mean)) => {
                    bytes += mean.len() as u64;
                    let (numbers, rest) = mean.as_chunks::<4>();
                    let whole = rest.is_empty() && numbers.len() == self.spread.length;
                    if whole && Digest::of(&mean) == reached.mean {
                        let numbers = numbers.iter().map(|number| f32::from_le_bytes(*number));
                        return Ok((numbers.collect(), bytes));
                    }
                    tracing::warn!(%client, "a client sends another mean than it says it has");
                }
                Ok(_) => tracing::warn!(%client, "{NOT_ASKED}"),
                Err(error) => tracing::warn!(%client, %error, "a client does not send its mean"),
            }
        }
        Err("none of the clients that have come to it sends it".into())
    }

    /// What the run is told.
    pub(super) fn swarmed(
        &self,
        led: &SwarmLed,
        came: &BTreeMap<ClientId, Came>,
        (reached, mut who): (Reached, Vec<ClientId>),
        (mean, bytes): (Vec<f32>, u64),
    ) -> Swarmed {
        who.sort_unstable();
        let left_out: &[(Digest, String)] = match who.first().and_then(|client| came.get(client)) {
            Some(came) => &came.left_out,
            None => &[],
        };
        let members = self.spread.clients.members();
        let (mut parts, mut absent) = (Vec::new(), Vec::new());
        for taker in self.takers.values() {
            let node = members.get(taker.part.client.0 as usize);
            let place = led.clients.iter().position(|client| Some(client) == node);
            let update = place.and_then(|place| led.updates.get(place)).copied();
            match update {
                Some((pseudonym, weight)) if reached.updates.contains(&pseudonym) => {
                    parts.push((taker.part, u64::from(weight)));
                }
                _ => {
                    let is_it = |(other, _): &&(Digest, String)| update.is_some_and(|(one, _)| one == *other);
                    let why = left_out.iter().find(is_it);
                    absent.push(Absent {
                        assignment: taker.part.assignment,
                        why: why.map_or_else(
                            || "its update has not got round".into(),
                            |(_, why)| format!("the others have left it out: {why}"),
                        ),
                    });
                }
            }
        }
        let apart = self.apart(led, came, (&reached, &who[..]));
        let (warm_up, exchange) = led.took;
        Swarmed {
            parts,
            absent,
            mean,
            bytes,
            report: SwarmReport {
                complete: who,
                apart,
                false_pieces: self.found_out.clone(),
                covered: led.covered,
                unprotected: came.values().map(|came| u64::from(came.unprotected)).sum(),
                warm_up_ms: warm_up.as_millis() as u64,
                ms: (warm_up + exchange).as_millis() as u64,
            },
        }
    }

    /// Those that were in the round and have not come to its mean, as `who` has: what is not told of here, nobody would ask after.
    fn apart(
        &self,
        led: &SwarmLed,
        came: &BTreeMap<ClientId, Came>,
        (reached, who): (&Reached, &[ClientId]),
    ) -> Vec<Apart> {
        let members = self.spread.clients.members();
        let said = |client: &ClientId| led.why.get(members.get(client.0 as usize)?).cloned();
        let why = |client: &ClientId| -> String {
            match came.get(client).map(|came| &came.reached.updates) {
                Some(updates) if *updates == reached.updates => {
                    "it says that it has another mean of the same updates".into()
                }
                Some(updates) => {
                    let (has, others) = (updates.len(), reached.updates.len());
                    format!("it has a mean of {has} updates, and the others one of {others}")
                }
                None if self.has_left(client, led) => {
                    said(client).unwrap_or_else(|| "it has left the round".into())
                }
                None => "it has not said what it has come to".into(),
            }
        };
        let others = self.takers.keys().filter(|client| !who.contains(client));
        others
            .map(|client| Apart {
                client: *client,
                why: why(client),
            })
            .collect()
    }
}
