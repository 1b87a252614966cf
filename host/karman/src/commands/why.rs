use crate::app::App;
use crate::commands::flow::waits;
use crate::control::Control;
use clap::Args;
use karman_node::{FlowEnding, FlowState, FlowStatus};
use karman_sched::log::Told;
use karman_types::{ErrorKind, TaskError, TaskId};
use serde_json::json;

/// `karman why`
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The id that `karman flow run` printed, that of an accepted task, or `decision` of `karman call --json`
    request: TaskId,
}

impl Why {
    /// Tells what was decided, what a run waits for, and of one that failed or was withdrawn why it ended like that.
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let told: Vec<Told> = control.get(&format!("/flows/{}/why", self.request))?;
        for told in &told {
            app.output.result(|| told.to_string(), || json!(told))?;
        }
        let status = self.run_status(&control)?;
        if let Some(ending) = status.as_ref().and_then(FlowEnding::of) {
            return app.output.result(|| ending.to_string(), || json!(ending));
        }
        let waits = status.as_ref().map(waits).unwrap_or_default();
        for waits in &waits {
            app.output.result(
                || waits.clone(),
                || json!({ "flow": self.request, "waits": waits }),
            )?;
        }
        match told.is_empty() && waits.is_empty() {
            true => Err(self.nothing(status.as_ref())),
            false => Ok(()),
        }
    }

    /// How far the run is. Nothing of what is no run, or not known here.
    fn run_status(&self, control: &Control) -> Result<Option<FlowStatus>, TaskError> {
        match control.get(&format!("/flows/{}", self.request)) {
            Err(error) if matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unavailable) => Ok(None),
            status => status.map(Some),
        }
    }

    /// There is nothing to tell.
    fn nothing(&self, status: Option<&FlowStatus>) -> TaskError {
        let request = self.request;
        if status.is_some_and(|status| status.state == FlowState::Forgotten) {
            let says = format!("run {request} has ended, and how is kept no longer");
            return TaskError::unavailable(says)
                .with_hint("see `result-retention` and `results-bytes` under [tasks] in node.toml");
        }
        TaskError::unavailable(format!("nothing was decided for {request} that is still known"))
            .with_hint("only tasks that name a `capability`, and calls and steps of workflows that several nodes could run, are decided about; `decisions` in node.toml says how much is remembered")
    }
}
