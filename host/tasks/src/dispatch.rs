use crate::attempt::{Attempts, Choice, Next, curable};
use crate::machine::Machine;
use crate::table::{Phase, Redo, Step, Task};
use crate::{
    Action, Answer, AttemptId, Call, Commit, CommitError, Expiry, Guarantee, Instant, Outcome, Verdict,
};
use karman_types::{ErrorKind, NodeId, TaskError, TaskId};
use std::time::Duration;

/// Tasks that look for a provider at once when there may be another, and how much later the next ones do: to look takes the mesh some
/// work, and nodes that come and go are no rarity.
const LOOK_AT_ONCE: usize = 64;
const LOOK_LATER: Duration = Duration::from_millis(20);

/// From an open task to its outcome: place, start, retry, hedge, commit.
impl Machine {
    pub(crate) fn advance_open(&mut self, task: &mut Task) {
        match self.time(task) {
            Expiry::Past => return self.end(task, Outcome::Expired),
            // Held. What runs already may finish.
            Expiry::Unknown => return,
            Expiry::Ahead => {}
        }
        if self.drain.is_some() {
            if task.attempts.live.is_empty() && task.attempts.dispatching().is_none() {
                self.move_away(task);
            }
            return;
        }
        if self.next_attempt(task).is_some_and(|at| at <= self.now) {
            task.attempts.place();
            self.out.push(Action::Place {
                task: task.id(),
                name: task.record.name.clone(),
                avoid: task.attempts.tried().to_vec(),
            });
        }
    }

    /// When the next attempt is due, be it a retry or a hedge.
    pub(crate) fn next_attempt(&self, task: &Task) -> Option<Instant> {
        let attempts = &task.attempts;
        if self.drain.is_some() || self.time(task) != Expiry::Ahead {
            return None;
        }
        match attempts.next {
            Next::At(at) => Some(at),
            _ => attempts.hedge_at(task.record.hedge_after, self.limits.attempts),
        }
    }

    pub(crate) fn offered(&mut self, id: TaskId, providers: &[NodeId]) {
        self.with(id, |machine, task| {
            if task.phase != Phase::Open || task.attempts.next != Next::Placing {
                return;
            }
            // Time has passed since it was asked for.
            task.attempts.next = Next::At(machine.now);
            if machine.next_attempt(task).is_none() {
                return;
            }
            machine.forget_busy(id);
            let most = machine.limits.running_per_provider;
            match task
                .attempts
                .choose(providers, |node| machine.running_at(node) < most)
            {
                Choice::Provider(provider) => machine.dispatch(task, provider),
                // A hedge is a matter of luck: without a second provider, the first goes on alone.
                _ if !task.attempts.live.is_empty() => task.attempts.next = Next::None,
                Choice::Busy => {
                    machine.pause(task);
                    for provider in providers {
                        machine.busy.entry(*provider).or_default().insert(id);
                    }
                }
                Choice::Nobody if task.is_direct() && task.attempts.pauses >= machine.limits.attempts => {
                    let error = TaskError::unavailable(format!("no node offers `{}`", task.record.name))
                        .with_hint("deploy it on a node, or submit it as accepted work, which waits for one");
                    machine.end(task, Outcome::Failed(error));
                }
                Choice::Nobody => machine.pause(task),
            }
        });
    }

    pub(crate) fn providers_changed(&mut self) {
        let mut at = self.now;
        for some in self.tasks.ids(waits).chunks(LOOK_AT_ONCE) {
            for id in some {
                self.with(*id, |_, task| {
                    if let Next::At(before) = task.attempts.next {
                        task.attempts.next = Next::At(before.min(at));
                    }
                });
            }
            at = at.after(LOOK_LATER);
        }
    }

    /// The keepers know of the attempt.
    pub(crate) fn dispatched(&mut self, task: &mut Task) {
        let Some(provider) = task.attempts.dispatching() else {
            return;
        };
        task.attempts.next = Next::None;
        match self.time(task) {
            Expiry::Ahead => self.start(task, provider),
            _ => {
                task.attempts.next = Next::At(self.now);
                self.release(provider);
            }
        }
    }

    /// Without a majority nothing starts.
    pub(crate) fn not_dispatched(&mut self, task: &mut Task) {
        if let Some(provider) = task.attempts.dispatching() {
            self.release(provider);
            self.pause(task);
        }
    }

    pub(crate) fn answered(&mut self, attempt: AttemptId, answer: Result<Answer, TaskError>) {
        self.with_live(attempt, |machine, task| match machine.fits(task, answer) {
            Ok(Answer {
                response,
                batch: None,
            }) => machine.end(task, Outcome::Done(response)),
            Ok(Answer {
                response,
                batch: Some(batch),
            }) => {
                machine.stop_all(task);
                let commit = Box::new(Commit::new(&task.record, attempt, response, batch));
                machine.out.push(Action::Commit(commit.clone()));
                task.phase = Phase::Committing(commit);
                task.retries = 0;
            }
            Err(error) if curable(error.kind) => machine.failed(task, error),
            // An attempt may have had less time than the task has.
            Err(error) if error.kind == ErrorKind::Deadline && machine.time(task) == Expiry::Past => {
                machine.end(task, Outcome::Expired);
            }
            Err(error) => machine.end(task, Outcome::Failed(error)),
        });
    }

    pub(crate) fn attempt_lost(&mut self, attempt: AttemptId) {
        self.with_live(attempt, |machine, task| machine.failed(task, lost()));
    }

    pub(crate) fn excused(&mut self, attempt: AttemptId) {
        self.uncounted(attempt, Attempts::excuse);
    }

    pub(crate) fn crowded(&mut self, attempt: AttemptId) {
        self.uncounted(attempt, Attempts::pass_by);
    }

    fn uncounted(&mut self, attempt: AttemptId, note: impl FnOnce(&mut Attempts)) {
        self.with_live(attempt, |machine, task| {
            note(&mut task.attempts);
            if task.attempts.live.is_empty() && task.attempts.next == Next::None {
                machine.pause_excused(task);
            }
        });
    }

    pub(crate) fn provider_lost(&mut self, provider: NodeId) {
        for id in self.tasks.ids(|task| !task.attempts.live.is_empty()) {
            self.with(id, |machine, task| {
                let live = task.attempts.live.iter();
                let gone = live.copied().find(|live| live.provider == provider);
                if let Some(live) = gone.and_then(|live| task.attempts.finish(live.number)) {
                    machine.release(live.provider);
                    machine.failed(task, lost());
                }
            });
        }
    }

    pub(crate) fn committed(&mut self, attempt: AttemptId, verdict: Result<Verdict, CommitError>) {
        self.with_commit(attempt, |machine, task, commit| match verdict {
            Ok(Verdict::Applied) => machine.end(task, Outcome::Done(commit.response)),
            Ok(Verdict::AlreadyApplied(response)) => machine.end(task, Outcome::Done(response)),
            Ok(Verdict::Conflict { .. }) if task.withdrawn => machine.end(task, Outcome::Cancelled),
            Ok(Verdict::Conflict { bucket, key }) => {
                machine.stats.conflicts += 1;
                task.attempts.again();
                if task.attempts.conflicts > machine.limits.conflicts {
                    let error =
                        TaskError::unavailable(format!("`{key}` in bucket `{bucket}` changed at every try"))
                            .with_hint("submit it again when fewer tasks write there");
                    return machine.end(task, Outcome::Failed(error));
                }
                task.phase = Phase::Open;
                let n = task.attempts.conflicts;
                let pause = machine.limits.backoff().pause(n, machine.jitter.luck());
                task.attempts.next = Next::At(machine.now.after(pause));
            }
            Err(CommitError::Stale(_)) if task.record.guarantee == Guarantee::Kept => machine.lose(task),
            Err(CommitError::Limit(_)) => machine.commit_later(task, commit),
            Err(CommitError::Unfit(error)) => machine.end(task, Outcome::Failed(error)),
            Err(error @ CommitError::KeyReused(_)) => {
                machine.end(task, Outcome::Failed(TaskError::invalid(error.to_string())));
            }
            Err(error @ CommitError::Unowned(_)) => {
                machine.end(task, Outcome::Failed(TaskError::denied(error.to_string())));
            }
            Err(error @ CommitError::Denied { .. }) => {
                let error = TaskError::denied(error.to_string());
                let hint = "`karman mesh invite --right …` gives it with the next membership";
                machine.end(task, Outcome::Failed(error.with_hint(hint)));
            }
            Err(error) => machine.end(task, Outcome::Failed(TaskError::internal(error.to_string()))),
        });
    }

    pub(crate) fn commit_lost(&mut self, attempt: AttemptId) {
        self.with_commit(attempt, |machine, task, commit| {
            machine.commit_later(task, commit)
        });
    }

    /// For each place at a provider one of the tasks looks again that found it busy, with all others, the oldest first.
    pub(crate) fn wake_busy(&mut self) {
        for provider in std::mem::take(&mut self.freed) {
            let busy = self.busy.get(&provider).into_iter().flatten();
            let next = busy.copied().find(|id| self.tasks.get(*id).is_some_and(waits));
            if let Some(id) = next {
                self.forget_busy(id);
                self.with(id, |machine, task| task.attempts.next = Next::At(machine.now));
            }
        }
    }

    /// The task does not wait for a place any more.
    pub(crate) fn forget_busy(&mut self, id: TaskId) {
        self.busy.retain(|_, tasks| {
            tasks.remove(&id);
            !tasks.is_empty()
        });
    }

    /// Ends all attempts, those about to start included.
    pub(crate) fn stop_all(&mut self, task: &mut Task) {
        self.forget_busy(task.id());
        if let Some(provider) = task.attempts.dispatching() {
            self.release(provider);
        }
        task.attempts.next = Next::None;
        for live in std::mem::take(&mut task.attempts.live) {
            self.release(live.provider);
            self.out.push(Action::Stop {
                provider: live.provider,
                attempt: self.attempt(task, live.number),
            });
        }
    }

    /// The time it has left.
    pub(crate) fn time_left(&self, task: &Task) -> Option<Duration> {
        let wall = self.clock.wall(self.now).and_then(|_| self.due_instant(task));
        let end = [task.deadline, wall].into_iter().flatten().min();
        end.map(|end| end.since(self.now))
    }

    fn dispatch(&mut self, task: &mut Task, provider: NodeId) {
        *self.running.entry(provider).or_default() += 1;
        if task.record.guarantee == Guarantee::Kept {
            task.attempts.next = Next::Dispatching(provider);
            self.save(task, Step::Dispatch);
        } else {
            self.start(task, provider);
        }
    }

    fn start(&mut self, task: &mut Task, provider: NodeId) {
        let Some(request) = task.record.request().cloned() else {
            return self.release(provider);
        };
        let number = task.attempts.start(provider, self.now);
        if task.record.guarantee == Guarantee::Kept {
            task.record.attempts = task.attempts.failures();
        }
        self.stats.started += 1;
        self.out.push(Action::Start {
            provider,
            call: Box::new(Call {
                attempt: self.attempt(task, number),
                epoch: task.record.epoch,
                name: task.record.name.clone(),
                request,
                key: task.record.effect_key(),
                home: task.record.home,
                within: self.time_left(task),
            }),
        });
    }

    /// An attempt failed in a way that another node could cure.
    fn failed(&mut self, task: &mut Task, error: TaskError) {
        let under_way = !task.attempts.live.is_empty() || task.attempts.next != Next::None;
        if under_way {
            task.attempts.last_error = Some(error);
        } else if task.attempts.may_start(self.limits.attempts) {
            task.attempts.last_error = Some(error);
            let failures = task.attempts.failures();
            let pause = self.limits.backoff().pause(failures, self.jitter.luck());
            task.attempts.next = Next::At(self.now.after(pause));
        } else {
            self.end(task, Outcome::Failed(error));
        }
    }

    /// Looks for a provider later, without counting an attempt.
    fn pause(&mut self, task: &mut Task) {
        task.attempts.pauses = task.attempts.pauses.saturating_add(1);
        let pause = self
            .limits
            .backoff()
            .pause(task.attempts.pauses, self.jitter.luck());
        task.attempts.next = Next::At(self.now.after(pause));
    }

    /// Waits for what was missing. Unlike for want of a provider, an attempt starts in between, so the pauses count on.
    fn pause_excused(&mut self, task: &mut Task) {
        let n = task.attempts.excused;
        let pause = self.limits.backoff().pause(n, self.jitter.luck());
        task.attempts.next = Next::At(self.now.after(pause));
    }

    fn commit_later(&mut self, task: &mut Task, commit: Commit) {
        task.phase = Phase::Committing(Box::new(commit));
        self.retry_later(task, Redo::Commit);
    }

    fn release(&mut self, provider: NodeId) {
        self.freed.push(provider);
        if let Some(running) = self.running.get_mut(&provider) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&provider);
            }
        }
    }

    fn attempt(&self, task: &Task, number: u32) -> AttemptId {
        AttemptId {
            task: task.id(),
            run: self.run,
            number,
        }
    }

    /// For what concerns an attempt that runs; it has ended then.
    fn with_live(&mut self, attempt: AttemptId, change: impl FnOnce(&mut Self, &mut Task)) {
        let mut found = false;
        self.with(attempt.task, |machine, task| {
            if attempt.run != machine.run {
                return;
            }
            if let Some(live) = task.attempts.finish(attempt.number) {
                found = true;
                machine.release(live.provider);
                change(machine, task);
            }
        });
        self.stats.late += u64::from(!found);
    }

    /// For what concerns a commit that is on its way.
    fn with_commit(&mut self, attempt: AttemptId, change: impl FnOnce(&mut Self, &mut Task, Commit)) {
        self.with(attempt.task, |machine, task| {
            if let Phase::Committing(commit) = &task.phase
                && commit.attempt == attempt
            {
                let commit = Commit::clone(commit);
                task.retry = None;
                change(machine, task, commit);
            }
        });
    }
}

fn waits(task: &Task) -> bool {
    matches!(task.attempts.next, Next::At(_)) && task.phase == Phase::Open
}

fn lost() -> TaskError {
    TaskError::unavailable("the connection to the provider was lost").with_hint("try again")
}
