use crate::app::App;
use crate::control::{Control, escape};
use crate::held::Held;
use clap::Args;
use http::Method;
use karman_node::OnNode;
use karman_types::TaskError;
use serde_json::json;

/// `karman model remove`
#[derive(Args, Debug)]
pub(super) struct Remove {
    /// The model's name
    name: String,
    /// From which nodes of the mesh: tier=edge, a node's id, all, or several with commas [default: this node]
    #[arg(long, value_name = "SELECTOR")]
    on: Option<String>,
}

impl Remove {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        if let Some(selector) = &self.on {
            return self.run_on(app, selector);
        }
        let removed = Held::open(app)?.remove_model(&self.name)?;
        app.output
            .result(|| format!("{} is removed", removed.name), || json!(removed))
    }

    /// Removes it from every node that the selector names; done when none of them has it any more.
    fn run_on(&self, app: &App, selector: &str) -> Result<(), TaskError> {
        let path = format!("/mesh/models/{}?on={}", escape(&self.name), escape(selector));
        let outcomes: Vec<OnNode<()>> =
            Control::new(app)?.order(Method::DELETE, &path, Default::default())?;
        app.output.on_nodes(outcomes, |node, ()| {
            app.output.result(
                || format!("{} is removed from {}", self.name, node.short()),
                || json!({ "name": self.name, "node": node }),
            )
        })
    }
}
