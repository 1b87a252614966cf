use super::status::{path, print, word};
use crate::app::App;
use crate::control::Control;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::FlowStatus;
use karman_types::{TaskError, TaskId};

/// `karman flow cancel`
#[derive(Args, Debug)]
pub(super) struct Cancel {
    /// The id that `karman flow run` printed
    flow: TaskId,
}

impl Cancel {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let before: FlowStatus = control.get(&path(self.flow))?;
        if before.state.has_ended() {
            return Err(
                TaskError::invalid(format!("run {} has ended: {}", self.flow, word(before.state)))
                    .with_hint("`karman flow status` shows what came out of it"),
            );
        }
        // It may have ended meanwhile: what came out of it stays all the same.
        let path = format!("{}?withdraw=true", path(self.flow));
        print(app, &control.order(Method::DELETE, &path, Bytes::new())?)
    }
}
