//! The client's side.

use super::message::{Answered, Came, Joining, Lesson, Step};
use super::seats::{Seats, Takes};
use crate::config::FederatedConfig;
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::wire::Course;
use crate::drive::mesh_of;
use crate::drive::swarm::{SwarmEntry, SwarmOutcome};
use crate::node::Node;
use crate::services::blocking;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::{AssignmentId, Reached, Update};
use karman_tensor::encode::{Encoded, Encoding};
use karman_types::{Digest, TaskError};
use std::sync::Arc;
use std::time::Duration;

/// The least protection that a node brings an update into a round with: a description's least cover gives it, and a driver that has more of it
/// seen is refused.
const PROTECTION: f64 = 0.05;
/// The updates that a mean is of which leaves the node: that of one is the update.
const FEWEST: usize = 2;
/// The longest that a driver may have a client wait for the outcome of a round.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A node, as far as such rounds need one.
pub(in crate::drive::fed) trait Swarming: Send + Sync {
    /// Takes part in a round. It waits for that once this was polled, and leaves where it is dropped.
    fn join(&self, entry: SwarmEntry) -> BoxFuture<'static, Result<SwarmOutcome, TaskError>>;
}

impl Swarming for Node {
    fn join(&self, entry: SwarmEntry) -> BoxFuture<'static, Result<SwarmOutcome, TaskError>> {
        let mesh = mesh_of(self).map(|_| ());
        let folder = self.runtime().home().folder().join("swarm");
        // Not the node: a round that goes on is no reason to keep it.
        let swarms = self.federated().swarms().clone();
        async move {
            mesh?;
            swarms.join(entry, &folder).await
        }
        .boxed()
    }
}

/// A client that takes part in such rounds: what it is, and what it keeps.
#[derive(Clone)]
pub(in crate::drive::fed) struct Sharer {
    pub(in crate::drive::fed) swarm: Arc<dyn Swarming>,
    pub(in crate::drive::fed) seats: Arc<Seats>,
    /// What it gives to such rounds.
    pub(in crate::drive::fed) limits: FederatedConfig,
    pub(in crate::drive::fed) memory: Arc<Memory>,
    pub(in crate::drive::fed) key: Key,
}

/// Does what a driver asks of a client for the round of an order. `train` is the plugin's part: the update, which stays here.
pub(in crate::drive::fed) async fn carry_out<'t>(
    sharer: &Sharer,
    assignment: AssignmentId,
    step: Step,
    train: impl FnOnce(Lesson) -> BoxFuture<'t, Result<Box<Update>, TaskError>>,
) -> Result<Answered, TaskError> {
    match step {
        Step::Train(lesson) => {
            check(&lesson.course)?;
            let _one_at_a_time = sharer.memory.turn(&sharer.key).await;
            let update = train(lesson).await?;
            Ok(Answered::Trained {
                samples: update.samples,
                steps: update.steps,
                loss: update.loss,
            })
        }
        Step::Join(joining) => {
            let _one_at_a_time = sharer.memory.turn(&sharer.key).await;
            sharer.join(assignment, joining).await
        }
        Step::Outcome { name } => {
            let outcome = sharer.seats.outcome(&sharer.key, &name).await?;
            blocking(move || Ok(Answered::Came(Box::new(came(&outcome))))).await
        }
        Step::Mean { name, .. } => {
            let outcome = sharer.seats.outcome(&sharer.key, &name).await?;
            Ok(Answered::Mean(mean(&outcome)?))
        }
    }
}

/// All clients add up the same numbers: an update that was encoded to fewer bytes would be another one.
fn check(course: &Course) -> Result<(), TaskError> {
    let refused = |field: &str, says: &str| Err(TaskError::invalid(says).with_field(field));
    if course.rows != 1 {
        return refused(
            "course.rows",
            "an update that goes from client to client has one row",
        );
    }
    if course.encoding != Encoding::F32 || course.pack {
        let says = "an update that goes from client to client is neither encoded nor packed";
        return refused("course.encoding", says);
    }
    Ok(())
}

/// The mean as it goes to the driver. One that ends a round before others' updates are here would get this client's own.
fn mean(outcome: &SwarmOutcome) -> Result<Bytes, TaskError> {
    let updates = outcome.rebuilt.len();
    if updates < FEWEST {
        let says = format!("the mean here is of {updates} updates; it is given away from {FEWEST} on");
        return Err(TaskError::denied(says).with_field("name"));
    }
    Ok(Bytes::copy_from_slice(bytemuck::cast_slice(&outcome.mean)))
}

fn came(outcome: &SwarmOutcome) -> Came {
    Came {
        reached: Reached {
            mean: Digest::of(bytemuck::cast_slice(&outcome.mean)),
            updates: outcome.rebuilt.clone(),
        },
        left_out: outcome.left_out.clone(),
        unprotected: outcome.unprotected,
        altered: outcome.altered.clone(),
    }
}

impl Sharer {
    async fn join(&self, assignment: AssignmentId, joining: Joining) -> Result<Answered, TaskError> {
        let name = joining.name.clone();
        // Asked again, because the answer was lost on its way.
        if !self.seats.is_in(&self.key, &name) {
            let sharer = self.clone();
            let entry = blocking(move || sharer.entry(assignment, joining)).await?;
            let takes = (Takes::from(&entry), &self.limits);
            self.seats.take(&self.key, name, takes, self.swarm.join(entry))?;
        }
        Ok(Answered::Waits)
    }

    /// What this client brings into a round. That it does is put down before anybody gets a piece of it.
    fn entry(&self, assignment: AssignmentId, joining: Joining) -> Result<SwarmEntry, TaskError> {
        let layout = joining.layout;
        let room = u64::from(layout.chunk) * u64::from(layout.chunks);
        let (order, answered) = (
            (assignment, joining.version),
            self.memory.get(&self.key)?.answered,
        );
        let update = answered.filter(|(of, _)| *of == order).map(|(_, update)| update);
        let untrained = || TaskError::failed("this client has not trained for that order");
        let update = update.ok_or_else(untrained)?;
        let numbers = numbers(&update)?;
        let most = joining.rule.magnitude;
        let within = |number: &f32| number.is_finite() && number.abs() <= most;
        if let Some(number) = numbers.iter().find(|number| !within(number)) {
            let says = format!("the training changed a number by {number}: the limit `magnitude` is {most}");
            return Err(TaskError::failed(says).with_field("model"));
        }
        let entry = SwarmEntry {
            name: joining.name,
            lead: self.key.driver(),
            update: numbers,
            weight: joining.weights.in_swarm(update.samples),
            rule: Some(joining.rule),
            link: joining.link,
            patience: Duration::from_millis(joining.within_ms).min(LONGEST),
            neglect: self.limits.neglect,
            protection: PROTECTION,
            // As much as was said to be needed, and no more.
            disk: room.saturating_mul(joining.clients.into()),
        };
        self.seats
            .check_room(&self.key, Takes::from(&entry), &self.limits)?;
        self.memory.spread(&self.key, assignment)?;
        Ok(entry)
    }
}

/// The numbers of an update, all arrays in one row.
fn numbers(update: &Update) -> Result<Vec<f32>, TaskError> {
    let mut numbers = Vec::new();
    for frame in &update.frames {
        let values = Encoded::from_bytes(frame).and_then(|encoded| encoded.decode());
        numbers.extend(values.map_err(|error| TaskError::internal(error.to_string()))?);
    }
    Ok(numbers)
}
