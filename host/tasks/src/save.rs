use crate::machine::Machine;
use crate::table::{Phase, Redo, Step, Task};
use crate::{Action, Entry, Guarantee, KeptError, Outcome, SaveError, Saved, Ticket, Write};

/// Nothing is done on the strength of a write before the write is durable. A step that needs one ends with `Machine::save`, which
/// only asks for it; what depends on it is in `Machine::step_done`, which only [`crate::Event::Saved`] with the ticket of
/// that very write can reach.
impl Machine {
    pub(crate) fn save(&mut self, task: &mut Task, step: Step) {
        let ticket = self.ticket();
        let action = match task.record.guarantee {
            Guarantee::Direct => return,
            Guarantee::Local => {
                let write = match step {
                    Step::Forget => Write::Delete(task.id()),
                    _ => self.put(task),
                };
                Action::Persist { ticket, write }
            }
            Guarantee::Kept => match self.entry(task, step) {
                Some(entry) => Action::Propose { ticket, entry },
                None => return,
            },
        };
        if let Some((former, _)) = task.saving.replace((ticket, step)) {
            self.saves.remove(&former);
        }
        self.saves.insert(ticket, task.id());
        self.out.push(action);
    }

    /// What a write that was asked for has come to.
    pub(crate) fn saved(&mut self, ticket: Ticket, result: Result<(), SaveError>) {
        let Some(id) = self.saves.remove(&ticket) else {
            return;
        };
        self.with(id, |machine, task| {
            let Some((_, step)) = task.saving.take_if(|(latest, _)| *latest == ticket) else {
                return;
            };
            match result {
                Ok(()) => {
                    task.retries = 0;
                    machine.step_done(task, step);
                }
                Err(error) => machine.step_failed(task, step, error),
            }
        });
    }

    fn step_done(&mut self, task: &mut Task, step: Step) {
        match step {
            Step::Accept | Step::Own => self.accepted(task),
            Step::Dispatch => self.dispatched(task),
            Step::End => self.ended(task),
            Step::Move => self.send_handover(task),
            Step::Stay | Step::Trim => {}
            Step::Forget | Step::Withdraw => task.phase = Phase::Gone,
        }
    }

    fn step_failed(&mut self, task: &mut Task, step: Step, error: SaveError) {
        match (step, error) {
            (Step::Accept | Step::Own, error) => self.not_accepted(task, step, error),
            (Step::Withdraw, SaveError::Refused(KeptError::Joined(_))) => self.accepted(task),
            (_, SaveError::Refused(KeptError::Stale(_))) => self.lose(task),
            (_, SaveError::Refused(KeptError::Ended { outcome, .. })) => {
                self.stop_all(task);
                task.record.state = match outcome {
                    Some(outcome) => Saved::Ended {
                        outcome: *outcome,
                        at: self.clock.wall(self.now),
                    },
                    None => Saved::Forgotten { at: None },
                };
                self.ended(task);
            }
            // A result that the keepers do not take is none.
            (Step::End, SaveError::Refused(KeptError::Limit(error))) => {
                self.end(task, Outcome::Failed(error.into()));
            }
            // Forgotten by the keepers, or never accepted by them.
            (_, SaveError::Refused(KeptError::Unknown(_))) => self.leave(task),
            (Step::Dispatch, _) => self.not_dispatched(task),
            (step, _) => self.retry_later(task, Redo::Save(step)),
        }
    }

    /// Does it again after a pause.
    pub(crate) fn retry_later(&mut self, task: &mut Task, redo: Redo) {
        task.retries = task.retries.saturating_add(1);
        let pause = self.limits.backoff().pause(task.retries, self.jitter.luck());
        task.retry = Some((self.now.after(pause), redo));
    }

    /// Writes down what is better known now; nothing depends on it.
    pub(crate) fn rewrite(&mut self, task: &mut Task) {
        let stable = matches!(task.phase, Phase::Open | Phase::Committing(_));
        if task.record.guarantee == Guarantee::Local && stable {
            let (ticket, write) = (self.ticket(), self.put(task));
            self.out.push(Action::Persist { ticket, write });
        }
    }

    /// Takes back a write that may have happened; nothing depends on it.
    pub(crate) fn delete(&mut self, task: &Task) {
        let (ticket, write) = (self.ticket(), Write::Delete(task.id()));
        self.out.push(Action::Persist { ticket, write });
    }

    fn put(&self, task: &mut Task) -> Write {
        task.record.written = self.clock.wall(self.now);
        Write::Put(Box::new(task.record.clone()))
    }

    fn entry(&self, task: &mut Task, step: Step) -> Option<Entry> {
        let (id, epoch) = (task.id(), task.record.epoch);
        Some(match step {
            Step::Accept => Entry::Accept {
                owner: self.node,
                record: Box::new(task.record.clone()),
            },
            Step::Withdraw => Entry::Withdraw { task: id, epoch },
            Step::Own => Entry::Own {
                task: id,
                node: self.node,
                epoch,
            },
            Step::Dispatch => Entry::Dispatch {
                task: id,
                epoch,
                number: task.attempts.failures() + 1,
                provider: task.attempts.dispatching()?,
            },
            Step::End => Entry::End {
                task: id,
                epoch,
                outcome: task.record.outcome().cloned().unwrap_or(Outcome::Cancelled),
                at: self.clock.wall(self.now),
            },
            Step::Trim => Entry::Trim { task: id, epoch },
            Step::Forget => Entry::Forget { task: id, epoch },
            // An epoch is what moves a kept task.
            Step::Move | Step::Stay => return None,
        })
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
