use crate::app::App;
use crate::control::{Control, escape};
use clap::Args;
use http::Method;
use karman_node::OnNode;
use karman_types::TaskError;
use serde_json::json;

/// `karman undeploy`
#[derive(Args, Debug)]
pub(crate) struct Undeploy {
    /// The plugin's name
    name: String,
    /// On which nodes of the mesh: tier=edge, a node's id, all, or several with commas [default: this node]
    #[arg(long, value_name = "SELECTOR")]
    on: Option<String>,
}

impl Undeploy {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        if let Some(selector) = &self.on {
            return self.run_on(app, &control, selector);
        }
        let path = format!("/plugins/{}", escape(&self.name));
        control.order::<()>(Method::DELETE, &path, Default::default())?;
        let name = &self.name;
        app.output
            .result(|| format!("{name} is out of service"), || json!({ "name": name }))
    }

    /// Takes it out of service on every node that the selector names; done when none of them has it any more.
    fn run_on(&self, app: &App, control: &Control, selector: &str) -> Result<(), TaskError> {
        let path = format!("/mesh/plugins/{}?on={}", escape(&self.name), escape(selector));
        let outcomes: Vec<OnNode<()>> = control.order(Method::DELETE, &path, Default::default())?;
        app.output.on_nodes(outcomes, |node, ()| {
            app.output.result(
                || format!("{} is out of service on {}", self.name, node.short()),
                || json!({ "name": self.name, "node": node }),
            )
        })
    }
}
