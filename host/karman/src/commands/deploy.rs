use crate::app::App;
use crate::commands::build::list;
use crate::control::{Control, escape};
use crate::error::Worded;
use crate::out_of_reach::OutOfReach;
use crate::source::Source;
use clap::Args;
use http::Method;
use karman_node::{Deployed, NodeStatus, OnNode, PeerStatus, Sent};
use karman_space::Priority;
use karman_types::{ErrorKind, TaskError, format_bytes, parse_duration};
use serde_json::json;
use std::time::Duration;

/// `karman deploy`
#[derive(Args, Debug)]
pub(crate) struct Deploy {
    /// A .wasm file, a project's folder, or a reference in a registry
    plugin: String,
    /// On which nodes of the mesh: tier=edge, a node's id, all, or several with commas [default: this node]
    #[arg(long, value_name = "SELECTOR")]
    on: Option<String>,
    /// If the node cannot be reached now, let the plugin wait for it this long, sealed; --on names one node
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "on")]
    wait: Option<Duration>,
    /// Which goes first of what waits: bulk, normal or expedited [default: normal]
    #[arg(long, value_name = "PRIORITY", value_parser = priority, requires = "wait")]
    priority: Option<Priority>,
    /// Allow what the plugin newly asks for; on other nodes their own operators do
    #[arg(long, conflicts_with = "on")]
    grant_asked: bool,
    /// Let an older version replace a newer one
    #[arg(long)]
    downgrade: bool,
    /// Let another publisher's plugin take over the name; on other nodes their own operators do
    #[arg(long, conflicts_with = "on")]
    replace: bool,
}

impl Deploy {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        // Asked first: without a node there is no point in building or pulling.
        let status: NodeStatus = control.get("/status")?;
        let source = Source::find(app, &self.plugin)?;
        if let Some(selector) = &self.on {
            return self.run_there(app, &control, &source, selector);
        }
        let options = [
            ("grant-asked", self.grant_asked),
            ("downgrade", self.downgrade),
            ("replace", self.replace),
        ];
        let query: Vec<String> = options
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let path = format!("/plugins/{}?{}", escape(&source.name), query.join("&"));
        let progress = app.progress(&format!("deploying {}", source.name));
        let deployed = control
            .order::<Deployed>(Method::POST, &path, source.bytes.into())
            .map_err(Worded::worded);
        drop(progress);
        let deployed = deployed?;
        let node = status.node.get(..8).unwrap_or(&status.node);
        app.output.result(
            || text(&deployed, node),
            || {
                let mut object = json!(deployed);
                object["node"] = status.node.as_str().into();
                object
            },
        )?;
        if let Some(how) = ungranted(&deployed) {
            app.output.note(format!("{how}, or deploy it with --grant-asked"));
        }
        Ok(())
    }
}

impl Deploy {
    /// Deploys on other nodes: now, or with `--wait` when the node can be reached.
    fn run_there(
        &self,
        app: &App,
        control: &Control,
        source: &Source,
        selector: &str,
    ) -> Result<(), TaskError> {
        let Some(wait) = self.wait else {
            let deployed = self.order_on(app, control, source, selector)?;
            return self.show(app, (control, selector), deployed);
        };
        if is_reached(control, selector)? {
            // One that has just gone is still taken for reached.
            let deployed = self.order_on(app, control, source, selector);
            if !is_gone(&deployed) {
                return self.show(app, (control, selector), deployed?);
            }
        }
        self.run_later(app, control, source, (selector, wait))
    }

    /// Has every node that the selector names take the plugin.
    fn order_on(
        &self,
        app: &App,
        control: &Control,
        source: &Source,
        selector: &str,
    ) -> Result<Vec<OnNode<Deployed>>, TaskError> {
        let (name, on) = (escape(&source.name), escape(selector));
        let path = format!("/mesh/plugins/{name}?on={on}&downgrade={}", self.downgrade);
        let _progress = app.progress(&format!("deploying {} on {selector}", source.name));
        control
            .order(Method::POST, &path, source.bytes.clone().into())
            .map_err(Worded::worded)
    }

    /// Prints what came of it on each node, and which were not reached; done when all that were have it.
    fn show(
        &self,
        app: &App,
        (control, selector): (&Control, &str),
        deployed: Vec<OnNode<Deployed>>,
    ) -> Result<(), TaskError> {
        let out_of_reach = OutOfReach::of(control, selector, &deployed);
        out_of_reach.say(&app.output);
        app.output.on_nodes(deployed, |node, deployed| {
            app.output.result(
                || text(&deployed, &node.short()),
                || {
                    let mut object = json!(deployed);
                    object["node"] = json!(node);
                    object["out_of_reach"] = json!(out_of_reach.nodes());
                    object
                },
            )?;
            if let Some(how) = ungranted(&deployed) {
                app.output.note(format!("{how} on that node"));
            }
            Ok(())
        })
    }
}

impl Deploy {
    /// Leaves the plugin to the node here, which hands it on at the next contact.
    fn run_later(
        &self,
        app: &App,
        control: &Control,
        source: &Source,
        (node, wait): (&str, Duration),
    ) -> Result<(), TaskError> {
        let (name, on) = (escape(&source.name), escape(node));
        let mut path = format!(
            "/mesh/bundles/{name}?on={on}&wait-ms={}&downgrade={}",
            wait.as_millis(),
            self.downgrade
        );
        if let Some(priority) = &self.priority {
            path.push_str(&format!(
                "&priority={}",
                json!(priority).as_str().unwrap_or_default()
            ));
        }
        let sent = control
            .order::<Sent>(Method::POST, &path, source.bytes.clone().into())
            .map_err(Worded::worded)?;
        let node = sent.node.short();
        app.output.result(
            || {
                let when = match &sent.arrives {
                    Some(arrives) => format!("there by {arrives}"),
                    None => "no contact is planned that brings it there in time".into(),
                };
                format!(
                    "{}   waits for {node}   {when}   bundle {}   until {}",
                    sent.plugin,
                    sent.bundle.short(),
                    sent.expires
                )
            },
            || json!(sent),
        )
    }
}

/// Whether the node can be reached now.
fn is_reached(control: &Control, node: &str) -> Result<bool, TaskError> {
    let peers: Vec<PeerStatus> = control.get("/mesh/peers")?;
    Ok(peers
        .iter()
        .any(|peer| peer.path.is_some() && peer.node.to_string().starts_with(node)))
}

/// Whether the one node that was asked did not answer, so that the plugin can wait for it.
fn is_gone(deployed: &Result<Vec<OnNode<Deployed>>, TaskError>) -> bool {
    let error = match deployed {
        Err(error) => Some(error),
        Ok(on) => match on.as_slice() {
            [OnNode { outcome, .. }] => outcome.as_ref().err(),
            _ => None,
        },
    };
    error.is_some_and(|error| (error.kind, error.field.as_deref()) == (ErrorKind::Unavailable, Some("node")))
}

fn priority(text: &str) -> Result<Priority, String> {
    let known = [Priority::Bulk, Priority::Normal, Priority::Expedited];
    let named = known.into_iter().find(|priority| json!(priority) == text);
    named.ok_or_else(|| "the priorities are bulk, normal and expedited".into())
}

/// How the plugin gets what it asked for and does not hold.
fn ungranted(deployed: &Deployed) -> Option<String> {
    let refused: Vec<String> = deployed.refused.iter().map(ToString::to_string).collect();
    let (name, grants) = (&deployed.name, refused.join(" "));
    (!refused.is_empty()).then(|| format!("note: `karman node grant {name} {grants}` allows it"))
}

/// `event-screen 0.1.0   on 9c01d2e7   holds: kv:road   replaces 0.0.9`.
fn text(deployed: &Deployed, node: &str) -> String {
    let mut parts = vec![
        format!("{} {}", deployed.name, deployed.version),
        format!("on {node}"),
        format!("holds: {}", list(deployed.granted.iter())),
    ];
    if !deployed.refused.is_empty() {
        parts.push(format!("not granted: {}", list(deployed.refused.iter())));
    }
    if let Some(version) = &deployed.replaced {
        parts.push(format!("replaces {version}"));
    }
    if let Some(bytes) = deployed.state_moved {
        parts.push(format!("took over {} of state", format_bytes(bytes as u64)));
    }
    if deployed.state_dropped {
        parts.push("state of the version before dropped".into());
    }
    parts.join("   ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::NodeId;

    #[test]
    fn only_a_node_that_does_not_answer_is_waited_for() {
        let gone = || TaskError::unavailable("no node in reach is `994d62a4`").with_field("node");
        let on = |error| OnNode {
            node: NodeId::of_key(b"node"),
            outcome: Err(error),
        };
        assert!(is_gone(&Err(gone())) && is_gone(&Ok(vec![on(gone())])));
        for says_no in [
            TaskError::denied("no right `deploy:tiny`"),
            TaskError::unavailable("its disk is full"),
        ] {
            assert!(!is_gone(&Err(says_no.clone())) && !is_gone(&Ok(vec![on(says_no)])));
        }
        // The others have it, so that there is nothing to leave behind for them.
        assert!(!is_gone(&Ok(vec![on(gone()), on(gone())])));
    }
}
