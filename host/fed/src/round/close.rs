use super::core::Phase;
use super::gather::{Finished, Gathering};
use super::private::Private;
use super::sketch::Sketch;
use super::{Action, Coordinator, Failure, RoundFailure, RoundReport};
use crate::Pace;
use crate::privacy::ClippedSum;
use crate::select::{Candidate, Outcome};
use crate::strategy::{Aggregate, Facts, StrategyError};
use std::sync::Arc;
use std::time::Duration;

/// Why there is no next version.
#[derive(Debug, thiserror::Error)]
enum NoVersion {
    /// Another round may make one.
    #[error(transparent)]
    Round(#[from] RoundFailure),
    /// No other one would: a plugin that fails once fails again.
    #[error("{0}")]
    Plugin(String),
}

impl From<StrategyError> for NoVersion {
    fn from(error: StrategyError) -> Self {
        match error {
            StrategyError::Plugin { .. } => Self::Plugin(error.to_string()),
            _ => RoundFailure::Strategy(error.to_string()).into(),
        }
    }
}

impl Coordinator {
    /// Makes the next version of the updates gathered, or fails the round with the reason.
    pub(super) fn close(&mut self) {
        // How many chance has drawn is as private as who they are: noise hides any number of them, and none.
        let minimum = if self.is_drawn() {
            0
        } else {
            self.run.pace.minimum()
        };
        let updates = self.gathering.count();
        if updates < minimum {
            self.fail_round(RoundFailure::TooFew { updates, minimum });
            return;
        }
        match self.next_model() {
            Ok((model, finished)) => self.install(model, finished),
            Err(NoVersion::Round(failure)) => self.fail_round(failure),
            Err(NoVersion::Plugin(why)) => self.break_off(Failure::Strategy(why)),
        }
    }

    /// The model after the strategy's step.
    fn next_model(&mut self) -> Result<(Vec<f32>, Finished), NoVersion> {
        let nothing = self.nothing_gathered();
        let gathering = std::mem::replace(&mut self.gathering, nothing);
        let mut finished = gathering.finish(&*self.strategy, &*self.arithmetic)?;
        if self.core.low_rank.is_some() {
            return Ok(self.adapted(finished)?);
        }
        if let Some(privacy) = &mut self.core.privacy {
            let nothing = || ClippedSum::nothing(finished.update.len());
            let sum = finished.clipped.take().unwrap_or_else(nothing);
            let released = privacy.release(sum, &self.core.roster, self.core.round);
            let mean = released
                .map_err(|error| RoundFailure::Privacy(error.to_string()))?
                .mean;
            finished.update = mean.into_iter().map(|number| number as f32).collect();
        }
        let mut model = self.core.model.to_vec();
        let before = self.strategy.save();
        let aggregate = Aggregate {
            version: self.core.version,
            update: &finished.update,
            updates: &finished.updates,
            facts: &finished.facts,
            population: self.core.roster.len(),
        };
        let stepped = self.strategy.step(&mut model, &aggregate);
        let stepped = stepped.map_err(NoVersion::from);
        let finite = stepped.and_then(|()| match model.iter().position(|number| !number.is_finite()) {
            None => Ok(()),
            Some(index) => Err(NoVersion::Round(RoundFailure::Diverged {
                index,
                value: model[index],
            })),
        });
        if let Err(failure) = finite {
            // Neither the model nor the strategy remembers a step that did not happen.
            return Err(match self.strategy.load(&before) {
                Ok(()) => failure,
                Err(error) => NoVersion::Round(RoundFailure::Strategy(format!("{failure}, and {error}"))),
            });
        }
        Ok((model, finished))
    }

    pub(super) fn is_drawn(&self) -> bool {
        self.core.privacy.as_ref().is_some_and(Private::is_drawn)
    }

    fn nothing_gathered(&self) -> Gathering {
        Gathering::new(
            &*self.strategy,
            self.layout.length() * self.strategy.rows(),
            self.grid,
        )
    }

    fn install(&mut self, model: Vec<f32>, finished: Finished) {
        self.core.model = Arc::from(model);
        self.core.version += 1;
        self.settle(true);
        self.report_round(&finished.facts);
        self.teach(&finished);
        if self.are_all_lost(&finished.facts) {
            return;
        }
        if self.core.version >= self.run.rounds {
            self.last_round();
            return;
        }
        self.evaluate();
        // What clients say of the version before may have ended the run.
        if self.is_over() {
            return;
        }
        match self.run.pace {
            // Clients go on training; only the version is new.
            Pace::Buffered { .. } => {
                self.core.round += 1;
                self.core.tally = Default::default();
                self.core.phase = Phase::Open(Some(self.core.now));
                self.save();
            }
            _ => self.core.phase = Phase::Waiting,
        }
    }

    /// Noise alone makes a version too, but not for ever where everybody fails who is asked.
    fn are_all_lost(&mut self, facts: &[Facts]) -> bool {
        let all_lost = facts.is_empty() && !self.core.tally.lost.is_empty();
        let rounds = if all_lost { self.core.failed_rounds + 1 } else { 0 };
        self.core.failed_rounds = rounds;
        let too_often = all_lost && rounds >= self.run.limits.failed_rounds;
        if too_often {
            let last = RoundFailure::TooFew {
                updates: 0,
                minimum: 1,
            };
            self.end(Some(Failure::Rounds { rounds, last }));
        }
        too_often
    }

    /// The last version is still judged before the run ends, where it is one of those that are.
    fn last_round(&mut self) {
        for (id, assignment) in std::mem::take(&mut self.core.assignments) {
            self.withdraw(id, assignment.client);
        }
        self.evaluate();
        match self.core.evaluating {
            _ if self.is_over() => {}
            Some(_) => {
                self.core.phase = Phase::Judging;
                self.save();
            }
            None => self.end(None),
        }
    }

    /// A round without a version: what was gathered is dropped, and the model stays.
    pub(super) fn fail_round(&mut self, failure: RoundFailure) {
        self.core.failed_rounds += 1;
        self.drop_round(failure);
    }

    /// The same, where what has failed it can fail no other one: it does not count among those that end a run.
    pub(super) fn drop_round(&mut self, failure: RoundFailure) {
        self.gathering = self.nothing_gathered();
        self.settle(false);
        self.tell_failure(failure);
    }

    /// What was gathered is in a version, or for nothing: clients go on from what they kept with the last answer that counts.
    fn settle(&mut self, is_in_a_version: bool) {
        let members = self.core.roster.values_mut();
        members.for_each(|member| member.settles(is_in_a_version));
    }

    /// Nobody can train the version any more. What was gathered for the next one is as good as before.
    pub(super) fn fail_to_gather(&mut self, failure: RoundFailure) {
        self.core.failed_rounds += 1;
        self.tell_failure(failure);
    }

    fn tell_failure(&mut self, failure: RoundFailure) {
        let round = self.core.round;
        let rounds = self.core.failed_rounds;
        self.out.push(Action::Failed {
            round,
            failure: failure.clone(),
        });
        // The others of a round that failed early need not go on.
        if !matches!(self.run.pace, Pace::Buffered { .. }) {
            for (id, assignment) in std::mem::take(&mut self.core.assignments) {
                self.withdraw(id, assignment.client);
            }
            self.core.phase = Phase::Waiting;
        }
        if rounds >= self.run.limits.failed_rounds {
            let last = failure;
            self.end(Some(Failure::Rounds { rounds, last }));
        }
    }

    fn report_round(&mut self, facts: &[Facts]) {
        let weight: f64 = facts.iter().map(|facts| facts.weight as f64).sum();
        let loss: f64 = facts
            .iter()
            .map(|facts| facts.weight as f64 * f64::from(facts.loss))
            .sum();
        let staleness: f64 = facts.iter().map(|facts| facts.staleness as f64).sum();
        let time = match self.core.phase {
            Phase::Open(Some(since)) => self.core.now.since(since),
            _ => Duration::ZERO,
        };
        let report = RoundReport {
            round: self.core.round,
            version: self.core.version,
            clients: facts.iter().map(|facts| facts.client).collect(),
            lost: self.core.tally.lost.len() as u32,
            loss: (weight > 0.0).then(|| loss / weight),
            staleness: staleness / facts.len().max(1) as f64,
            bytes_up: self.core.tally.bytes_up,
            bytes_down: self.core.tally.bytes_down,
            epsilon: self.status().spent.map(|spent| spent.epsilon),
            swarm: self.core.tally.swarm.take(),
            rank: self.core.tally.rank.take(),
            time,
        };
        self.out.push(Action::Closed(Box::new(report)));
    }

    /// Tells the selection what came of its choice.
    fn teach(&mut self, finished: &Finished) {
        let mut aggregate = Sketch::zero();
        for (facts, sketch) in finished.facts.iter().zip(&finished.sketches) {
            aggregate.add(facts.weight as f64, sketch);
        }
        let answered = finished.facts.iter().enumerate().map(|(i, facts)| {
            let cosine = finished.sketches.get(i).map(|sketch| sketch.cosine(&aggregate));
            Outcome {
                client: facts.client,
                seconds: self
                    .core
                    .roster
                    .get(&facts.client)
                    .and_then(|member| member.seconds),
                contribution: cosine.map(|cosine| (cosine + 1.0) / 2.0),
            }
        });
        let lost = self.core.tally.lost.iter().map(|client| Outcome {
            client: *client,
            seconds: None,
            contribution: None,
        });
        let outcomes: Vec<Outcome> = answered.chain(lost).collect();
        let most = self.run.limits.samples;
        let all: Vec<Candidate> = self
            .core
            .roster
            .iter()
            .map(|(client, member)| member.candidate(*client, most))
            .collect();
        self.selection.learn(&outcomes, &all);
    }
}
