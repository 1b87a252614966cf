use crate::app::App;
use crate::control::Control;
use crate::held::Held;
use clap::Args;
use karman_mesh::membership::{Issuer, Right, RootKey, UnixTime};
use karman_node::{InviteOrder, Time, reachable};
use karman_package::PublicKey;
use karman_store::NodeKeys;
use karman_types::{TaskError, Tier, parse_duration};
use qrcode::QrCode;
use qrcode::render::unicode;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `karman mesh invite`
#[derive(Args, Debug)]
pub(super) struct Invite {
    /// Where the node will stand: edge, fog, cloud or space
    #[arg(long)]
    tier: Tier,
    /// How long the invitation can be used
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_duration)]
    expires: Duration,
    /// How long the membership lasts before it must be renewed
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
    lasts: Duration,
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
        let failed = |error: &dyn std::fmt::Display| TaskError::internal(error.to_string());
        let keys = NodeKeys::open(&app.places.state).map_err(|error| failed(&error))?;
        let root = keys.mesh_root().map_err(|error| failed(&error))?.ok_or_else(|| {
            TaskError::unavailable("this machine does not hold the root key of a mesh")
                .with_hint("`karman mesh init` makes one; invite where that was done")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixTime::from_seconds(now.as_secs());
        let order = InviteOrder {
            tier: self.tier,
            expires: Time(self.expires),
            lasts: Time(self.lasts),
            rights: self.rights.clone(),
            for_node: self.for_node,
            addresses: self.addresses.clone(),
        };
        let terms = order.terms(now);
        let addresses = self.addresses(app)?;
        let for_node = self.for_node.as_ref().map(PublicKey::as_bytes);
        let issuer = Issuer::root(&RootKey::from_seed(&root));
        let invitation = issuer
            .invite(&terms, now.after(self.expires), for_node, addresses, now)
            .map_err(|error| TaskError::new(error.kind(), error.to_string()))?;
        // First, so that whatever word is told can be withdrawn.
        Held::open(app)?.remember(&invitation, now)?;
        let (word, id) = (invitation.to_string(), invitation.id().to_string());
        app.output.result(
            || word.clone(),
            || {
                json!({
                    "invitation": word, "id": id, "tier": self.tier,
                    "expires": now.after(self.expires).seconds(),
                })
            },
        )?;
        // In capitals the code needs fewer modules; the word does not care.
        if let Ok(code) = QrCode::new(word.to_ascii_uppercase()) {
            app.output.note(code.render::<unicode::Dense1x2>().build());
        }
        app.output.note(format!(
            "for one node, until {}: karman node up --join INVITATION; `karman mesh withdraw {}` takes it back",
            now.after(self.expires),
            &id[..8]
        ));
        Ok(())
    }

    fn addresses(&self, app: &App) -> Result<Vec<String>, TaskError> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.iter().map(ToString::to_string).collect());
        }
        let running = Control::of_running(app)?.ok_or_else(|| {
            TaskError::unavailable("where is this node to be found? it does not run")
                .with_hint("start it (`karman node up`), or give --address")
        })?;
        Ok(reachable(running.get("/mesh/addresses")?))
    }
}
