use super::status::{path, print};
use crate::app::App;
use crate::control::Control;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::{FlowState, FlowStatus};
use karman_types::{ErrorKind, TaskError, TaskId};

/// `karman flow cancel`
#[derive(Args, Debug)]
pub(super) struct Cancel {
    /// The id that `karman flow run` printed
    flow: TaskId,
}

impl Cancel {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let path = format!("{}?withdraw=true", path(self.flow));
        let status: FlowStatus = control.order(Method::DELETE, &path, Bytes::new())?;
        let was_failing = status
            .error
            .as_ref()
            .is_some_and(|error| error.kind != ErrorKind::Cancelled);
        if status.state == FlowState::Undoing && was_failing {
            app.output
                .note("it had failed before, and is being undone: there is nothing more to cancel");
        }
        print(app, &status)
    }
}
