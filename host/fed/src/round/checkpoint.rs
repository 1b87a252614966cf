use super::core::Core;
use super::gather::SavedGathering;
use super::{Coordinator, StartError, Status};
use crate::lora::Adapting;
use crate::select::Selection;
use crate::strategy::Strategy;
use crate::{Arithmetic, ArithmeticError, ClientId, Layout, Run, StateError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Everything that a run needs to go on: what was decided, what was gathered, what is on its way.
///
/// It is asked for at each version, before the orders that carry it go out. A run that goes on from it sends these orders, under the same
/// numbers, and waits for those that were sent before. With the events that followed, in their order and with their times, it comes to
/// the same versions, bit by bit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Checkpoint {
    run: Run,
    layout: Layout,
    core: Core,
    gathering: SavedGathering,
    #[serde(with = "serde_bytes")]
    strategy: Vec<u8>,
    #[serde(with = "serde_bytes")]
    selection: Vec<u8>,
}

/// A checkpoint from which no run goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Its parts do not fit each other.
    #[error("the checkpoint cannot be followed: {0}")]
    Start(#[from] StartError),
    /// Its strategy or selection is another one.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is no memory for its sum.
    #[error(transparent)]
    Arithmetic(#[from] ArithmeticError),
}

impl Checkpoint {
    /// What the run follows: it says which strategy and selection to build.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Versions made so far.
    pub fn version(&self) -> u64 {
        self.core.version
    }

    /// The clients with whom contacts were planned.
    pub fn planned(&self) -> impl Iterator<Item = ClientId> {
        self.core.windows.keys().copied()
    }

    /// The clients that were there. Others that the run has met are to be announced again.
    pub fn present(&self) -> impl Iterator<Item = ClientId> {
        let there = self.core.roster.iter().filter(|(_, member)| member.here);
        there.map(|(client, _)| *client)
    }

    /// How far the run was.
    pub fn status(&self) -> Status {
        self.core.status(&self.run, self.gathering.count())
    }

    /// The arrays of the model.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The model as it was.
    pub fn model(&self) -> &Arc<[f32]> {
        &self.core.model
    }

    /// The time at which it was taken; after a restart time goes on from there.
    pub fn taken(&self) -> crate::Instant {
        self.core.now
    }
}

impl Coordinator {
    /// The state of this moment.
    ///
    /// # Errors
    /// When the device on which the sum lies fails.
    pub fn checkpoint(&self) -> Result<Checkpoint, ArithmeticError> {
        Ok(Checkpoint {
            run: self.run.clone(),
            layout: self.layout.clone(),
            core: self.core.clone(),
            gathering: self.gathering.save()?,
            strategy: self.strategy.save(),
            selection: self.selection.save(),
        })
    }

    /// A run that goes on from a checkpoint. [`super::Event::Tick`] is due at once.
    ///
    /// # Errors
    /// When the checkpoint does not fit itself, the strategy or the selection.
    pub fn resume(
        checkpoint: Checkpoint,
        mut strategy: Box<dyn Strategy>,
        mut selection: Box<dyn Selection>,
        arithmetic: Arc<dyn Arithmetic>,
    ) -> Result<Self, ResumeError> {
        let Checkpoint {
            run,
            layout,
            core,
            gathering,
            ..
        } = checkpoint;
        run.check().map_err(StartError::from)?;
        if core.model.len() != layout.length() {
            let (expected, given) = (layout.length(), core.model.len());
            return Err(StartError::Length { expected, given }.into());
        }
        Adapting::check(core.low_rank.as_ref(), &run, &layout)?;
        strategy.load(&checkpoint.strategy)?;
        selection.load(&checkpoint.selection)?;
        let mut resumed = Self::with(run, layout, strategy, selection, arithmetic, core);
        let arithmetic = resumed.arithmetic.clone();
        resumed.gathering.restore(gathering, &*arithmetic)?;
        Ok(resumed)
    }
}
