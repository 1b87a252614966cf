//! What a client checks before it goes on: who is in, how many they are, and what was signed.

use super::Client;
use crate::secure::keys::Statement;
use crate::secure::message::Step;
use crate::secure::refusal::Refusal;
use crate::secure::roster::{Members, Position};
use serde_bytes::ByteArray;

impl Client {
    /// More than two thirds of this client's holders have to have signed the same list. No two lists can have that.
    pub(super) fn check_signatures(
        &self,
        survivors: &Members,
        signatures: &[(Position, ByteArray<64>)],
    ) -> Result<(), Refusal> {
        // Each takes its time to be looked at.
        if signatures.len() > self.holders.len() {
            return Err(Refusal::Count {
                what: Step::Consistency,
                have: signatures.len(),
                need: self.holders.len(),
            });
        }
        let mut signers = Members::none(self.session.members());
        signers.insert(self.me);
        for (position, signature) in signatures {
            if !self.holders.contains(position) || !survivors.contains(*position) {
                return Err(Refusal::Members(Step::Consistency));
            }
            if *position != self.me && !self.has_signed(*position, survivors, **signature) {
                return Err(Refusal::Signature {
                    what: Step::Consistency,
                    node: self.session.node(*position),
                });
            }
            signers.insert(*position);
        }
        let (have, need) = (signers.len(), self.session.threshold(self.members.len()));
        match have >= need {
            true => Ok(()),
            false => Err(Refusal::TooFew {
                step: Step::Consistency,
                have,
                need,
            }),
        }
    }

    /// Whether a neighbour has signed these survivors in this very round: with the key of the channel that it has opened to us.
    fn has_signed(&self, neighbour: Position, survivors: &Members, signature: [u8; 64]) -> bool {
        self.neighbours.get(&neighbour).is_some_and(|keys| {
            let statement = Statement::Survivors {
                members: survivors,
                channel: &keys.channel,
            };
            let key = self.session.roster().key(neighbour);
            statement.verify(&self.session, &key, signature)
        })
    }

    /// A set of members fits the roster, is among those `of` the step before, has this client in it and is not too small.
    pub(super) fn check(&self, step: Step, members: &Members, of: Option<&Members>) -> Result<(), Refusal> {
        let among = of.is_none_or(|before| members.without(before).is_empty());
        if !members.fits(self.session.members()) || !among {
            return Err(Refusal::Members(step));
        }
        if !members.contains(self.me) {
            return Err(Refusal::LeftOut(step));
        }
        let (have, need) = (members.len(), self.session.least());
        match have >= need {
            true => Ok(()),
            false => Err(Refusal::TooFew { step, have, need }),
        }
    }

    /// Enough of this client's holders are left to put its secrets together.
    pub(super) fn check_holders(&self, step: Step, left: &Members) -> Result<(), Refusal> {
        let have = self
            .holders
            .iter()
            .filter(|holder| left.contains(**holder))
            .count();
        let need = self.session.threshold(self.members.len());
        match have >= need {
            true => Ok(()),
            false => Err(Refusal::TooFew { step, have, need }),
        }
    }

    pub(super) const fn check_count(&self, what: Step, have: usize, need: usize) -> Result<(), Refusal> {
        match have == need {
            true => Ok(()),
            false => Err(Refusal::Count { what, have, need }),
        }
    }
}
