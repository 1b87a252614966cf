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
        print(
            app,
            &control.order(Method::DELETE, &path(self.flow), Bytes::new())?,
        )
    }
}
