//! What runs a model in parts: a pilot, or a crew.

use super::inside::Crew;
use super::pilot::Pilot;
use super::wire::Leg;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Tensors};
use karman_types::{Digest, TaskError};
use std::sync::Arc;

/// What runs a model in parts. It is also the model as tasks load it.
#[derive(Clone)]
pub(super) enum Running {
    /// Cut between its layers.
    Pilot(Arc<Pilot>),
    /// Split inside its layers.
    Crew(Arc<Crew>),
}

impl Running {
    /// The file of which it runs the parts.
    pub(super) fn digest(&self) -> Digest {
        match self {
            Self::Pilot(pilot) => pilot.digest(),
            Self::Crew(crew) => crew.digest(),
        }
    }

    /// Which node runs what of it, for people.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Pilot(pilot) => pilot.words(),
            Self::Crew(crew) => crew.words(),
        }
    }

    /// Runs the model on these inputs: the results, and who did what.
    pub(super) async fn run_in_parts(&self, inputs: Tensors) -> Result<(Tensors, Vec<Leg>), TaskError> {
        match self {
            Self::Pilot(pilot) => pilot.run(inputs).await,
            Self::Crew(crew) => crew.run(inputs).await,
        }
    }
}

impl Model for Running {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { Ok(self.run_in_parts(inputs).await?.0) }.boxed()
    }

    fn runs_on(&self) -> String {
        self.words()
    }
}
