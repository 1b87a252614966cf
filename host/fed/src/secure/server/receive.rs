//! What clients say: taken where it is signed, in turn and of the right length.

use super::Server;
use crate::secure::failure::{Fault, FaultKind, Rejected};
use crate::secure::keys::{self, Statement};
use crate::secure::message::{Keys, Revealed, Shares, ToServer};
use crate::secure::roster::Position;
use crate::secure::unmask;
use karman_types::NodeId;
use serde_bytes::ByteArray;

impl Server {
    /// Takes a client's message.
    ///
    /// # Errors
    ///
    /// The message is not taken and changes nothing.
    pub fn receive(&mut self, from: NodeId, message: ToServer) -> Result<(), Rejected> {
        let position = self
            .session
            .roster()
            .position(from)
            .ok_or(Rejected::NotInvited(from))?;
        if message.step() != self.step {
            return Err(Rejected::OutOfTurn {
                from,
                sent: message.step(),
                at: self.step,
            });
        }
        if !self.takes_part(position) {
            return Err(Rejected::DroppedOut(from));
        }
        if self.has_answered(position) {
            return Err(Rejected::Repeated(from));
        }
        match message {
            ToServer::Keys(keys) => self.receive_keys(position, keys),
            ToServer::Shares(shares) => self.receive_shares(position, shares),
            ToServer::Masked(bytes) => self.receive_masked(position, &bytes),
            ToServer::Consistent(signature) => self.receive_signature(position, signature),
            ToServer::Unmask(shares) => self.receive_revealed(position, &shares),
        }
    }

    fn receive_keys(&mut self, from: Position, keys: Keys) -> Result<(), Rejected> {
        let node = self.session.node(from);
        let statement = Statement::Keys {
            channel: &keys.channel,
            mask: &keys.mask,
        };
        if !statement.verify(&self.session, &self.session.roster().key(from), *keys.signature) {
            return Err(Rejected::Signature(node));
        }
        if [&keys.channel, &keys.mask]
            .into_iter()
            .any(|key| keys::is_of_low_order(key))
        {
            return Err(Rejected::WeakKey(node));
        }
        self.keys.insert(from, keys);
        Ok(())
    }

    fn receive_shares(&mut self, from: Position, shares: Shares) -> Result<(), Rejected> {
        let holders = self.holders[&from].len();
        self.check_length(from, "sealed shares", shares.sealed.len(), holders - 1)?;
        self.check_length(from, "commitments", shares.commitments.len(), holders)?;
        self.shares.insert(from, shares);
        Ok(())
    }

    fn receive_masked(&mut self, from: Position, bytes: &[u8]) -> Result<(), Rejected> {
        self.check_length(from, "bytes", bytes.len(), self.session.bytes())?;
        self.session.settings().ring.add_packed(&mut self.sum, bytes);
        self.survivors.insert(from);
        Ok(())
    }

    fn receive_signature(&mut self, from: Position, signature: ByteArray<64>) -> Result<(), Rejected> {
        let key = self.session.roster().key(from);
        let statement = Statement::Survivors {
            members: &self.survivors,
            channel: &self.keys[&from].channel,
        };
        if !statement.verify(&self.session, &key, *signature) {
            return Err(Rejected::Signature(self.session.node(from)));
        }
        self.signatures.insert(from, signature);
        Ok(())
    }

    fn receive_revealed(&mut self, from: Position, revealed: &Revealed) -> Result<(), Rejected> {
        let owners: Vec<_> = self.sharing_holders(from).collect();
        self.check_length(from, "shares", revealed.0.len(), owners.len())?;
        for (owner, share) in owners.into_iter().zip(&revealed.0) {
            let place = self.holders[&owner].binary_search(&from);
            let commitment = place.ok().map(|place| *self.shares[&owner].commitments[place]);
            let which = unmask::which(&self.survivors, owner);
            let good = share.is_some_and(|share| {
                commitment.is_some_and(|said| {
                    unmask::is_committed(&self.session, owner, from, which, &share, &said)
                })
            });
            match share {
                Some(share) if good => self.entrusted.add(owner, from, **share),
                other => self.faults.push(Fault {
                    owner: self.session.node(owner),
                    holder: self.session.node(from),
                    what: if other.is_some() {
                        FaultKind::Changed
                    } else {
                        FaultKind::Garbage
                    },
                }),
            }
        }
        self.revealed.insert(from);
        Ok(())
    }

    fn check_length(
        &self,
        from: Position,
        what: &'static str,
        have: usize,
        need: usize,
    ) -> Result<(), Rejected> {
        let from = self.session.node(from);
        match have == need {
            true => Ok(()),
            false => Err(Rejected::Length {
                from,
                what,
                have,
                need,
            }),
        }
    }
}
