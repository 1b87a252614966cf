use super::core::{Phase, Tally};
use super::roster::Member;
use super::{Action, AssignmentId, Coordinator, Failure, Order, RoundFailure, Train, Work, private};
use crate::select::{Candidate, NotEligible, Workload, check_view};
use crate::{ClientId, Instant, Pace, Swarm, Window};
use serde::{Deserialize, Serialize};
use std::mem::{discriminant, replace};
use std::time::Duration;

/// What one client was asked to train.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Assignment {
    pub(crate) client: ClientId,
    /// The version that it has got, or will get.
    pub(crate) version: u64,
    /// When it was sent, and when its time is over; nothing while it waits for the disk.
    pub(crate) sent: Option<Instant>,
    pub(crate) until: Option<Instant>,
    pub(crate) seed: u64,
    /// Of its adapters; nothing where it trains the whole model.
    pub(crate) rank: Option<u32>,
}

impl Coordinator {
    /// Opens a round when there are clients enough; says whether it did.
    pub(super) fn open(&mut self) -> bool {
        let wanted = self.run.pace.cohort();
        let candidates = self.candidates();
        let least = match self.run.pace {
            Pace::Buffered { .. } => 1,
            _ => self.run.pace.minimum(),
        };
        let least = if self.core.round == 0 {
            least.max(self.run.start_with)
        } else {
            least
        };
        // A round of fewer trains for a sum that nobody may know.
        let least = least.max(self.run.secure_sum.map_or(0, |secure| secure.fewest()));
        let least = least.max(self.run.swarm.map_or(0, |_| Swarm::FEWEST));
        // Who still works on an earlier version may yet make up the minimum.
        if candidates.len() + self.core.assignments.len() < least {
            self.end_if_given_away(least);
            return false;
        }
        if self.is_budget_spent() {
            return false;
        }
        self.core.tally = Tally::default();
        self.core.round += 1;
        if self.is_drawn() {
            self.assign_drawn(&candidates);
            if self.core.assignments.is_empty() {
                // That nobody was drawn is as private as who was: noise makes the version, and the account has it.
                self.core.phase = Phase::Open(Some(self.core.now));
                self.close();
                return true;
            }
        } else {
            self.assign(&candidates, wanted);
        }
        if self.core.assignments.is_empty() {
            self.core.round -= 1;
            return false;
        }
        self.core.phase = Phase::Open(None);
        self.save();
        true
    }

    /// Ends a private run before it gives away more than it may, once its last version is judged: that costs nothing of the account.
    fn is_budget_spent(&mut self) -> bool {
        let Some(privacy) = &self.core.privacy else {
            return false;
        };
        let failure = match privacy.after(&self.core.roster, self.core.round + 1) {
            Ok(after) => match self.run.privacy.and_then(|privacy| privacy.most_epsilon) {
                Some(most) if after.epsilon > most => Failure::Privacy {
                    epsilon: after.epsilon,
                    most,
                },
                _ => return false,
            },
            // What cannot be accounted for is not given away.
            Err(error) => Failure::Account(error.to_string()),
        };
        if self.core.evaluating.is_none() {
            self.end(Some(failure));
        }
        true
    }

    /// Has those train whom chance alone has drawn, of all that ever came: those of them who are there.
    fn assign_drawn(&mut self, candidates: &[Candidate]) {
        if let Some(privacy) = &self.core.privacy {
            let drawn = privacy.drawn(&self.core.roster, self.core.round);
            self.give(candidates, drawn);
        }
    }

    /// In a buffered run, whoever is free gets work at once; who could not do it, with the next version. Where that is everybody, the round
    /// has failed, and all try again.
    pub(super) fn refill(&mut self) {
        let Pace::Buffered { at_once, buffer, .. } = self.run.pace else {
            return;
        };
        while !self.is_over() {
            let room = at_once.saturating_sub(self.core.assignments.len());
            if room > 0 {
                let mut candidates = self.candidates();
                candidates.retain(|candidate| !self.has_failed(candidate.client));
                self.assign(&candidates, room);
            }
            if !self.core.assignments.is_empty() {
                return;
            }
            let failed =
                |(client, member): (&ClientId, &Member)| member.is_free() && self.has_failed(*client);
            if !self.core.roster.iter().any(failed) {
                return self.end_if_given_away(1);
            }
            for member in self.core.roster.values_mut() {
                member.failed_at = None;
            }
            self.fail_to_gather(RoundFailure::TooFew {
                updates: self.gathering.count(),
                minimum: buffer,
            });
        }
    }

    /// Whether a client could not train the version of now.
    fn has_failed(&self, client: ClientId) -> bool {
        let member = self.core.roster.get(&client);
        member.is_some_and(|member| member.failed_at == Some(self.core.version))
    }

    /// The free clients that stay in view for long enough, and would be done in time; of the others it is told why they are not asked.
    fn candidates(&mut self) -> Vec<Candidate> {
        let free = self.core.roster.iter().filter(|(_, member)| member.is_free());
        let checked = free.map(|(client, member)| (*client, self.check(*client, member).err()));
        let checked: Vec<(ClientId, Option<NotEligible>)> = checked.collect();
        let mut candidates = Vec::new();
        for (client, why) in checked {
            let Some(member) = self.core.roster.get_mut(&client) else {
                continue;
            };
            let before = replace(&mut member.passed_over, why).map(|why| discriminant(&why));
            match why {
                None => candidates.push(member.candidate(client, self.run.limits.samples)),
                Some(why) if before != Some(discriminant(&why)) => {
                    self.out.push(Action::PassedOver { client, why });
                }
                Some(_) => {}
            }
        }
        candidates
    }

    /// Whether a client can take part in a round that begins now.
    fn check(&self, client: ClientId, member: &Member) -> Result<(), NotEligible> {
        self.check_account(member)?;
        let timeout = self.run.pace.timeout();
        let bytes = 4 * self.layout.length() as u64;
        let work = Workload {
            down: bytes,
            training: self.run.eligibility.expected_training(timeout),
            up: self.bytes_up(client),
            measured: member.whole.or(member.seconds).map(Duration::from_secs_f64),
        };
        let (windows, now) = (self.windows(client), self.core.now);
        self.run
            .eligibility
            .check(&member.profile, windows, &work, now, timeout)
    }

    /// When a client is in view; nothing where it always is.
    fn windows(&self, client: ClientId) -> Option<&[Window]> {
        self.core.windows.get(&client).map(Vec::as_slice)
    }

    /// Whether a client is in view for long enough to receive the model at least.
    pub(super) fn can_receive(&self, client: ClientId, member: &Member) -> bool {
        let work = Workload {
            down: 4 * self.layout.length() as u64,
            ..Workload::default()
        };
        check_view(&member.profile, self.windows(client), &work, self.core.now).is_ok()
    }

    fn assign(&mut self, candidates: &[Candidate], count: usize) {
        if candidates.is_empty() || count == 0 {
            return;
        }
        let round = self.core.round;
        let mut chosen = match self.core.privacy {
            Some(_) => private::choose(self.run.seed, round, candidates, count),
            None => self.random(|this, random| this.selection.choose(candidates, count, round, random)),
        };
        chosen.truncate(count);
        self.give(candidates, chosen);
    }

    /// Has these train, those of them who can.
    fn give(&mut self, candidates: &[Candidate], chosen: Vec<ClientId>) {
        let round = self.core.round;
        for client in chosen {
            // A policy may be a plugin: it gets nobody twice, and nobody who is not a candidate.
            let known = candidates.binary_search_by_key(&client, |it| it.client).is_ok();
            let Some(member) = self
                .core
                .roster
                .get_mut(&client)
                .filter(|member| known && member.is_free())
            else {
                continue;
            };
            let id = AssignmentId(self.core.next_assignment);
            self.core.next_assignment += 1;
            member.busy = Some(id);
            member.chosen += 1;
            member.last_round = Some(round);
            let seed = match self.core.privacy {
                Some(_) => private::training_seed(self.run.seed, round, client),
                None => self.random(|_, random| random.u64(..)),
            };
            let rank = self.rank_of(client);
            let assignment = Assignment {
                client,
                version: self.core.version,
                sent: None,
                until: None,
                seed,
                rank,
            };
            self.core.assignments.insert(id, assignment);
        }
    }

    /// Has every order wait to be sent again. In an asynchronous run it then carries the version of that moment.
    pub(super) fn sever(&mut self) {
        for assignment in self.core.assignments.values_mut() {
            assignment.sent = None;
            assignment.until = None;
        }
        self.sever_evaluation();
    }

    /// Sends the orders that wait, once the version they carry is durable.
    pub(super) fn send(&mut self) {
        if self.saving.is_some() || self.is_over() {
            return;
        }
        let now = self.core.now;
        if self.core.phase == Phase::Open(None) {
            self.core.phase = Phase::Open(Some(now));
        }
        let time = self.run.pace.timeout();
        // A client that does one thing after the other judges first: that is short, and the version may be the last.
        self.send_evaluations(now, time);
        let waiting = self
            .core
            .assignments
            .iter()
            .filter(|(_, assignment)| assignment.sent.is_none());
        let waiting: Vec<AssignmentId> = waiting.map(|(id, _)| *id).collect();
        if !waiting.is_empty() {
            let extras = self.strategy.begin();
            let model = self.trained_on();
            for id in waiting {
                let Some(assignment) = self.core.assignments.get_mut(&id) else {
                    continue;
                };
                assignment.version = self.core.version;
                assignment.sent = Some(now);
                assignment.until = Some(now.after(time));
                let (client, seed, rank) = (assignment.client, assignment.seed, assignment.rank);
                let train = Train {
                    adapters: self.adapters(rank, seed),
                    ..self.train(client, seed, time, &extras)
                };
                let adapters = train.adapters.as_ref().map_or(0, |it| it.numbers.len());
                self.core.tally.bytes_down += 4 * (self.layout.length() + adapters) as u64;
                let order = Box::new(Order {
                    assignment: id,
                    version: self.core.version,
                    model: model.clone(),
                    time,
                    work: Work::Train(train),
                });
                self.out.push(Action::Send { client, order });
            }
        }
    }

    fn train(&self, client: ClientId, seed: u64, time: Duration, extras: &crate::strategy::Extras) -> Train {
        let training = &self.run.training;
        // The other half of a round is for its updates to get round.
        let time = if self.run.swarm.is_some() { time / 2 } else { time };
        let member = self.core.roster.get(&client);
        let stateless = self.core.privacy.is_some() && !self.is_drawn();
        let per_step = member
            .and_then(|member| member.per_step)
            // The clients of a secure sum all do the same, and see to that.
            .filter(|_| training.partial_work && self.run.secure_sum.is_none() && !stateless);
        // What is left over covers a link that is slower than it was.
        let fits =
            |per_step: f64| (0.8 * time.as_secs_f64() / per_step.max(1e-9)).clamp(1.0, f64::from(u32::MAX));
        let link = member.and_then(|member| member.profile.link);
        let bytes = 4 * (self.layout.length() * self.strategy.rows()) as u64;
        let (encoding, pack) = self.run.encoding.choose(bytes, link, &self.core.encodings);
        Train {
            epochs: training.epochs,
            batch: training.batch,
            learning_rate: training.rate(self.core.version),
            most_steps: per_step.map(|per_step| fits(per_step) as u32),
            proximal: extras.proximal,
            rows: self.strategy.rows(),
            control: extras.control.clone(),
            adapters: None,
            stateless,
            counted: member.and_then(Member::counted),
            seed,
            encoding,
            pack,
        }
    }
}
