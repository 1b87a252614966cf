//! Who belongs to a mesh: keys, invitations, memberships and their end. Pure: no I/O, no clock.
//!
//! The root key signs the memberships of issuers and, where the operator likes, of everybody; an issuer signs those of
//! others. So a chain is the root, at most one issuer, the member. A membership is a Biscuit token with a single block
//! of facts and two checks; statements that are no memberships (an invitation, a revocation, a succession) are CBOR with
//! an Ed25519 signature.
//!
//! What a node that is cut off is exposed to: it does not hear of revocations made since its last contact. So it may
//! accept a member that was revoked in the meantime, at most until that membership's `not_after`. Short memberships that
//! are renewed often keep this small.

mod backup;
mod charter;
mod error;
mod invitation;
mod issuer;
mod key;
mod lineage;
mod mailbox;
mod member;
mod revocation;
mod right;
mod rights;
mod signed;
mod signer;
mod statement;
mod succession;
mod terms;
mod time;
mod token;
mod wire;
mod word;

#[cfg(test)]
mod tests;

pub use charter::Charter;
pub use error::MembershipError;
pub use invitation::{Invitation, InvitationId};
pub use issuer::Issuer;
pub use key::{MeshKey, RootKey};
pub use lineage::Lineage;
pub(crate) use mailbox::{sign_mailbox, verify_mailbox};
pub use member::{Member, Membership};
pub use revocation::{Merged, Revocation, Revocations};
pub use right::{Pattern, Right, RightError};
pub use rights::Rights;
pub use signed::{Kind, Signed};
pub use succession::Succession;
pub use terms::Terms;
pub use time::UnixTime;
