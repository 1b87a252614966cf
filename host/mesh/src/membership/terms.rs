use super::{MembershipError, Rights, UnixTime};
use karman_types::Tier;

/// The terms of a membership.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Terms {
    /// Where the node stands.
    pub tier: Tier,
    /// What it may do; at most [`Rights::MAX`].
    pub rights: Rights,
    /// The last second it is good for. Also the longest that a node out of touch may trust a member that was revoked.
    pub not_after: UnixTime,
}

impl Terms {
    /// The usual rights of this tier.
    pub fn usual(tier: Tier, not_after: UnixTime) -> Self {
        Self {
            tier,
            rights: Rights::usual(tier),
            not_after,
        }
    }

    pub(super) fn check(&self) -> Result<(), MembershipError> {
        if self.rights.number() > Rights::MAX {
            return Err(MembershipError::TooLong {
                field: "rights",
                limit: Rights::MAX,
            });
        }
        Ok(())
    }
}
