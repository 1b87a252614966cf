use crate::app::App;
use crate::held::Held;
use crate::output::table;
use clap::Args;
use karman_mesh::{InvitationState, InvitationStatus};
use karman_types::{NodeId, TaskError};
use serde_json::json;

/// `karman mesh invitations`
#[derive(Args, Debug)]
pub(super) struct Invitations {
    /// Show ids in full
    #[arg(long)]
    long: bool,
}

impl Invitations {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let invitations = match Held::if_any(app)? {
            Some(held) => held.invitations()?,
            None => Vec::new(),
        };
        if app.output.json {
            return invitations
                .iter()
                .try_for_each(|invitation| app.output.line(json!(invitation)));
        }
        let head = ["INVITATION", "TIER", "MADE", "EXPIRES", "STATE"].map(str::to_owned);
        let rows = invitations.iter().map(|invitation| self.row(invitation));
        let rows: Vec<Vec<String>> = std::iter::once(head.to_vec()).chain(rows).collect();
        app.output.line(table(&rows))
    }

    fn row(&self, invitation: &InvitationStatus) -> Vec<String> {
        let id = &invitation.id[..];
        let shown = if self.long { id } else { &id[..id.len().min(8)] };
        vec![
            shown.to_owned(),
            invitation.tier.to_string(),
            invitation.made.to_string(),
            invitation.expires.to_string(),
            in_words(invitation),
        ]
    }
}

fn in_words(invitation: &InvitationStatus) -> String {
    let whose = |node: Option<NodeId>| node.map(|node| node.short()).unwrap_or_default();
    match invitation.state {
        InvitationState::Open if invitation.for_node.is_some() => {
            format!("for {}", whose(invitation.for_node))
        }
        InvitationState::Open => "open".into(),
        InvitationState::Used => format!("used by {}", whose(invitation.used_by)),
        InvitationState::Withdrawn => "withdrawn".into(),
        InvitationState::Expired => "expired".into(),
    }
}
