//! Who is in a round with a client. That must not be the leader's word: whoever leads could put others in place of members, and hide
//! nobody among them, or have what is sealed to them sealed to itself. So each shows its membership and signs its mailbox, and each looks
//! at those of all.

use karman_fed::swarm::{Beginning, Place, Shown};
use karman_mesh::{Mailbox, Standing};
use karman_types::{Digest, NodeId, TaskError};

/// The members of the mesh, as a node knows them.
pub(super) trait Members: Send + Sync {
    /// This node.
    fn me(&self) -> NodeId;

    /// What this node shows in a round in which this is its mailbox.
    fn shows(&self, round: Digest, mailbox: &Mailbox) -> Result<Shown, TaskError>;

    /// Who shows this, if it is a member now and has signed that it has this mailbox in the round.
    fn who(&self, shown: &Shown, round: Digest, mailbox: &[u8; 32]) -> Result<NodeId, TaskError>;
}

impl Members for Standing {
    fn me(&self) -> NodeId {
        NodeId::of_key(&self.public_key())
    }

    fn shows(&self, round: Digest, mailbox: &Mailbox) -> Result<Shown, TaskError> {
        let none = || TaskError::unavailable("this node is no member of its mesh yet");
        Ok(Shown {
            key: self.public_key().into(),
            membership: self.shown().ok_or_else(none)?.into(),
            signature: mailbox.sign(self, round.as_bytes()).into(),
        })
    }

    fn who(&self, shown: &Shown, round: Digest, mailbox: &[u8; 32]) -> Result<NodeId, TaskError> {
        let denied = |error: &dyn std::fmt::Display| {
            let node = NodeId::of_key(&*shown.key);
            TaskError::denied(format!("{} {error}", node.short())).with_field("clients")
        };
        let member = self.member_by(&shown.membership, &shown.key);
        let member = member.map_err(|error| denied(&format!("is no member of this mesh: {error}")))?;
        Mailbox::check(mailbox, round.as_bytes(), &shown.key, &shown.signature)
            .map_err(|_| denied(&"has not signed the mailbox that it is said to have"))?;
        Ok(member.node)
    }
}

/// That this node's client may be in a round of these, which that node leads.
pub(super) fn check(
    beginning: &Beginning,
    round: Digest,
    lead: NodeId,
    members: &dyn Members,
) -> Result<(), TaskError> {
    beginning
        .check_company(members.me(), lead)
        .map_err(|error| TaskError::denied(error.to_string()).with_field("clients"))?;
    let mut all = beginning.clients.iter().zip(&beginning.shown);
    all.try_for_each(|(place, shown)| is_of(place, shown, round, members))
}

/// That this is what the node in this place shows.
pub(super) fn is_of(
    place: &Place,
    shown: &Shown,
    round: Digest,
    members: &dyn Members,
) -> Result<(), TaskError> {
    match members.who(shown, round, &place.mailbox)? == place.node {
        true => Ok(()),
        false => {
            let says = format!("node {} shows the membership of another", place.node.short());
            Err(TaskError::denied(says).with_field("clients"))
        }
    }
}
