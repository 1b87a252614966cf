use crate::membership::{Kind, Member, MembershipError, Right, Signed, UnixTime};
use crate::standing::Standing;
use bytes::Bytes;
use karman_types::{Digest, NodeId, TaskError};
use serde::{Deserialize, Serialize};

/// That a node may read a plugin's file: signed by a member that has the right to deploy it, shown to a node that holds the file. So
/// nodes give each other only code that was deployed to them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ticket {
    /// The plugin.
    pub name: String,
    /// Its file.
    pub digest: Digest,
    /// Who may read it.
    pub reader: NodeId,
    /// The last second for which it is good.
    pub not_after: UnixTime,
}

impl Ticket {
    /// Signs it in this node's name.
    ///
    /// # Errors
    /// `unavailable` while the node is no member.
    pub fn sign(&self, standing: &Standing) -> Result<Bytes, TaskError> {
        let says = cbor4ii::serde::to_vec(Vec::new(), self);
        let says = says.map_err(|error| TaskError::internal(error.to_string()))?;
        Ok(standing.sign(Kind::Ticket, says.into())?.encode().into())
    }

    /// Reads a ticket that this reader shows, and judges whether it may read what the ticket names.
    ///
    /// # Errors
    /// `invalid` when it does not read, `denied` when it does not hold.
    pub fn judge(bytes: &[u8], reader: &Member, standing: &Standing) -> Result<Self, TaskError> {
        let refused = |error: MembershipError| {
            TaskError::new(error.kind(), format!("the ticket: {error}")).with_field("ticket")
        };
        let signed = Signed::decode(bytes).map_err(refused)?;
        let signer = standing.judge(Kind::Ticket, &signed).map_err(refused)?;
        let ticket: Self = cbor4ii::serde::from_slice(signed.says())
            .map_err(|error| TaskError::invalid(format!("the ticket: {error}")).with_field("ticket"))?;
        let denied = |why: String| Err(TaskError::denied(format!("the ticket {why}")).with_field("ticket"));
        if ticket.reader != reader.node {
            return denied(format!("is for node {}", ticket.reader.short()));
        }
        if ticket.not_after < standing.now() {
            return denied(format!("was good until {}", ticket.not_after));
        }
        match signer.may(Right::Deploy, &ticket.name) {
            true => Ok(ticket),
            false => denied(format!(
                "is of node {}, which has no right `deploy:{}`",
                signer.node.short(),
                ticket.name
            )),
        }
    }
}
