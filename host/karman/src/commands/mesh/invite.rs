use super::init::refused;
use crate::app::App;
use crate::control::Control;
use crate::error::Worded;
use crate::held::clock;
use clap::Args;
use http::Method;
use karman_mesh::Invitations;
use karman_mesh::membership::{Invitation, Issuer, Right, RootKey, UnixTime};
use karman_node::{InviteOrder, Time};
use karman_package::PublicKey;
use karman_types::{TaskError, Tier, parse_duration};
use qrcode::QrCode;
use qrcode::render::unicode;
use serde_json::json;
use std::time::Duration;

/// `karman mesh invite`
#[derive(Args, Debug)]
pub(super) struct Invite {
    /// Where the node will stand: edge, fog, cloud or space
    #[arg(long)]
    tier: Tier,
    /// How long the invitation can be used
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_duration)]
    expires: Duration,
    /// How long the membership lasts before it must be renewed [default: 30d, or as long as that of the node that invites]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// A further right, besides `call:*`: deploy:PATTERN, bucket-read:PATTERN, bucket-write:PATTERN, issue or revoke; may be given again
    #[arg(long = "right", value_name = "RIGHT")]
    rights: Vec<Right>,
    /// The key of the node that it is for (`karman node id` there); it then joins without this node in reach
    #[arg(long = "for", value_name = "KEY")]
    for_node: Option<PublicKey>,
    /// Where it finds this node, such as /ip4/192.0.2.7/udp/7117/quic-v1 [default: where the running node listens]
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<karman_mesh::Multiaddr>,
}

impl Invite {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let order = InviteOrder {
            tier: self.tier,
            expires: Time(self.expires),
            lasts: self.lasts.map(Time),
            rights: self.rights.clone(),
            for_node: self.for_node,
            addresses: self.addresses.clone(),
        };
        let invitation = match Control::of_running(app)? {
            Some(control) => {
                let word: String =
                    control.order(Method::POST, "/mesh/invitations", json!(order).to_string().into())?;
                word.parse().map_err(refused)?
            }
            None => by_root_key(app, &order)?,
        };
        let (word, id, expires) = (
            invitation.to_string(),
            invitation.id().to_string(),
            invitation.expires(),
        );
        app.output.result(
            || word.clone(),
            || json!({ "invitation": word, "id": id, "tier": self.tier, "expires": expires.seconds() }),
        )?;
        // In capitals the code needs fewer modules; the word does not care.
        if let Ok(code) = QrCode::new(word.to_ascii_uppercase()) {
            app.output.note(code.render::<unicode::Dense1x2>().build());
        }
        app.output.note(format!(
            "for one node, until {expires}: karman node up --join INVITATION; `karman mesh withdraw {}` takes it back",
            &id[..8]
        ));
        Ok(())
    }
}

/// Where no node runs, the root key can sign as well; where a newcomer finds the node, only the user knows then.
fn by_root_key(app: &App, order: &InviteOrder) -> Result<Invitation, TaskError> {
    order.check()?;
    let keys = app.keys()?;
    let root = keys.mesh_root().map_err(Worded::worded)?.ok_or_else(|| {
        TaskError::unavailable("no node runs here, and this machine does not hold the root key of a mesh")
            .with_hint(
                "invite where `karman mesh init` was done, or at a node that runs and has the right `issue`",
            )
    })?;
    if order.addresses.is_empty() {
        return Err(
            TaskError::unavailable("where is this node to be found? it does not run")
                .with_hint("start it (`karman node up`), or give --address"),
        );
    }
    let now = clock();
    let invitation = Issuer::root(&RootKey::from_seed(&root)).invite(
        &order.terms(now, UnixTime::MAX),
        now.after(order.expires.0),
        order.for_node.as_ref().map(PublicKey::as_bytes),
        order.addresses.iter().map(ToString::to_string).collect(),
        now,
    );
    let invitation = invitation.map_err(refused)?;
    // First, so that whatever word is told can be withdrawn.
    let store = app.home().store().map_err(Worded::worded)?;
    Invitations::of(&store)
        .remember(&invitation, now)
        .map_err(Worded::worded)?;
    Ok(invitation)
}
