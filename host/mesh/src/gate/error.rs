use super::{PATIENCE, PROTOCOL};
use crate::membership::MembershipError;
use crate::wire::WireError;

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The other side is no member of this mesh, or not any more.
    #[error("the other side's membership: {0}")]
    NotAMember(#[from] MembershipError),
    /// What this node has of its own from the mesh does not hold, or cannot be made.
    #[error("this node's own membership: {0}")]
    Own(#[source] MembershipError),
    /// An invitation lets nobody in.
    #[error("the invitation: {0}")]
    Invitation(#[source] MembershipError),
    /// This node is an issuer, and may not sign that.
    #[error(transparent)]
    Issuer(MembershipError),
    /// The other side did not let us in.
    #[error("the other side refused us: {0}")]
    Refused(String),
    /// The other side is no issuer: it can neither admit this node nor judge its invitation.
    #[error("the other side admits nobody: it is no issuer")]
    NoJudge,
    /// The other side speaks another version of the protocol.
    #[error(
        "the other side speaks version {theirs} of the protocol, this node {PROTOCOL}: update the older of the two"
    )]
    Version {
        /// Their version.
        theirs: u16,
    },
    /// What came was no such message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection broke.
    #[error("the connection broke during the first exchange: {0}")]
    Broken(String),
    /// This node's own address is taken, or none of this machine's.
    #[error(
        "this node cannot listen on {address}: {why}; `mesh.listen` of node.toml or `--mesh-listen` says where else"
    )]
    Listen {
        /// Where.
        address: String,
        /// What the system says.
        why: String,
    },
    /// It took too long.
    #[error("the first exchange took longer than {} s", PATIENCE.as_secs())]
    Slow,
    /// This node has neither membership nor invitation.
    #[error("this node belongs to no mesh: `karman node up --join INVITATION`")]
    Stranger,
    /// An issuer has let this node in over the member at the other end, which it meets as a member from now on.
    #[error("an issuer has let this node in over that one: it comes again as a member")]
    LetInThere,
    /// A stranger was led to an issuer over this node.
    #[error("a stranger was led to an issuer, and leaves")]
    Led,
    /// As many strangers as may be are led to issuers already.
    #[error("too many others are being let in just now: it is tried again")]
    Busy,
    /// It asks for calls, which only members may.
    #[error("the other side asks for calls without having been let in")]
    NotAdmitted,
    /// Only issuers admit and revoke.
    #[error("this node is no issuer: do it where the mesh was made, or at a node with the right `issue`")]
    NoIssuer,
    /// Only the root key itself puts out who holds it.
    #[error(
        "that node holds the root key, or every right by it: only that key puts it out (`karman mesh revoke` where the root key is)"
    )]
    HoldsRoot,
    /// Only the machine with the root key replaces it.
    #[error(
        "this node does not hold the root key of its mesh, or one that was replaced: do it on the machine that does"
    )]
    NoRoot,
    /// The next root key has to lie ready, with its backup made, before it takes the place of the present one.
    #[error("no root key lies ready to take the place of the present one: `karman mesh rotate` makes it")]
    NoNextRoot,
    /// What must be remembered could not be.
    #[error("{0}")]
    Store(String),
}

impl GateError {
    /// The reason that one hears who is not let in.
    pub(super) fn told(&self) -> String {
        match self {
            Self::NotAMember(error) => format!("this node's membership: {error}"),
            error => error.to_string(),
        }
    }
}
