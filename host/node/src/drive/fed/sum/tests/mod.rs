//! Sums between clients that speak the protocol, without nodes and guests around them.
//!
//! | file | what |
//! |---|---|
//! | `runs` | whole runs: the models that they come to, and clients that leave or lie |
//! | `table` | three clients at whom a driver may speak as it likes |
//! | `attacks` | what a driver that lies gets |

mod attacks;
mod runs;
mod table;

use super::client::{Taker, Trained, carry_out};
use super::identity::{Credential, Identity};
use super::message::{Answered, Common, Lesson, Step};
use super::sums::Sums;
use crate::drive::fed::memory::Memory;
use crate::drive::fed::testing::{PLUGIN, trained};
use crate::drive::fed::wire::{self, Course, Order, RunId, Work};
use ed25519_compact::{KeyPair, Seed};
use futures::FutureExt;
use karman_fed::ClientId;
use karman_types::{Digest, NodeId, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The file of it that most of them have.
fn file() -> Digest {
    Digest::of(PLUGIN.as_bytes())
}

/// A client as its node keeps it.
struct Person {
    me: Arc<Me>,
    sums: Arc<Sums>,
    memory: Arc<Memory>,
    /// What its trainings come to, where that is something else than usual.
    trains: fn(&mut Trained),
    /// The file of its plugin.
    plugin: Digest,
}

/// Who it is.
struct Me {
    pair: KeyPair,
    membership: &'static [u8],
}

impl Person {
    fn new(number: u64) -> Self {
        Self::shows(number, b"member")
    }

    /// One that shows this for a membership.
    fn shows(number: u64, membership: &'static [u8]) -> Self {
        let pair = KeyPair::from_seed(Seed::new([number as u8 + 1; 32]));
        Self {
            me: Arc::new(Me { pair, membership }),
            sums: Arc::default(),
            memory: Arc::new(Memory::in_process(BTreeMap::new())),
            trains: |_| {},
            plugin: file(),
        }
    }

    fn node(&self) -> NodeId {
        NodeId::of_key(&*self.me.pair.pk)
    }

    async fn step(&self, order: &Order, step: Step) -> Result<Answered, TaskError> {
        let Work::Sum { assignment, .. } = order.work else {
            panic!("{order:?}")
        };
        let (client, change) = (order.client, self.trains);
        let train = |lesson: Lesson| {
            async move {
                let model = wire::arrays(&lesson.model)?;
                let (numbers, samples) = trained(client, &lesson.course, &model[0].values);
                let mut trained = Trained {
                    numbers,
                    samples,
                    steps: 3,
                    loss: 0.5,
                };
                change(&mut trained);
                Ok(trained)
            }
            .boxed()
        };
        let common = Common::of((PLUGIN, self.plugin), order);
        carry_out(&self.taker(order), common, assignment, step, train).await
    }

    fn taker(&self, order: &Order) -> Taker {
        Taker {
            sums: self.sums.clone(),
            memory: self.memory.clone(),
            who: self.me.clone(),
            key: Memory::key(NodeId::of_key(b"driver"), order),
        }
    }
}

impl Identity for Me {
    fn credential(&self, once: [u8; 32]) -> Result<Credential, TaskError> {
        Ok(Credential {
            key: *self.pair.pk,
            membership: self.membership.to_vec(),
            once,
        })
    }

    fn pair(&self) -> Result<KeyPair, TaskError> {
        Ok(self.pair.clone())
    }

    fn check(&self, credential: &Credential) -> Result<NodeId, TaskError> {
        member(credential)
    }
}

/// Whose this is, if it is a member.
fn member(credential: &Credential) -> Result<NodeId, TaskError> {
    match credential.membership == b"member" {
        true => Ok(NodeId::of_key(&credential.key)),
        false => Err(TaskError::denied("no member").with_field("invited")),
    }
}
