use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::{NodeStatus, PluginStatus};
use karman_types::{TaskError, format_bytes};
use serde_json::json;

/// `karman top`
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Ids in full length
    #[arg(long)]
    long: bool,
}

impl Top {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let status: NodeStatus = Control::new(app)?.get("/status")?;
        if app.output.json {
            return status
                .plugins
                .iter()
                .try_for_each(|plugin| app.output.line(json!(plugin)));
        }
        let NodeStatus {
            node,
            tier,
            allocation,
            mesh,
            drained,
            trouble,
            plugins,
        } = status;
        let mesh = mesh.map(|mesh| format!("   mesh {mesh}")).unwrap_or_default();
        let drained = if drained { "   drained" } else { "" };
        app.output.note(format!(
            "node {} ({tier}){mesh}   {allocation}{drained}",
            self.cut(&node)
        ));
        if let Some(trouble) = trouble {
            app.output.note(trouble);
        }
        let names = [
            "NAME", "VERSION", "ID", "WORLD", "CALLS", "RUNNING", "ERRORS", "MEMORY",
        ];
        let head = vec![names.map(str::to_owned).to_vec()];
        let rows: Vec<Vec<String>> = head
            .into_iter()
            .chain(plugins.iter().map(|plugin| self.row(plugin)))
            .collect();
        app.output.line(table(&rows))
    }

    fn row(&self, plugin: &PluginStatus) -> Vec<String> {
        vec![
            plugin.name.clone(),
            plugin.version.to_string(),
            self.cut(&plugin.id).to_owned(),
            plugin.world.clone(),
            plugin.calls.to_string(),
            plugin.running.to_string(),
            plugin.errors.to_string(),
            format_bytes(plugin.memory_peak),
        ]
    }

    fn cut<'a>(&self, id: &'a str) -> &'a str {
        if self.long { id } else { id.get(..8).unwrap_or(id) }
    }
}
