use super::core::Phase;
use super::sketch::Sketch;
use super::{Action, AssignmentId, Coordinator, Loss, Refusal, RoundFailure, Update, screen};
use crate::privacy::CentralError;
use crate::strategy::Facts;
use crate::{ClientId, Pace, Profile};
use std::time::Duration;

impl Coordinator {
    pub(super) fn here(&mut self, client: ClientId, profile: Profile) {
        if let Err(error) = profile.check() {
            self.refuse(client, Refusal::Profile(error));
            return;
        }
        if let Some(refusal) = self.below_every_rank(&profile) {
            self.gone(client);
            self.refuse(client, refusal);
            return;
        }
        let member = self.core.roster.entry(client).or_default();
        member.profile = profile;
        member.here = true;
    }

    pub(super) fn gone(&mut self, client: ClientId) {
        let Some(member) = self.core.roster.get_mut(&client) else {
            return;
        };
        member.here = false;
        if let Some(assignment) = member.busy {
            self.lose(assignment, Loss::Gone);
        }
        self.evaluator_lost(client);
    }

    pub(super) fn gave_up(&mut self, client: ClientId, assignment: AssignmentId, reason: String) {
        self.count_answer(client, assignment);
        match self.core.assignments.get(&assignment) {
            Some(known) if known.client == client => self.lose(assignment, Loss::GaveUp(reason)),
            _ => self.evaluation_given_up(client, assignment),
        }
    }

    /// Takes an update in, or names what is wrong with it.
    pub(super) fn updated(&mut self, client: ClientId, id: AssignmentId, update: &Update) {
        let bytes = update.frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        self.core.tally.bytes_up += bytes;
        self.count_answer(client, id);
        if self.judges(client, id) {
            self.refuse(client, Refusal::NotAsked);
            self.evaluation_given_up(client, id);
            return;
        }
        // Where updates are summed in secret, or go from client to client, nobody is asked for one.
        if self.run.secure_sum.is_some() || self.run.swarm.is_some() {
            self.refuse(client, Refusal::NotAsked);
            return;
        }
        let taken = self
            .awaited(client, id)
            .and_then(|staleness| self.take(client, id, update, staleness));
        if let Err(refusal) = taken {
            let awaited = self
                .core
                .assignments
                .get(&id)
                .is_some_and(|known| known.client == client);
            self.refuse(client, refusal);
            // A client has one answer to an order: what was wrong with this one will not become right.
            if awaited {
                self.lose(id, Loss::Refused);
            }
        }
    }

    /// How stale an answer to this order is, if somebody waits for it.
    fn awaited(&self, client: ClientId, id: AssignmentId) -> Result<u64, Refusal> {
        let Some(assignment) = self.core.assignments.get(&id) else {
            let member = self.core.roster.get(&client);
            return Err(match member.and_then(|member| member.answered) {
                Some(answered) if answered == id => Refusal::Duplicate,
                _ if id.0 < self.core.next_assignment && member.is_some() => Refusal::Late,
                _ => Refusal::NotAsked,
            });
        };
        // One that was not sent since a restart may have been sent before it.
        if assignment.client != client {
            return Err(Refusal::NotAsked);
        }
        let staleness = self.core.version.saturating_sub(assignment.version);
        let most = self.run.pace.most_stale();
        match staleness <= most {
            true => Ok(staleness),
            false => Err(Refusal::Stale { staleness, most }),
        }
    }

    fn take(
        &mut self,
        client: ClientId,
        id: AssignmentId,
        update: &Update,
        staleness: u64,
    ) -> Result<(), Refusal> {
        if self.run.low_rank.is_some() {
            return self.take_adapters(client, id, update);
        }
        let numbers = screen::read(update, &self.layout, self.strategy.rows(), &self.run.limits)?;
        let facts = Facts {
            client,
            assignment: id,
            samples: update.samples,
            weight: self.run.weights.weight(update.samples),
            steps: update.steps,
            loss: update.loss,
            staleness,
        };
        // A strategy may be a plugin: a factor that the grid was not made for is not taken.
        let factor = match self.strategy.factor(&facts) {
            factor if factor.is_finite() => factor.clamp(0.0, facts.weight as f64),
            _ => 0.0,
        };
        let factor = factor / (1.0 + staleness as f64).sqrt();
        if self.selection.wants_contributions() {
            self.gathering
                .sketches
                .push(Sketch::of(&numbers[..self.layout.length()]));
        }
        self.answered(client, id, update.steps, update.loss, None);
        let added = match &self.core.privacy {
            Some(privacy) => privacy
                .clip(&numbers)
                .map_err(CentralError::from)
                .and_then(|clipped| self.gathering.add_clipped(Facts { weight: 1, ..facts }, &clipped))
                .map_err(|error| RoundFailure::Privacy(error.to_string())),
            None => self
                .gathering
                .add(facts, factor, numbers, &*self.arithmetic)
                .map_err(|error| RoundFailure::Strategy(error.to_string())),
        };
        if let Err(failure) = added {
            self.fail_round(failure);
        }
        Ok(())
    }

    /// An order that was answered by a training. It `took` the time until now, where nothing else is known.
    pub(super) fn answered(
        &mut self,
        client: ClientId,
        id: AssignmentId,
        steps: u32,
        loss: f32,
        took: Option<Duration>,
    ) {
        let sent = self
            .core
            .assignments
            .remove(&id)
            .and_then(|assignment| assignment.sent);
        if let Some(member) = self.core.roster.get_mut(&client) {
            member.busy = None;
            member.answers(id);
            member.loss = Some(loss.into());
            let whole = sent.map(|sent| self.core.now.since(sent));
            let took = took.or(whole).unwrap_or_default();
            // It was in time, even where that was seen a moment later: otherwise it would never be asked again.
            let most = self.run.pace.timeout();
            let [took, whole] = [took, whole.unwrap_or(took)].map(|time| time.min(most).as_secs_f64());
            member.measured(took, whole, steps);
        }
    }

    /// Names what was refused. Whoever has sent too much of it is not asked any more.
    pub(super) fn refuse(&mut self, client: ClientId, refusal: Refusal) {
        let fault = refusal.is_fault();
        self.out.push(Action::Refused { client, refusal });
        // Who is not known needs no excluding.
        let Some(member) = self.core.roster.get_mut(&client).filter(|_| fault) else {
            return;
        };
        member.refusals += 1;
        if !member.excluded && member.refusals >= self.run.limits.refusals {
            member.excluded = true;
            self.out.push(Action::Excluded { client });
        }
    }

    /// An order that will not be answered.
    pub(super) fn lose(&mut self, id: AssignmentId, loss: Loss) {
        let Some(assignment) = self.core.assignments.remove(&id) else {
            return;
        };
        let client = assignment.client;
        if let Some(member) = self.core.roster.get_mut(&client) {
            member.busy = None;
            if matches!(loss, Loss::GaveUp(_) | Loss::Refused) {
                member.failed_at = Some(self.core.version);
            }
        }
        self.core.tally.lost.push(client);
        self.out.push(Action::Lost {
            client,
            assignment: id,
            loss,
        });
    }

    /// Tells a client that its order is off.
    pub(super) fn withdraw(&mut self, assignment: AssignmentId, client: ClientId) {
        if let Some(member) = self.core.roster.get_mut(&client) {
            member.busy = None;
        }
        self.out.push(Action::Withdraw { client, assignment });
    }

    /// Gives up what has had its time.
    pub(super) fn expire(&mut self) {
        if self.is_over() {
            return;
        }
        let now = self.core.now;
        let late = |until: Option<crate::Instant>| until.is_some_and(|until| until <= now);
        let overdue = self
            .core
            .assignments
            .iter()
            .filter(|(_, assignment)| late(assignment.until));
        let overdue: Vec<(AssignmentId, ClientId)> = overdue.map(|(id, it)| (*id, it.client)).collect();
        for (id, client) in overdue {
            self.lose(id, Loss::Late);
            self.out.push(Action::Withdraw {
                client,
                assignment: id,
            });
        }
        self.expire_evaluation();
    }

    /// Whether the round is to be closed now.
    pub(super) fn is_due(&self) -> bool {
        let Phase::Open(since) = self.core.phase else {
            return false;
        };
        let count = self.gathering.count();
        let nobody_left = self.core.assignments.is_empty();
        match self.run.pace {
            Pace::Synchronous { .. } => nobody_left,
            Pace::SemiAsynchronous {
                minimum,
                enough,
                wait,
                ..
            } => {
                let waited = since.is_some_and(|since| since.after(wait) <= self.core.now);
                nobody_left || count >= enough || (waited && count >= minimum)
            }
            Pace::Buffered { buffer, .. } => count >= buffer,
        }
    }
}
