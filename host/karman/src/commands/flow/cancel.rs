use super::status::{path, print};
use crate::app::App;
use crate::control::Control;
use bytes::Bytes;
use clap::Args;
use http::Method;
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
        let path = format!("{}?withdraw=true", path(self.flow));
        print(app, &control.order(Method::DELETE, &path, Bytes::new())?)
    }
}
