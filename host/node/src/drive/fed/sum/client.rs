//! The client's side. A driver may lie: what could make it see a single update is refused here, by whoever that update is of.

use super::identity::{Credential, Identity};
use super::joined::{Begun, Joined, mark, refused};
use super::message::{Answered, Common, Lesson, Step};
use super::sums::Sums;
use crate::drive::fed::memory::{Key, Memory};
use crate::services::blocking;
use futures::future::BoxFuture;
use karman_fed::secure::{Client, Member, Ring, Session, Settings, ToClient};
use karman_fed::strategy::WeightPolicy;
use karman_fed::{AssignmentId, Limits, SecureSum};
use karman_tensor::arithmetic::{FixedSum, Grid, Term};
use karman_types::{Digest, NodeId, TaskError};
use std::sync::Arc;

/// What a training has come to.
pub(in crate::drive::fed) struct Trained {
    /// What it has changed, all arrays in one row.
    pub(in crate::drive::fed) numbers: Vec<f32>,
    pub(in crate::drive::fed) samples: u64,
    pub(in crate::drive::fed) steps: u32,
    pub(in crate::drive::fed) loss: f32,
}

/// A client that takes part in sums: what it is, and what it keeps.
#[derive(Clone)]
pub(in crate::drive::fed) struct Taker {
    pub(in crate::drive::fed) sums: Arc<Sums>,
    pub(in crate::drive::fed) memory: Arc<Memory>,
    pub(in crate::drive::fed) who: Arc<dyn Identity>,
    pub(in crate::drive::fed) key: Key,
}

/// Does what a driver asks of a client for the sum of an order. `train` is the plugin's part.
pub(in crate::drive::fed) async fn carry_out<'t>(
    taker: &Taker,
    common: Common,
    assignment: AssignmentId,
    step: Step,
    train: impl FnOnce(Lesson) -> BoxFuture<'t, Result<Trained, TaskError>>,
) -> Result<Answered, TaskError> {
    match step {
        Step::Who => {
            let file = common.file();
            taker.apart(move |taker| taker.show(assignment, file)).await
        }
        Step::Join { settings, invited } => {
            let joins = move |taker: &Taker| taker.join(assignment, settings, &invited);
            taker.apart(joins).await
        }
        Step::Said(said) => {
            let answers = move |taker: &Taker| {
                let joined = taker.sums.joined(&taker.key, assignment)?;
                joined.lock().answer(said)
            };
            taker.apart(answers).await
        }
        Step::Train { said, lesson } => {
            // Only a training waits for what else this client does: who waits with another step is lost to the sum.
            let _one_at_a_time = taker.memory.turn(&taker.key).await;
            taker.train(common, assignment, (said, lesson), train).await
        }
    }
}

impl Taker {
    /// Does what takes its time where it holds up nobody else. It is done to its end, also when the driver's link is lost.
    async fn apart<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Self) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let taker = self.clone();
        blocking(move || what(&taker)).await
    }

    fn show(&self, assignment: AssignmentId, plugin: Digest) -> Result<Answered, TaskError> {
        self.memory.may_give(&self.key, assignment)?;
        let once = self.sums.show(&self.key, assignment)?;
        let credential = self.who.credential(once)?;
        Ok(Answered::Who { credential, plugin })
    }

    fn join(
        &self,
        assignment: AssignmentId,
        settings: Settings,
        invited: &[Credential],
    ) -> Result<Answered, TaskError> {
        let asked = mark(&(&settings, invited))?;
        let before = self.sums.joined(&self.key, assignment).ok();
        let answered = before.map(|joined| joined.lock().answered(asked)).transpose()?;
        if let Some(answered) = answered.flatten() {
            return Ok(answered);
        }
        self.memory.may_give(&self.key, assignment)?;
        let most = SecureSum::MOST_CLIENTS;
        if invited.len() > most {
            let says = format!("{} are invited, at most {most} may be", invited.len());
            return Err(TaskError::limit(says).with_field("invited"));
        }
        if settings.ring != Ring::BITS_64 {
            return Err(TaskError::invalid("updates are summed in 64 bits").with_field("settings.ring"));
        }
        let member = |credential: &Credential| {
            Ok(Member {
                node: self.who.check(credential)?,
                key: credential.key,
                once: credential.once,
            })
        };
        let members = invited
            .iter()
            .map(member)
            .collect::<Result<Vec<_>, TaskError>>()?;
        let session = Session::new(settings.clone(), members)
            .map_err(|error| TaskError::invalid(error.to_string()).with_field("settings"))?;
        let pair = self.who.pair()?;
        let me = NodeId::of_key(&*pair.pk);
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|error| TaskError::internal(error.to_string()))?;
        let pass = self.sums.take(&self.key, assignment)?;
        let (client, says) = Client::join(Arc::new(session), me, pair, pass, entropy).map_err(refused)?;
        let joined = Joined::new(client, settings, asked, says.clone());
        self.sums.put(&self.key, assignment, joined);
        Ok(Answered::Says(says))
    }

    async fn train<'t>(
        &self,
        common: Common,
        assignment: AssignmentId,
        (said, lesson): (ToClient, Box<Lesson>),
        train: impl FnOnce(Lesson) -> BoxFuture<'t, Result<Trained, TaskError>>,
    ) -> Result<Answered, TaskError> {
        let begins = move |taker: &Self| {
            let joined = taker.sums.joined(&taker.key, assignment)?;
            joined.lock().begin(said, lesson, &common)
        };
        let (asked, lesson) = match self.apart(begins).await? {
            Begun::Answered(answered) => return Ok(answered),
            Begun::Trains(asked, lesson) => (asked, lesson),
        };
        let (grid, weights, limits) = (lesson.grid, lesson.weights, lesson.limits.clone());
        let trained = train(*lesson).await?;
        let gives = move |taker: &Self| {
            check(&trained, &limits)?;
            taker.give(assignment, asked, &trained, (grid, weights))
        };
        self.apart(gives).await
    }

    fn give(
        &self,
        assignment: AssignmentId,
        asked: Digest,
        trained: &Trained,
        (grid, weights): (Grid, WeightPolicy),
    ) -> Result<Answered, TaskError> {
        let weight = weights.weight(trained.samples);
        let mut sum = FixedSum::new(trained.numbers.len(), grid);
        let term = Term {
            values: &trained.numbers,
            factor: weight as f64,
        };
        sum.add(&[term])
            .map_err(|error| TaskError::invalid(error.to_string()).with_field("grid"))?;
        let mut vector: Vec<u64> = sum.parts().iter().map(|part| *part as u64).collect();
        vector.push(weight);
        let declared = (trained.samples, trained.steps, trained.loss);
        let joined = self.sums.joined(&self.key, assignment)?;
        let counts = || self.memory.give(&self.key, assignment);
        let answered = joined.lock().give(asked, &vector, declared, counts)?;
        self.sums.keep(&joined, asked);
        Ok(answered)
    }
}

/// What a sum cannot screen any more, its parts' owners do: an honest node sends nothing that would be refused in the open.
fn check(trained: &Trained, limits: &Limits) -> Result<(), TaskError> {
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
