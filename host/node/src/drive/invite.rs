//! Invitations into the mesh.

use super::mesh::refused;
use super::mesh_of;
use crate::config::Time;
use crate::node::Node;
use crate::services::blocking;
use karman_mesh::membership::{Invitation, Right, Rights, Terms, UnixTime};
use karman_mesh::{InvitationStatus, Invitations, Multiaddr, wall_clock};
use karman_package::PublicKey;
use karman_store::Store;
use karman_types::{TaskError, Tier};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long an invitation can be used, where nobody says otherwise; and how long the membership that comes of it lasts.
const EXPIRES: Duration = Duration::from_secs(7 * 86_400);
const LASTS: Duration = Duration::from_secs(30 * 86_400);

/// The terms of an invitation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InviteOrder {
    /// Where the node will stand.
    pub tier: Tier,
    /// How long the invitation can be used. Default 7 days.
    #[serde(default = "expires")]
    pub expires: Time,
    /// How long the membership lasts before it must be renewed. Default 30 days, or as long as that of the node that invites.
    #[serde(default)]
    pub lasts: Option<Time>,
    /// What the node may do besides what any of its tier may.
    #[serde(default)]
    pub rights: Vec<Right>,
    /// The key of the node that it is for, which then joins without an issuer in reach.
    #[serde(default, rename = "for")]
    pub for_node: Option<PublicKey>,
    /// Where it finds this node. Default: where this one listens.
    #[serde(default)]
    pub addresses: Vec<Multiaddr>,
}

fn expires() -> Time {
    Time(EXPIRES)
}

impl InviteOrder {
    /// Refuses terms that are over at once.
    ///
    /// # Errors
    /// `invalid` with the field.
    pub fn check(&self) -> Result<(), TaskError> {
        let least = Duration::from_secs(1);
        let lasts = self.lasts.map(|Time(lasts)| lasts);
        for (field, time) in [("expires", Some(self.expires.0)), ("lasts", lasts)] {
            if time.is_some_and(|time| time < least) {
                return Err(
                    TaskError::invalid(format!("`{field}` is no time: nobody could join"))
                        .with_field(field)
                        .with_hint("give a second at least, such as `7d`"),
                );
            }
        }
        Ok(())
    }

    /// What the membership says that comes of it, where an issuer gives it whose own lasts until `most`.
    pub fn terms(&self, now: UnixTime, most: UnixTime) -> Terms {
        let not_after = match self.lasts {
            Some(Time(lasts)) => now.after(lasts),
            None => now.after(LASTS).min(most),
        };
        let mut terms = Terms::usual(self.tier, not_after);
        let rights: Rights = terms.rights.iter().chain(&self.rights).cloned().collect();
        terms.rights = rights;
        terms
    }
}

/// Those of a node's addresses by which others find it: one of the loopback leads them to themselves. Where there are only such, all.
fn reachable(addresses: Vec<String>) -> Vec<String> {
    let is_local = |address: &String| address.contains("/127.0.0.1/") || address.contains("/ip6/::1/");
    match addresses.iter().all(is_local) {
        true => addresses,
        false => addresses
            .into_iter()
            .filter(|address| !is_local(address))
            .collect(),
    }
}

impl Node {
    /// Invites one node into the mesh. What is answered is a secret until it is used, and is kept nowhere here; that there is such an
    /// invitation is remembered.
    ///
    /// # Errors
    /// `unavailable` when this node belongs to no mesh, `denied` when it may not invite or may not give these terms, `invalid` for terms
    /// that are over at once, `limit` for an invitation that would be too long, or where too many are remembered.
    pub async fn invite(&self, order: &InviteOrder) -> Result<Invitation, TaskError> {
        order.check()?;
        let mesh = mesh_of(self)?;
        let addresses = match order.addresses.is_empty() {
            true => reachable(mesh.addresses().await.iter().map(ToString::to_string).collect()),
            false => order.addresses.iter().map(ToString::to_string).collect(),
        };
        let standing = mesh.standing();
        let now = standing.now();
        let most = standing.own().map_or(UnixTime::MAX, |own| own.not_after);
        let (terms, expires) = (order.terms(now, most), now.after(order.expires.0));
        let for_node = order.for_node.as_ref().map(PublicKey::as_bytes);
        let invited = standing.invite(&terms, expires, for_node, addresses);
        let invitation = invited.map_err(refused)?;
        self.remember_invitation(invitation.clone()).await?;
        tracing::info!(id = %invitation.id(), tier = %order.tier, "a node is invited");
        Ok(invitation)
    }

    /// Remembers that this invitation was made here now.
    async fn remember_invitation(&self, invitation: Invitation) -> Result<(), TaskError> {
        let now = self.mesh_time();
        let remember = move |store: &Store| Invitations::of(store).remember(&invitation, now);
        self.runtime().home().with(remember).await
    }

    /// The invitations that were made here, the last first, and what has become of each; not their words.
    ///
    /// # Errors
    /// `internal` for what the disk refused.
    pub async fn invitations(&self) -> Result<Vec<InvitationStatus>, TaskError> {
        let now = self.mesh_time();
        let list = move |store: &Store| Invitations::of(store).list(now);
        self.runtime().home().with(list).await
    }

    /// Has nobody use the invitation of this id, or whose id begins so.
    ///
    /// # Errors
    /// `unavailable` (field `invitation`) when none that was made here has it, `invalid` when several begin so, or when there is
    /// nothing to withdraw: a node has used it, or it is for one node, which asks nobody.
    pub async fn withdraw_invitation(&self, id: &str) -> Result<InvitationStatus, TaskError> {
        let (home, now, id) = (self.runtime().home().clone(), self.mesh_time(), id.to_owned());
        let withdraw = move || -> Result<InvitationStatus, TaskError> {
            let store = home.store()?;
            let withdrawn = Invitations::of(&store).withdraw(&id, now);
            Ok(withdrawn?)
        };
        let withdrawn = blocking(withdraw).await?;
        tracing::info!(id = withdrawn.id, "an invitation is withdrawn");
        Ok(withdrawn)
    }

    /// The time by which invitations are judged.
    fn mesh_time(&self) -> UnixTime {
        match self.mesh() {
            Some(mesh) => mesh.standing().now(),
            None => UnixTime::from_seconds(wall_clock().as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_as_the_command_line_has_it() {
        let order: InviteOrder = serde_json::from_str(
            r#"{ "tier": "fog", "rights": ["deploy:*"], "expires": "1h", "addresses": ["/ip4/192.0.2.7/udp/7117/quic-v1"] }"#,
        )
        .unwrap();
        assert_eq!(order.expires.0, Duration::from_secs(3600));
        let now = UnixTime::from_seconds(1_000_000_000);
        let terms = order.terms(now, UnixTime::MAX);
        assert_eq!((terms.tier, terms.not_after), (Tier::Fog, now.after(LASTS)));
        let soon = now.after(Duration::from_secs(60));
        assert_eq!(order.terms(now, soon).not_after, soon);
        let rights: Vec<String> = terms.rights.iter().map(ToString::to_string).collect();
        assert_eq!(rights, ["call:*", "deploy:*"]);
        order.check().unwrap();
        for (field, wrong) in [
            ("expires", r#"{ "tier": "fog", "expires": "0s" }"#),
            ("lasts", r#"{ "tier": "fog", "lasts": "999ms" }"#),
        ] {
            let order: InviteOrder = serde_json::from_str(wrong).unwrap();
            assert_eq!(order.check().unwrap_err().field.as_deref(), Some(field));
        }
        let again: InviteOrder = serde_json::from_value(serde_json::to_value(&order).unwrap()).unwrap();
        assert_eq!(again.terms(now, soon), order.terms(now, soon));
        for wrong in [
            "{}",
            r#"{ "tier": "moon" }"#,
            r#"{ "tier": "fog", "right": [] }"#,
            r#"{ "tier": "fog", "rights": ["root"] }"#,
        ] {
            assert!(serde_json::from_str::<InviteOrder>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nobody_is_led_to_himself() {
        let (here, there) = ("/ip4/127.0.0.1/udp/1/quic-v1", "/ip4/192.0.2.7/udp/1/quic-v1");
        let of = |addresses: &[&str]| reachable(addresses.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(of(&[here, there]), [there]);
        assert_eq!(of(&[here]), [here]);
        assert!(of(&[]).is_empty());
    }
}
