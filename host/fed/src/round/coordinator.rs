use super::core::{Core, Phase, Tally};
use super::gather::Gathering;
use super::private::Private;
use super::roster::{Member, Roster};
use super::{Action, Event, Failure, Ticket};
use crate::lora::Adapting;
use crate::privacy::Spent;
use crate::select::Selection;
use crate::strategy::Strategy;
use crate::{Arithmetic, ClientId, Instant, Layout, Pace, Run, RunError, Windows};
use fastrand::Rng;
use karman_tensor::arithmetic::Grid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One federated run: it asks clients to train, gathers their updates, and makes version after version of a model.
///
/// Feed it what happens ([`Event`]) and do what it says ([`Action`]); when [`Coordinator::next_timeout`] has come, feed it
/// [`Event::Tick`]. The same events at the same times give the same actions. [`Coordinator::checkpoint`] is all of its state.
pub struct Coordinator {
    pub(crate) run: Run,
    pub(crate) layout: Layout,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) selection: Box<dyn Selection>,
    pub(crate) arithmetic: Arc<dyn Arithmetic>,
    pub(crate) grid: Grid,
    pub(crate) gathering: Gathering,
    pub(crate) core: Core,
    /// The checkpoint that is on its way to the disk; orders wait for it.
    pub(crate) saving: Option<Ticket>,
    /// The version of the last checkpoint that was asked for.
    pub(crate) saved_version: u64,
    pub(crate) out: Vec<Action>,
}

/// How far a run is, for people.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Status {
    /// Versions made.
    pub version: u64,
    /// Versions to make.
    pub rounds: u64,
    /// Clients that can be reached.
    pub here: usize,
    /// Clients that train now.
    pub training: usize,
    /// Updates gathered for the next version.
    pub gathered: usize,
    /// The accuracy that clients reported last.
    pub accuracy: Option<f64>,
    /// What the versions made so far give away of a client, in a private run. Where clients add the noise themselves, what the one has
    /// given away at most that has answered most orders: each keeps an account of its own.
    pub spent: Option<Spent>,
    /// Whether the run is over.
    pub ended: bool,
    /// Why it ended before its last round.
    pub failure: Option<Failure>,
}

/// A run that cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The description cannot be followed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The model is not that of the layout.
    #[error("the model has {given} numbers, its layout {expected}")]
    Length {
        /// What the layout has.
        expected: usize,
        /// What the model has.
        given: usize,
    },
    /// The model is not finite.
    #[error("number {0} of the model is not finite")]
    NotFinite(usize),
    /// An array that cannot have adapters.
    #[error("`low-rank.arrays` names `{array}`: {why}")]
    NotAdapted {
        /// Its name.
        array: String,
        /// Why.
        why: String,
    },
    /// A checkpoint with adapters of another run.
    #[error("its adapters are not those that `[low-rank]` describes")]
    Adapters,
}

impl Coordinator {
    /// A run at its beginning, with the model that it starts from. Strategy and selection are those of the description, or
    /// plugins that stand in for them. `entropy` is what secret chance is drawn from, such as the noise of a private run: fresh from
    /// the operating system, and never used again.
    ///
    /// # Errors
    /// When the description cannot be followed, or the model is not one of the layout with finite numbers.
    pub fn new(
        run: Run,
        layout: Layout,
        model: Vec<f32>,
        strategy: Box<dyn Strategy>,
        selection: Box<dyn Selection>,
        arithmetic: Arc<dyn Arithmetic>,
        entropy: [u8; 32],
    ) -> Result<Self, StartError> {
        run.check()?;
        let privacy = Private::of(&run, entropy).map_err(RunError::from)?;
        if model.len() != layout.length() {
            let (expected, given) = (layout.length(), model.len());
            return Err(StartError::Length { expected, given });
        }
        if let Some(place) = model.iter().position(|number| !number.is_finite()) {
            return Err(StartError::NotFinite(place));
        }
        let low_rank = Adapting::new(&run, &layout, &model)?;
        let core = Core {
            now: Instant(0),
            random: run.seed,
            version: 0,
            model: model.into(),
            phase: Phase::Waiting,
            round: 0,
            roster: Roster::new(),
            windows: Windows::new(),
            assignments: BTreeMap::new(),
            next_assignment: 0,
            tickets: 0,
            failed_rounds: 0,
            tally: Tally::default(),
            evaluating: None,
            accuracy: None,
            privacy,
            low_rank,
            encodings: Vec::new(),
        };
        Ok(Self::with(run, layout, strategy, selection, arithmetic, core))
    }

    /// Puts the parts together; nothing is gathered yet.
    pub(crate) fn with(
        run: Run,
        layout: Layout,
        strategy: Box<dyn Strategy>,
        selection: Box<dyn Selection>,
        arithmetic: Arc<dyn Arithmetic>,
        core: Core,
    ) -> Self {
        let grid = run.grid();
        let gathering = Gathering::new(&*strategy, layout.length() * strategy.rows(), grid);
        let saved_version = core.version;
        Self {
            run,
            layout,
            strategy,
            selection,
            arithmetic,
            grid,
            gathering,
            core,
            saving: None,
            saved_version,
            out: Vec::new(),
        }
    }

    /// Takes in what happened, and returns what is to be done, in order.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        self.core.now = self.core.now.max(now);
        match event {
            Event::Here { client, profile } => self.here(client, profile),
            Event::Gone { client } => self.gone(client),
            Event::Planned { windows } => self.core.windows = windows,
            Event::Measured { encodings } => self.core.encodings = encodings,
            Event::Updated {
                client,
                assignment,
                update,
            } => self.updated(client, assignment, &update),
            Event::Judged {
                client,
                assignment,
                judgement,
            } => self.judged(client, assignment, judgement),
            Event::GaveUp {
                client,
                assignment,
                reason,
            } => self.gave_up(client, assignment, reason),
            Event::Summed { sum } => self.summed(*sum),
            Event::Swarmed { swarmed } => self.swarmed(*swarmed),
            Event::Misdeclared { part } => self.misdeclared(&part),
            Event::Unsummed {
                assignments,
                liar,
                reason,
            } => self.unsummed(&assignments, liar, reason),
            Event::Saved { ticket } => self.saved(ticket),
            Event::Unsaved { ticket, reason } => self.unsaved(ticket, reason),
            Event::Severed { windows } => {
                self.core.windows = windows;
                self.sever();
                // It was about to end.
                if matches!(self.core.phase, Phase::Ending(_)) && self.saving.is_none() {
                    self.save();
                }
            }
            Event::Stop => self.end(Some(Failure::Stopped)),
            Event::Tick => {}
        }
        self.expire();
        self.progress();
        self.send();
        std::mem::take(&mut self.out)
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let orders = self
            .core
            .assignments
            .values()
            .filter_map(|assignment| assignment.until);
        let evaluating = self
            .core
            .evaluating
            .as_ref()
            .and_then(|evaluating| evaluating.until);
        orders
            .chain(evaluating)
            .chain(self.waits_until())
            .chain(self.looks_again())
            .min()
    }

    /// How far the run is.
    pub fn status(&self) -> Status {
        self.core.status(&self.run, self.gathering.count())
    }

    /// The model as it is now.
    pub fn model(&self) -> &Arc<[f32]> {
        &self.core.model
    }

    /// What the run follows.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The arrays of the model.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.core.phase, Phase::Ending(_) | Phase::Ended(_))
    }

    /// A generator that goes on where the last one stood.
    pub(crate) fn random<T>(&mut self, draw: impl FnOnce(&mut Self, &mut Rng) -> T) -> T {
        let mut random = Rng::with_seed(self.core.random);
        let drawn = draw(self, &mut random);
        self.core.random = random.u64(..);
        drawn
    }

    /// When a semi-asynchronous round may close with less than it hopes for.
    fn waits_until(&self) -> Option<Instant> {
        match (&self.run.pace, &self.core.phase) {
            (Pace::SemiAsynchronous { wait, minimum, .. }, Phase::Open(Some(since))) => {
                let until = since.after(*wait);
                // Once it has passed only an update helps.
                (until > self.core.now || self.gathering.count() >= *minimum).then_some(until)
            }
            _ => None,
        }
    }

    /// Who is not eligible now may be later, without anything happening: when it comes into view.
    fn looks_again(&self) -> Option<Instant> {
        let wants = match self.run.pace {
            Pace::Buffered { at_once, .. } => self.core.assignments.len() < at_once,
            _ => self.core.phase == Phase::Waiting,
        };
        let is_free = |client: &ClientId| self.core.roster.get(client).is_some_and(Member::is_free);
        let planned = self
            .core
            .windows
            .iter()
            .filter(|(client, _)| wants && is_free(client));
        let starts = planned.flat_map(|(_, windows)| windows.iter().map(|window| window.start));
        starts.filter(|start| *start > self.core.now).min()
    }

    /// Opens and closes rounds until nothing is left to be done now.
    fn progress(&mut self) {
        loop {
            if self.is_over() {
                return;
            }
            match self.core.phase {
                Phase::Waiting => {
                    if !self.open() {
                        // Nobody to train the version, but it is to last.
                        if self.core.version > self.saved_version {
                            self.save();
                        }
                        return;
                    }
                }
                _ if self.is_due() => self.close(),
                _ => {
                    self.refill();
                    return;
                }
            }
        }
    }

    /// Ends the run once the version that it has is durable.
    pub(crate) fn end(&mut self, failure: Option<Failure>) {
        if self.is_over() {
            return;
        }
        for (id, assignment) in std::mem::take(&mut self.core.assignments) {
            self.withdraw(id, assignment.client);
        }
        self.abandon_evaluation();
        self.core.phase = Phase::Ending(failure);
        self.save();
    }

    fn saved(&mut self, ticket: Ticket) {
        if self.saving != Some(ticket) {
            return;
        }
        self.saving = None;
        if let Phase::Ending(failure) = &self.core.phase {
            let failure = failure.clone();
            self.core.phase = Phase::Ended(failure.clone());
            let version = self.core.version;
            self.out.push(Action::Finished { version, failure });
        }
    }

    fn unsaved(&mut self, ticket: Ticket, reason: String) {
        if self.saving != Some(ticket) {
            return;
        }
        self.saving = None;
        self.break_off(Failure::Unsaved(reason));
    }

    /// Ends the run as it is, without another checkpoint.
    pub(crate) fn break_off(&mut self, failure: Failure) {
        for (id, assignment) in std::mem::take(&mut self.core.assignments) {
            self.withdraw(id, assignment.client);
        }
        self.abandon_evaluation();
        let failure = Some(failure);
        self.core.phase = Phase::Ended(failure.clone());
        let version = self.core.version;
        self.out.push(Action::Finished { version, failure });
    }

    /// Asks for a checkpoint of this moment.
    pub(crate) fn save(&mut self) {
        self.core.tickets += 1;
        self.saved_version = self.core.version;
        let ticket = Ticket(self.core.tickets);
        match self.checkpoint() {
            Ok(checkpoint) => {
                self.saving = Some(ticket);
                let checkpoint = Box::new(checkpoint);
                self.out.push(Action::Save { ticket, checkpoint });
            }
            Err(error) => {
                self.saving = Some(ticket);
                self.unsaved(ticket, error.to_string());
            }
        }
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status();
        f.debug_struct("Coordinator")
            .field("run", &self.run.name)
            .field("status", &status)
            .finish_non_exhaustive()
    }
}
