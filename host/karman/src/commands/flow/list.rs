use super::status::row;
use crate::app::App;
use crate::control::Control;
use crate::output::table;
use karman_node::FlowStatus;
use karman_types::TaskError;
use serde_json::json;

pub(super) fn run(app: &App) -> Result<(), TaskError> {
    let flows: Vec<FlowStatus> = Control::new(app)?.get("/flows")?;
    if app.output.json {
        return flows.iter().try_for_each(|flow| app.output.line(json!(flow)));
    }
    let head = ["RUN", "WORKFLOW", "STATE", ""].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(flows.iter().map(row)).collect();
    app.output.line(table(&rows))
}
