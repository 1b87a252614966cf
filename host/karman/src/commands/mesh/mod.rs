//! `karman mesh`: who belongs to it, and who is there.

mod bundles;
mod contacts;
mod init;
mod invitations;
mod invite;
mod keepers;
mod leave;
mod offers;
mod peers;
mod ping;
mod revoke;
mod rotate;
mod withdraw;

use crate::app::App;
use clap::{Args, Subcommand};
use karman_types::TaskError;

/// `karman mesh`
#[derive(Args, Debug)]
pub(crate) struct Mesh {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a mesh: its root key stays on this machine
    #[command(
        after_help = "Examples:\n  karman mesh init --backup mesh-root.txt\n  karman mesh init --restore mesh-root.txt"
    )]
    Init(init::Init),
    /// Invite one node
    #[command(
        after_help = "Examples:\n  karman mesh invite --tier edge --expires 7d\n  karman mesh invite --tier fog --right deploy:* --lasts 90d\n  karman mesh invite --tier fog --right issue --right revoke --lasts 365d\n  karman mesh invite --tier space --for ed25519:7Kq4yQm0bB8s0kq1vX2d5eT9uW3nR6cJzLhFgPaMiOo"
    )]
    Invite(invite::Invite),
    /// The invitations that were made here, and what has become of each
    #[command(after_help = "Examples:\n  karman mesh invitations\n  karman mesh invitations --json")]
    Invitations(invitations::Invitations),
    /// Take back an invitation that no node has used
    #[command(
        after_help = "Examples:\n  karman mesh withdraw 1f0c9a4e\n  karman mesh withdraw 1f0c9a4e --json"
    )]
    Withdraw(withdraw::Withdraw),
    /// The nodes that this one has met
    #[command(after_help = "Examples:\n  karman mesh peers\n  karman mesh peers --json")]
    Peers(peers::Peers),
    /// What the nodes in reach offer
    #[command(after_help = "Examples:\n  karman mesh offers\n  karman mesh offers --json")]
    Offers(offers::Offers),
    /// Choose the three nodes that keep accepted tasks, or show their state
    #[command(
        after_help = "Examples:\n  karman mesh keepers 9c01d2e7 41f0a8b3 d7752e10\n  karman mesh keepers --json"
    )]
    Keepers(keepers::Keepers),
    /// Reach a node, and say by which path
    #[command(after_help = "Examples:\n  karman mesh ping 9c01d2e7\n  karman mesh ping 9c01d2e7 --rates")]
    Ping(ping::Ping),
    /// When which nodes can reach each other, by the files that node.toml names
    #[command(
        after_help = "Examples:\n  karman mesh contacts --for 12h\n  karman mesh contacts --from 2026-11-21T10:00:00Z --toml > contacts.toml"
    )]
    Contacts(contacts::Contacts),
    /// What waits for a contact, and what has become of it
    #[command(after_help = "Examples:\n  karman mesh bundles\n  karman mesh bundles --json")]
    Bundles(bundles::Bundles),
    /// Remove a node from the mesh for good
    #[command(after_help = "Examples:\n  karman mesh revoke 9c01d2e7\n  karman mesh revoke 9c01d2e7 --json")]
    Revoke(revoke::Revoke),
    /// Replace the root key of a running mesh
    #[command(
        after_help = "Examples:\n  karman mesh rotate --backup mesh-root-2.txt\n  karman mesh rotate --grace 0s --backup mesh-root-3.txt"
    )]
    Rotate(rotate::Rotate),
    /// Leave the mesh
    #[command(after_help = "Examples:\n  karman mesh leave\n  karman mesh leave --json")]
    Leave(leave::Leave),
}

impl Mesh {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Init(verb) => verb.run(app),
            Verb::Invite(verb) => verb.run(app),
            Verb::Invitations(verb) => verb.run(app),
            Verb::Withdraw(verb) => verb.run(app),
            Verb::Keepers(verb) => verb.run(app),
            Verb::Peers(verb) => verb.run(app),
            Verb::Offers(verb) => verb.run(app),
            Verb::Ping(verb) => verb.run(app),
            Verb::Contacts(verb) => verb.run(app),
            Verb::Bundles(verb) => verb.run(app),
            Verb::Revoke(verb) => verb.run(app),
            Verb::Rotate(verb) => verb.run(app),
            Verb::Leave(verb) => verb.run(app),
        }
    }
}
