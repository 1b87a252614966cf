//! The client's side. What it needs for a sum is never written down: one that is started again has dropped out of it, and cannot
//! be made to reveal anything.

use super::identity::{Credential, Identity};
use super::message::{Answered, Lesson, Step};
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::wire;
use crate::services::blocking;
use futures::future::BoxFuture;
use karman_fed::AssignmentId;
use karman_fed::secure::{self, Client, Member, Refusal, Session, Settings, ToClient};
use karman_tensor::arithmetic::{FixedSum, Term};
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// The sums that a node takes part in at once; which was joined first is left first.
const MOST_SUMS: usize = 64;

/// The sums that the clients of a node take part in.
#[derive(Default)]
pub(in crate::drive::fed) struct Sums(Mutex<Joins>);

#[derive(Default)]
struct Joins {
    all: HashMap<Key, (u64, Arc<tokio::sync::Mutex<Joined>>)>,
    count: u64,
}

struct Joined {
    assignment: AssignmentId,
    /// Nothing while it is busy masking.
    client: Option<Client>,
    /// What was asked last, and answered: asked again, because the answer was lost on its way, it is answered again.
    last: Option<(Digest, Answered)>,
}

/// What a training has come to.
pub(in crate::drive::fed) struct Trained {
    /// What it has changed, all arrays in one row.
    pub(in crate::drive::fed) numbers: Vec<f32>,
    pub(in crate::drive::fed) samples: u64,
    pub(in crate::drive::fed) steps: u32,
    pub(in crate::drive::fed) loss: f32,
}

/// A client that takes part in a sum: what it is, and what it keeps.
pub(in crate::drive::fed) struct Taker<'a> {
    pub(in crate::drive::fed) sums: &'a Sums,
    pub(in crate::drive::fed) memory: &'a Memory,
    pub(in crate::drive::fed) who: &'a dyn Identity,
    pub(in crate::drive::fed) key: &'a Key,
}

/// Does what a driver asks of a client for the sum of an order. `train` is the plugin's part.
pub(in crate::drive::fed) async fn carry_out<'t>(
    taker: Taker<'_>,
    assignment: AssignmentId,
    step: Step,
    train: impl FnOnce(Lesson) -> BoxFuture<'t, Result<Trained, TaskError>>,
) -> Result<Answered, TaskError> {
    match step {
        Step::Who => Ok(Answered::Who(taker.who.credential()?)),
        Step::Join { settings, invited } => taker.join(assignment, settings, &invited),
        Step::Said(said) => {
            let joined = taker.sums.joined(taker.key, assignment)?;
            let mut joined = joined.lock().await;
            joined.once(&said, |client| {
                let none =
                    || TaskError::invalid("the neighbours' shares come with the training").with_field("step");
                client
                    .handle(said.clone())
                    .map_err(refused)?
                    .map(Answered::Says)
                    .ok_or_else(none)
            })
        }
        Step::Train { said, lesson } => {
            let joined = taker.sums.joined(taker.key, assignment)?;
            let mut joined = joined.lock().await;
            taker.train(&mut joined, said, *lesson, train).await
        }
    }
}

impl Taker<'_> {
    fn join(
        &self,
        assignment: AssignmentId,
        settings: Settings,
        invited: &[Credential],
    ) -> Result<Answered, TaskError> {
        // Two sums with and without somebody else's update would tell what that is.
        let summed = self.memory.get(self.key)?.summed;
        if summed.is_some_and(|last| last >= assignment) {
            let says = "the update of this order is in a sum already, and goes into no second one";
            return Err(TaskError::denied(says).with_field("assignment"));
        }
        let member = |credential: &Credential| {
            Ok(Member {
                node: self.who.check(credential)?,
                key: credential.key,
            })
        };
        let members = invited
            .iter()
            .map(member)
            .collect::<Result<Vec<_>, TaskError>>()?;
        let session = Session::new(settings, members)
            .map_err(|error| TaskError::invalid(error.to_string()).with_field("settings"))?;
        let pair = self.who.pair()?;
        let me = karman_types::NodeId::of_key(&*pair.pk);
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|error| TaskError::internal(error.to_string()))?;
        let (client, says) = Client::join(Arc::new(session), me, pair, entropy).map_err(refused)?;
        self.sums.put(
            self.key,
            Joined {
                assignment,
                client: Some(client),
                last: None,
            },
        );
        Ok(Answered::Says(says))
    }

    async fn train<'t>(
        &self,
        joined: &mut Joined,
        said: ToClient,
        lesson: Lesson,
        train: impl FnOnce(Lesson) -> BoxFuture<'t, Result<Trained, TaskError>>,
    ) -> Result<Answered, TaskError> {
        let mark = mark(&said)?;
        if let Some(answered) = joined.answered(mark) {
            return Ok(answered);
        }
        let client = joined.client.as_mut().ok_or_else(gone)?;
        // A training that was cut off by a lost link goes on; the shares are here already.
        if client.step() != secure::Step::Mask {
            client.handle(said).map_err(refused)?;
        }
        let (grid, weights, limits) = (lesson.grid, lesson.weights, lesson.limits.clone());
        let trained = train(lesson).await?;
        check(&trained, &limits)?;
        let weight = weights.weight(trained.samples);
        // It counts as given away before it is.
        let mut remembered = self.memory.get(self.key)?;
        remembered.summed = Some(joined.assignment);
        self.memory.put(self.key, remembered)?;
        let (samples, steps, loss) = (trained.samples, trained.steps, trained.loss);
        let mut client = joined.client.take().ok_or_else(gone)?;
        let (client, says) = blocking(move || {
            let mut sum = FixedSum::new(trained.numbers.len(), grid);
            let term = Term {
                values: &trained.numbers,
                factor: weight as f64,
            };
            sum.add(&[term])
                .map_err(|error| TaskError::invalid(error.to_string()).with_field("grid"))?;
            let mut vector: Vec<u64> = sum.parts().iter().map(|part| *part as u64).collect();
            vector.push(weight);
            let says = client.mask(&vector).map_err(refused)?;
            Ok((client, says))
        })
        .await?;
        joined.client = Some(client);
        let answered = Answered::Trained {
            says,
            samples,
            steps,
            loss,
        };
        joined.last = Some((mark, answered.clone()));
        Ok(answered)
    }
}

/// What a sum cannot screen any more, its parts' owners do: an honest node sends nothing that would be refused in the open.
fn check(trained: &Trained, limits: &karman_fed::Limits) -> Result<(), TaskError> {
    let most = limits.magnitude;
    let within = |number: &f32| number.is_finite() && number.abs() <= most;
    if let Some(number) = trained.numbers.iter().find(|number| !within(number)) {
        let says = format!("the training changed a number by {number}: the limit `magnitude` is {most}");
        return Err(TaskError::failed(says).with_field("model"));
    }
    match (1..=limits.samples).contains(&trained.samples) && trained.steps > 0 && trained.loss.is_finite() {
        true => Ok(()),
        false => Err(TaskError::failed(format!(
            "the training declares {} samples (1 to {} there may be), {} steps and a loss of {}",
            trained.samples, limits.samples, trained.steps, trained.loss
        ))
        .with_field("samples")),
    }
}

impl Joined {
    fn answered(&self, mark: Digest) -> Option<Answered> {
        let (of, answered) = self.last.as_ref()?;
        (*of == mark).then(|| answered.clone())
    }

    /// Answers, or answers again.
    fn once(
        &mut self,
        said: &ToClient,
        answer: impl FnOnce(&mut Client) -> Result<Answered, TaskError>,
    ) -> Result<Answered, TaskError> {
        let mark = mark(said)?;
        if let Some(answered) = self.answered(mark) {
            return Ok(answered);
        }
        let answered = answer(self.client.as_mut().ok_or_else(gone)?)?;
        self.last = Some((mark, answered.clone()));
        Ok(answered)
    }
}

impl Sums {
    fn joined(
        &self,
        key: &Key,
        assignment: AssignmentId,
    ) -> Result<Arc<tokio::sync::Mutex<Joined>>, TaskError> {
        let joined = self.0.lock().all.get(key).map(|(_, joined)| joined.clone());
        let joined = joined.ok_or_else(gone)?;
        // Steps of one client come one after the other.
        let of = joined.try_lock().map(|joined| joined.assignment);
        match of.is_ok_and(|of| of == assignment) {
            true => Ok(joined),
            false => Err(gone()),
        }
    }

    fn put(&self, key: &Key, joined: Joined) {
        let mut joins = self.0.lock();
        joins.count += 1;
        let number = joins.count;
        joins
            .all
            .insert(key.clone(), (number, Arc::new(tokio::sync::Mutex::new(joined))));
        while joins.all.len() > MOST_SUMS {
            let oldest = joins.all.iter().min_by_key(|(_, (number, _))| *number);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            joins.all.remove(&oldest);
        }
    }
}

fn mark(said: &impl Serialize) -> Result<Digest, TaskError> {
    Ok(Digest::of(&wire::write(said)?))
}

fn gone() -> TaskError {
    TaskError::failed("this client takes no part in that sum: it was started again, or has left")
}

fn refused(refusal: Refusal) -> TaskError {
    TaskError::denied(refusal.to_string())
}
