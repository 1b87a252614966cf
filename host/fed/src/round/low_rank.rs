use super::gather::Finished;
use super::{AssignmentId, Coordinator, Refusal, RoundFailure, Update, screen};
use crate::lora::{Adapter, Stepped};
use crate::strategy::Facts;
use crate::{Adapters, ClientId, Profile};
use std::sync::Arc;

/// Rounds whose clients train adapters of unequal ranks. In any other run these say that there are none.
impl Coordinator {
    /// The rank of a client's adapters, by what it has said of itself.
    pub(super) fn rank_of(&self, client: ClientId) -> Option<u32> {
        let settings = self.run.low_rank.as_ref()?;
        let profile = &self.core.roster.get(&client)?.profile;
        settings.rank_of(client, profile, self.run.clients.simulated > 0)
    }

    /// Why a client cannot take part, where its node trains no adapters of any rank there is.
    pub(super) fn below_every_rank(&self, profile: &Profile) -> Option<Refusal> {
        let (settings, most) = (self.run.low_rank.as_ref()?, profile.adapter_rank?);
        let least = settings.least();
        (most < least).then_some(Refusal::Rank { most, least })
    }

    /// Bytes of a client's update as `f32`.
    pub(super) fn bytes_up(&self, client: ClientId) -> u64 {
        let numbers = match (&self.core.low_rank, self.rank_of(client)) {
            (Some(adapting), Some(rank)) => adapting.numbers(rank as usize),
            _ => self.layout.length() * self.strategy.rows(),
        };
        4 * numbers as u64
    }

    /// What goes to a client of this rank to be trained in place of the model.
    pub(super) fn adapters(&self, rank: Option<u32>, seed: u64) -> Option<Adapters> {
        let (adapting, rank) = (self.core.low_rank.as_ref()?, rank? as usize);
        Some(Adapters {
            // That of the largest rank was made when the run began.
            layout: adapting.layout(rank).ok()?,
            numbers: adapting.start(rank, seed).into(),
        })
    }

    /// The model that goes to clients to be trained, or to train adapters on top of it.
    pub(super) fn trained_on(&self) -> Arc<[f32]> {
        match &self.core.low_rank {
            Some(adapting) => adapting.beneath(&self.core.model),
            None => self.core.model.clone(),
        }
    }

    /// Takes adapters in, or names what is wrong with them.
    pub(super) fn take_adapters(
        &mut self,
        client: ClientId,
        id: AssignmentId,
        update: &Update,
    ) -> Result<(), Refusal> {
        let adapters = self.read_adapters(id, update)?;
        let facts = Facts {
            client,
            assignment: id,
            samples: update.samples,
            weight: self.run.weights.weight(update.samples),
            steps: update.steps,
            loss: update.loss,
            staleness: 0,
        };
        self.answered(client, id, update.steps, update.loss, None);
        self.gathering.add_adapters(facts, adapters);
        Ok(())
    }

    /// The adapters after the training of this order; or why they do not count.
    fn read_adapters(&self, id: AssignmentId, update: &Update) -> Result<Vec<Adapter>, Refusal> {
        let assignment = self.core.assignments.get(&id).ok_or(Refusal::NotAsked)?;
        let (Some(adapting), Some(rank)) = (&self.core.low_rank, assignment.rank) else {
            return Err(Refusal::NotAsked);
        };
        let rank = rank as usize;
        let unreadable = |why: &dyn std::fmt::Display| Refusal::Unreadable {
            array: "low-rank adapters".into(),
            why: why.to_string(),
        };
        let layout = adapting.layout(rank).map_err(|error| unreadable(&error))?;
        let limits = &self.run.limits;
        let changes = screen::read(update, &layout, 1, limits)?;
        let trained = adapting.trained(rank, assignment.seed, &changes);
        let trained = trained.map_err(|error| unreadable(&error))?;
        for (name, adapter) in &trained {
            // Small factors may have a large product, and that is what the model gets.
            let product = adapter.product();
            if let Some(value) = product.into_iter().find(|value| value.abs() > limits.magnitude) {
                return Err(Refusal::Magnitude {
                    array: (*name).to_owned(),
                    value,
                    most: limits.magnitude,
                });
            }
        }
        Ok(trained.into_iter().map(|(_, adapter)| adapter).collect())
    }

    /// The model after a round of adapters. What is kept of them changes with it, or not at all.
    pub(super) fn adapted(&mut self, finished: Finished) -> Result<(Vec<f32>, Finished), RoundFailure> {
        let (Some(settings), Some(adapting)) = (&self.run.low_rank, &self.core.low_rank) else {
            let why = "no matrix has adapters".into();
            return Err(RoundFailure::Strategy(why));
        };
        let weights = finished.facts.iter().map(|facts| facts.weight as f64);
        let updates: Vec<(f64, &[Adapter])> =
            weights.zip(finished.adapters.iter().map(Vec::as_slice)).collect();
        let stepped = adapting.step(settings, &self.core.model, &updates);
        let Stepped { model, next, rank } =
            stepped.map_err(|error| RoundFailure::Strategy(error.to_string()))?;
        if let Some(index) = model.iter().position(|number| !number.is_finite()) {
            let value = model[index];
            return Err(RoundFailure::Diverged { index, value });
        }
        self.core.low_rank = Some(next);
        self.core.tally.rank = Some(rank as u32);
        Ok((model, finished))
    }
}
