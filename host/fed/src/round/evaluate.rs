use super::core::Phase;
use super::{Action, AssignmentId, Coordinator, Loss, Order, Refusal, Work};
use crate::strategy::{Gather, WeightPolicy};
use crate::{ClientId, Instant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a client thinks of a version, by data that it holds back.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Judgement {
    /// Samples that it judged by.
    pub samples: u64,
    /// How many were right.
    pub correct: u64,
    /// The mean loss over them.
    pub loss: f32,
}

/// What clients think of a version together.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// Which version.
    pub version: u64,
    /// Clients that answered.
    pub clients: usize,
    /// The share of samples that were right: the mean over clients by the weights of the run, their median where its strategy is robust.
    pub accuracy: f64,
    /// The loss, in the same way.
    pub loss: f64,
}

/// A version that clients are judging, beside the rounds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Evaluating {
    version: u64,
    asked: BTreeMap<AssignmentId, ClientId>,
    answers: BTreeMap<ClientId, Judgement>,
    sent: bool,
    pub(crate) until: Option<Instant>,
}

impl Coordinator {
    /// Begins to have the version judged, if that is due; an earlier version that is still being judged is given up.
    pub(super) fn evaluate(&mut self) {
        let (every, count) = (self.run.evaluation.every, self.run.evaluation.clients);
        if every == 0 || count == 0 || !self.core.version.is_multiple_of(every) {
            return;
        }
        self.finish_evaluation();
        if self.is_over() {
            return;
        }
        let here =
            self.core.roster.iter().filter(|(client, member)| {
                member.here && !member.excluded && self.can_receive(**client, member)
            });
        let here: Vec<ClientId> = here.map(|(client, _)| *client).collect();
        let mut chosen = self.random(|_, random| random.choose_multiple(here, count));
        chosen.sort();
        if chosen.is_empty() {
            return;
        }
        let first = self.core.next_assignment;
        self.core.next_assignment += chosen.len() as u64;
        self.core.evaluating = Some(Evaluating {
            version: self.core.version,
            asked: (first..).map(AssignmentId).zip(chosen).collect(),
            answers: BTreeMap::new(),
            sent: false,
            until: None,
        });
    }

    pub(super) fn sever_evaluation(&mut self) {
        if let Some(evaluating) = &mut self.core.evaluating {
            evaluating.sent = false;
            evaluating.until = None;
        }
    }

    pub(super) fn send_evaluations(&mut self, now: Instant, time: Duration) {
        let Some(evaluating) = self
            .core
            .evaluating
            .as_mut()
            .filter(|evaluating| !evaluating.sent)
        else {
            return;
        };
        evaluating.sent = true;
        if evaluating.version != self.core.version {
            // What was said of an earlier version says nothing of this one.
            for client in std::mem::take(&mut evaluating.answers).into_keys() {
                let id = AssignmentId(self.core.next_assignment);
                self.core.next_assignment += 1;
                evaluating.asked.insert(id, client);
            }
        }
        evaluating.version = self.core.version;
        evaluating.until = Some(now.after(time));
        for (id, client) in &evaluating.asked {
            let order = Box::new(Order {
                assignment: *id,
                version: evaluating.version,
                model: self.core.model.clone(),
                time,
                work: Work::Evaluate,
            });
            self.out.push(Action::Send {
                client: *client,
                order,
            });
        }
    }

    pub(super) fn judged(&mut self, client: ClientId, id: AssignmentId, judgement: Judgement) {
        let asked = self
            .core
            .evaluating
            .as_ref()
            .and_then(|evaluating| evaluating.asked.get(&id));
        let training = self.core.assignments.get(&id);
        if training.is_some_and(|known| known.client == client) {
            // It was to train, and there will be no other answer.
            self.refuse(client, Refusal::NotAsked);
            self.lose(id, Loss::Refused);
            return;
        }
        if asked == Some(&client) && (judgement.samples, judgement.correct) == (0, 0) {
            // It holds nothing back to judge by, which is no fault.
            self.evaluation_given_up(client, id);
            return;
        }
        let refusal = if asked != Some(&client) {
            match id.0 < self.core.next_assignment {
                true => Some(Refusal::Late),
                false => Some(Refusal::NotAsked),
            }
        } else {
            refusal_of(&judgement, self.run.limits.samples)
        };
        if let Some(refusal) = refusal {
            self.refuse(client, refusal);
            self.evaluation_given_up(client, id);
            return;
        }
        if let Some(evaluating) = &mut self.core.evaluating {
            evaluating.asked.remove(&id);
            evaluating.answers.insert(client, judgement);
        }
        self.finish_evaluation_if_all_answered();
    }

    /// Whether this client is to judge by this order.
    pub(super) fn judges(&self, client: ClientId, id: AssignmentId) -> bool {
        let evaluating = self.core.evaluating.as_ref();
        evaluating.and_then(|evaluating| evaluating.asked.get(&id)) == Some(&client)
    }

    pub(super) fn evaluation_given_up(&mut self, client: ClientId, id: AssignmentId) {
        if let Some(evaluating) = &mut self.core.evaluating
            && evaluating.asked.get(&id) == Some(&client)
        {
            evaluating.asked.remove(&id);
            self.finish_evaluation_if_all_answered();
        }
    }

    pub(super) fn evaluator_lost(&mut self, client: ClientId) {
        if let Some(evaluating) = &mut self.core.evaluating {
            evaluating.asked.retain(|_, asked| *asked != client);
            self.finish_evaluation_if_all_answered();
        }
    }

    pub(super) fn expire_evaluation(&mut self) {
        let until = self
            .core
            .evaluating
            .as_ref()
            .and_then(|evaluating| evaluating.until);
        if until.is_some_and(|until| until <= self.core.now) {
            self.finish_evaluation();
        }
    }

    fn finish_evaluation_if_all_answered(&mut self) {
        let all = |evaluating: &Evaluating| evaluating.asked.is_empty();
        if self.core.evaluating.as_ref().is_some_and(all) {
            self.finish_evaluation();
        }
    }

    /// Reports what was answered; ends the run where that was all it waited for, or the target is reached.
    fn finish_evaluation(&mut self) {
        let Some(evaluating) = self.core.evaluating.take() else {
            return;
        };
        for (id, client) in &evaluating.asked {
            self.out.push(Action::Withdraw {
                client: *client,
                assignment: *id,
            });
        }
        let is_robust = matches!(self.strategy.gather(), Gather::Together { .. });
        let middle = match is_robust {
            true => Middle::Median,
            false => Middle::Mean(self.run.weights),
        };
        if let Some(report) = evaluating.report(middle) {
            self.core.accuracy = Some(report.accuracy);
            let reached = self
                .run
                .evaluation
                .target
                .is_some_and(|target| report.accuracy >= target);
            self.out.push(Action::Evaluated(report));
            if reached {
                self.end(None);
            }
        }
        if self.core.phase == Phase::Judging {
            self.end(None);
        }
    }

    pub(super) fn abandon_evaluation(&mut self) {
        if let Some(evaluating) = self.core.evaluating.take() {
            let withdraw = |(assignment, client)| Action::Withdraw { client, assignment };
            self.out.extend(evaluating.asked.into_iter().map(withdraw));
        }
    }
}

impl Evaluating {
    /// Nothing where nobody answered.
    fn report(&self, middle: Middle) -> Option<EvaluationReport> {
        let answers = || self.answers.values();
        Some(EvaluationReport {
            version: self.version,
            clients: self.answers.len(),
            accuracy: middle.of(answers(), |answer| answer.correct as f64)?,
            loss: middle.of(answers(), |answer| answer.samples as f64 * f64::from(answer.loss))?,
        })
    }
}

/// How what clients say becomes one figure.
#[derive(Clone, Copy)]
enum Middle {
    /// The mean, each by the weight of its samples.
    Mean(WeightPolicy),
    /// The median, whatever they declare: fewer than half of them cannot move it beyond what the others say.
    Median,
}

impl Middle {
    /// `total` is the figure summed over the samples of an answer. Nothing where there is no answer.
    fn of<'a>(
        self,
        answers: impl Iterator<Item = &'a Judgement>,
        total: impl Fn(&Judgement) -> f64,
    ) -> Option<f64> {
        match self {
            Self::Mean(weights) => {
                let (mut sum, mut all) = (0.0, 0.0);
                for answer in answers {
                    let weight = weights.weight(answer.samples) as f64;
                    sum += weight * total(answer) / answer.samples as f64;
                    all += weight;
                }
                (all > 0.0).then(|| sum / all)
            }
            Self::Median => {
                let mut figures: Vec<f64> = answers
                    .map(|answer| total(answer) / answer.samples as f64)
                    .collect();
                figures.sort_by(f64::total_cmp);
                let (lower, upper) = (figures.len().checked_sub(1)? / 2, figures.len() / 2);
                Some(f64::midpoint(figures[lower], figures[upper]))
            }
        }
    }
}

fn refusal_of(judgement: &Judgement, most: u64) -> Option<Refusal> {
    let Judgement {
        samples,
        correct,
        loss,
    } = *judgement;
    if !(1..=most).contains(&samples) {
        return Some(Refusal::Samples { samples, most });
    }
    if correct > samples {
        let value = correct as f64 / samples as f64;
        let field = "accuracy";
        return Some(Refusal::Metric { field, value });
    }
    (!loss.is_finite()).then_some(Refusal::Metric {
        field: "loss",
        value: loss.into(),
    })
}
