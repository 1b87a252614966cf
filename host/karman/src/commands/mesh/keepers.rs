use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use http::Method;
use karman_node::{KeeperStatus, KeepersStatus};
use karman_types::TaskError;
use serde_json::json;

/// `karman mesh keepers`
#[derive(Args, Debug)]
pub(super) struct Keepers {
    /// The ids of three nodes, or their beginnings: they keep tasks from now on, in the place of those before
    #[arg(num_args = 0..=3, value_name = "NODE")]
    nodes: Vec<String>,
    /// Ids in full length
    #[arg(long)]
    long: bool,
}

impl Keepers {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let status: KeepersStatus = match self.nodes.len() {
            0 => control.get("/mesh/keepers")?,
            3 => {
                let progress = app.progress("waiting until they agree");
                let named = control.order(
                    Method::POST,
                    "/mesh/keepers",
                    json!(self.nodes).to_string().into(),
                );
                drop(progress);
                named?
            }
            n => {
                return Err(
                    TaskError::invalid(format!("{n} nodes are named, and three keep tasks"))
                        .with_hint("a majority of three survives the loss of one: name three"),
                );
            }
        };
        if app.output.json {
            return app.output.line(json!(status));
        }
        let head = ["NODE", "", "LOG", "APPLIED"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = std::iter::once(head)
            .chain(status.keepers.iter().map(|keeper| self.row(keeper)))
            .collect();
        app.output.line(table(&rows))?;
        match status.tasks {
            Some(tasks) => app.output.note(format!("{tasks} tasks are kept")),
            None => app
                .output
                .note("no majority agrees on a leader: nothing can be kept now"),
        }
        Ok(())
    }

    fn row(&self, keeper: &KeeperStatus) -> Vec<String> {
        let index = |index: Option<u64>| index.map_or_else(|| "-".into(), |index| index.to_string());
        let id = match self.long {
            true => keeper.node.to_string(),
            false => keeper.node.short(),
        };
        let mark = if keeper.here { " (here)" } else { "" };
        let role = match (keeper.leader, keeper.reachable) {
            (true, _) => "leads",
            (false, true) => "follows",
            (false, false) => "not in reach",
        };
        vec![
            format!("{id}{mark}"),
            role.into(),
            index(keeper.log),
            index(keeper.applied),
        ]
    }
}
