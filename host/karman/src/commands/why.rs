use crate::app::App;
use crate::control::Control;
use clap::Args;
use karman_sched::log::Told;
use karman_types::{TaskError, TaskId};
use serde_json::json;

/// `karman why`
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The id that `karman flow run` printed, that of an accepted task, or `decision` of `karman call --json`
    request: TaskId,
}

impl Why {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let told: Vec<Told> = Control::new(app)?.get(&format!("/flows/{}/why", self.request))?;
        if told.is_empty() {
            return Err(TaskError::unavailable(format!("nothing was decided for {} that is still known", self.request))
                .with_hint("only tasks that name a `capability`, and calls and steps of workflows that several nodes could run, are decided about; `decisions` in node.toml says how much is remembered"));
        }
        told.iter()
            .try_for_each(|told| app.output.result(|| told.to_string(), || json!(told)))
    }
}
