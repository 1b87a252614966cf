//! A task that this node runs itself: with one of its models, or with a plugin.

use super::dispatch::Ran;
use super::model_tasks;
use crate::plugins::Plugins;
use crate::runtime::Runtime;
use karman_engine::Slot;
use karman_engine::capability::keyvalue::Buckets;
use karman_types::{CallContext, Limits, TaskError, TaskRequest, TaskResponse};
use std::sync::Arc;

/// What of this node runs a task.
pub(super) enum OwnTask {
    /// The model of this name.
    Model(String),
    Plugin(Arc<Slot>),
}

impl OwnTask {
    /// What runs the task of this name.
    ///
    /// # Errors
    /// `unavailable` (field `task`) where nothing does.
    pub(super) fn find(plugins: &Plugins, task: &str) -> Result<Self, TaskError> {
        match model_tasks::find(plugins.runtime(), task) {
            Some(model) => Ok(Self::Model(model)),
            None => plugins.find(task).map(Self::Plugin),
        }
    }

    /// The most bytes of its input.
    pub(super) fn most_input(&self) -> u64 {
        match self {
            Self::Model(_) => Limits::ceiling().input.0,
            Self::Plugin(slot) => slot.current().limits().input.0,
        }
    }

    /// Runs it; a plugin over these buckets, by default those of the node.
    ///
    /// # Errors
    /// What the model or the plugin ends with.
    pub(super) async fn run(
        &self,
        runtime: &Runtime,
        request: TaskRequest,
        context: CallContext,
        buckets: Option<Arc<dyn Buckets>>,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        let slot = match self {
            Self::Model(model) => return model_tasks::run(runtime, model, request, context.within).await,
            Self::Plugin(slot) => slot,
        };
        let (response, report) = slot.current().call_over(request, context, buckets).await?;
        let ran = Ran {
            took: report.took,
            memory_peak: report.memory_peak,
            ran_on: report.ran_on,
            ..Ran::default()
        };
        Ok((response, ran))
    }
}
