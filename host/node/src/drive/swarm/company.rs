//! Who is in a round with a client. That must not be the leader's word: whoever leads could put others in place of members, and hide
//! nobody among them. So each shows its membership, and each looks at those of all.

use karman_fed::swarm::{Beginning, Shown};
use karman_mesh::Standing;
use karman_types::{NodeId, TaskError};

/// The members of the mesh, as a node knows them.
pub(super) trait Members: Send + Sync {
    /// What this node shows.
    fn shows(&self) -> Result<Shown, TaskError>;

    /// Who shows this, if it is a member now.
    fn who(&self, shown: &Shown) -> Result<NodeId, TaskError>;
}

impl Members for Standing {
    fn shows(&self) -> Result<Shown, TaskError> {
        let none = || TaskError::unavailable("this node is no member of its mesh yet");
        Ok(Shown {
            key: self.public_key().into(),
            membership: self.shown().ok_or_else(none)?.into(),
        })
    }

    fn who(&self, shown: &Shown) -> Result<NodeId, TaskError> {
        let member = self.member_by(&shown.membership, &shown.key).map_err(|error| {
            let node = NodeId::of_key(&*shown.key);
            TaskError::denied(format!("{} is no member of this mesh: {error}", node.short()))
                .with_field("clients")
        })?;
        Ok(member.node)
    }
}

/// That this node's client may be in a round of these, which that node leads.
pub(super) fn check(beginning: &Beginning, lead: NodeId, members: &dyn Members) -> Result<(), TaskError> {
    let own = NodeId::of_key(&*members.shows()?.key);
    beginning
        .check_company(own, lead)
        .map_err(|error| TaskError::denied(error.to_string()).with_field("clients"))?;
    let mut all = beginning.clients.iter().zip(&beginning.shown);
    all.try_for_each(|(place, shown)| is_of(place.node, shown, members))
}

/// That this is what that node shows.
pub(super) fn is_of(node: NodeId, shown: &Shown, members: &dyn Members) -> Result<(), TaskError> {
    match members.who(shown)? == node {
        true => Ok(()),
        false => {
            let says = format!("node {} shows the membership of another", node.short());
            Err(TaskError::denied(says).with_field("clients"))
        }
    }
}
