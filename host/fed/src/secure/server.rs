use super::keys::{self, Statement};
use super::message::{Keys, Revealed, Shares, Step, ToClient, ToServer, UnmaskRequest};
use super::roster::{Members, Position};
use super::session::Session;
use super::unmask::{self, Entrusted};
use karman_types::NodeId;
use serde_bytes::ByteArray;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The coordinator's side of a secure sum.
///
/// It takes messages as they come ([`Server::receive`]) and goes on to the next step when it is told to ([`Server::close`]): when
/// everybody has answered ([`Server::waiting`]), or when whoever drives it has waited long enough. A vector is added on arrival and
/// not kept.
pub struct Server {
    session: Arc<Session>,
    step: Step,
    keys: BTreeMap<Position, Keys>,
    members: Members,
    /// Who holds whose shares.
    holders: BTreeMap<Position, Vec<Position>>,
    shares: BTreeMap<Position, Shares>,
    sharers: Members,
    sum: Vec<u64>,
    survivors: Members,
    signatures: BTreeMap<Position, ByteArray<64>>,
    entrusted: Entrusted,
    revealed: Members,
    faults: Vec<Fault>,
}

/// What closing a step leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Closed {
    /// Messages for those who are still here.
    Next(Vec<(NodeId, ToClient)>),
    /// The sum.
    Sum(SecureSum),
}

/// What came out of a round.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecureSum {
    /// The sum of the survivors' vectors, in the ring: exactly what adding them in the open gives.
    pub elements: Vec<u64>,
    /// Whose vectors are in it.
    pub survivors: Vec<NodeId>,
    /// What was wrong on the way, and harmed nothing.
    pub faults: Vec<Fault>,
}

/// A share that is not what its owner said it would be. One of the two lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Whose secret it is a share of.
    pub owner: NodeId,
    /// Who held it.
    pub holder: NodeId,
    /// What is wrong.
    pub what: FaultKind,
}

/// What may be wrong with a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaultKind {
    /// The holder says that the owner sent garbage.
    Garbage,
    /// The holder revealed something else than the owner committed to.
    Changed,
}

/// Why a client's message is not taken. The client may send another one; the round is as it was.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The sender is not on the roster.
    #[error("{0} is not on the roster")]
    NotInvited(NodeId),
    /// A message of another step.
    #[error("{from} sends {sent} while the round is at {at}")]
    OutOfTurn {
        /// Who sent it.
        from: NodeId,
        /// What it is of.
        sent: Step,
        /// Where the round is.
        at: Step,
    },
    /// The sender has missed an earlier step.
    #[error("{0} has dropped out of the round")]
    DroppedOut(NodeId),
    /// The sender has answered this step.
    #[error("{0} has sent this already")]
    Repeated(NodeId),
    /// A signature that is none.
    #[error("{0} has not signed what it sends")]
    Signature(NodeId),
    /// A key that would give a mask everybody knows.
    #[error("a key of {0} is of low order")]
    WeakKey(NodeId),
    /// A list or vector of another length.
    #[error("{from} sends {have} {what} instead of {need}")]
    Length {
        /// Who sent it.
        from: NodeId,
        /// What is in it.
        what: &'static str,
        /// How many.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
}

/// Why a round ends without a sum.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Too few clients are left.
    #[error("only {have} clients sent {step}, {need} are needed")]
    TooFew {
        /// The step that was closed.
        step: Step,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// Too many of a client's holders are gone or lie.
    #[error("only {have} holders have a good share of a secret of {owner}, {need} are needed")]
    TooFewShares {
        /// Whose secret.
        owner: NodeId,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// A client has shared something else than its secret.
    #[error("what {0} shared is not its secret")]
    FalseSecret(NodeId),
    /// The round is over.
    #[error("the round is over")]
    Over,
}

impl Server {
    /// A round in which nothing has arrived.
    pub fn new(session: Arc<Session>) -> Self {
        let nobody = Members::none(session.members());
        Self {
            step: Step::Keys,
            keys: BTreeMap::new(),
            members: nobody.clone(),
            holders: BTreeMap::new(),
            shares: BTreeMap::new(),
            sharers: nobody.clone(),
            sum: vec![0; session.settings().length],
            survivors: nobody.clone(),
            signatures: BTreeMap::new(),
            entrusted: Entrusted::default(),
            revealed: nobody,
            faults: Vec::new(),
            session,
        }
    }

    /// The step whose messages are taken.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Who could still answer this step.
    pub fn waiting(&self) -> Vec<NodeId> {
        let all = || 0..self.session.members() as Position;
        let waiting = all().filter(|position| self.takes_part(*position) && !self.has_answered(*position));
        waiting.map(|position| self.session.node(position)).collect()
    }

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

    /// Ends the step; whoever has not answered has dropped out. After the last one the sum is unmasked, which for many clients or
    /// long vectors is most of the coordinator's work.
    ///
    /// # Errors
    ///
    /// The round ends without a sum.
    pub fn close(&mut self) -> Result<Closed, Failure> {
        let step = self.step;
        self.step = Step::Done;
        let next = match step {
            Step::Keys => self.close_keys()?,
            Step::Shares => self.close_shares()?,
            Step::Mask => self.close_mask()?,
            Step::Consistency => self.close_consistency(),
            Step::Unmask => return self.unmask().map(Closed::Sum),
            Step::Done => return Err(Failure::Over),
        };
        self.step = match step {
            Step::Keys => Step::Shares,
            Step::Shares => Step::Mask,
            Step::Mask => Step::Consistency,
            _ => Step::Unmask,
        };
        Ok(Closed::Next(next))
    }

    fn close_keys(&mut self) -> Result<Vec<(NodeId, ToClient)>, Failure> {
        self.members = Members::of(self.session.members(), self.keys.keys().copied());
        self.check_least(Step::Keys, self.members.len())?;
        self.holders = self.session.all_holders(&self.members).into_iter().collect();
        let message = |member: Position, holders: &[Position]| ToClient::Keys {
            members: self.members.clone(),
            keys: holders
                .iter()
                .filter(|one| **one != member)
                .map(|one| self.keys[one])
                .collect(),
        };
        let all = self.holders.iter();
        Ok(all
            .map(|(member, holders)| (self.session.node(*member), message(*member, holders)))
            .collect())
    }

    fn close_shares(&mut self) -> Result<Vec<(NodeId, ToClient)>, Failure> {
        self.sharers = Members::of(self.session.members(), self.shares.keys().copied());
        self.check_least(Step::Shares, self.sharers.len())?;
        let sealed = |owner: Position, member| {
            let mut neighbours = self.holders[&owner].iter().filter(|holder| **holder != owner);
            let place = neighbours.position(|holder| *holder == member)?;
            Some(self.shares[&owner].sealed[place])
        };
        let message = |member| ToClient::Shares {
            sharers: self.sharers.clone(),
            sealed: self
                .sharing_holders(member)
                .filter_map(|owner| sealed(owner, member))
                .collect(),
        };
        let messages = self.to_all(&self.sharers, message);
        // They are delivered; what stays is what shares are checked against.
        self.shares
            .values_mut()
            .for_each(|shares| shares.sealed = Vec::new());
        Ok(messages)
    }

    fn close_mask(&self) -> Result<Vec<(NodeId, ToClient)>, Failure> {
        self.check_least(Step::Mask, self.survivors.len())?;
        Ok(self.to_all(&self.survivors, |_| ToClient::Survivors(self.survivors.clone())))
    }

    fn close_consistency(&self) -> Vec<(NodeId, ToClient)> {
        let signers = Members::of(self.session.members(), self.signatures.keys().copied());
        let dropped = self.sharers.without(&self.survivors);
        let signatures = |member: Position| {
            let holders = self.holders[&member].iter();
            holders
                .filter_map(|holder| Some((*holder, *self.signatures.get(holder)?)))
                .collect()
        };
        self.to_all(&signers, |member| {
            ToClient::Unmask(UnmaskRequest {
                survivors: self.survivors.clone(),
                dropped: dropped.clone(),
                signatures: signatures(member),
            })
        })
    }

    fn unmask(&mut self) -> Result<SecureSum, Failure> {
        let round = unmask::Round {
            session: &self.session,
            members: &self.members,
            sharers: &self.sharers,
            survivors: &self.survivors,
            holders: &self.holders,
            keys: &self.keys,
            shares: &self.shares,
        };
        unmask::unmask(&round, &self.entrusted, &mut self.sum)?;
        let ring = self.session.settings().ring;
        let elements = std::mem::take(&mut self.sum)
            .into_iter()
            .map(|element| ring.wrap(element));
        Ok(SecureSum {
            elements: elements.collect(),
            survivors: self
                .survivors
                .iter()
                .map(|position| self.session.node(position))
                .collect(),
            faults: std::mem::take(&mut self.faults),
        })
    }

    /// The holders of a member's secrets that shared secrets themselves. As neighbours are mutual, they are also those whose shares
    /// the member holds.
    fn sharing_holders(&self, member: Position) -> impl Iterator<Item = Position> + '_ {
        let holders = self.holders.get(&member).map_or(&[][..], Vec::as_slice);
        holders
            .iter()
            .copied()
            .filter(|holder| self.sharers.contains(*holder))
    }

    fn to_all(&self, members: &Members, message: impl Fn(Position) -> ToClient) -> Vec<(NodeId, ToClient)> {
        members
            .iter()
            .map(|member| (self.session.node(member), message(member)))
            .collect()
    }

    /// Whether it answered every step before this one.
    fn takes_part(&self, position: Position) -> bool {
        match self.step {
            Step::Keys => true,
            Step::Shares => self.members.contains(position),
            Step::Mask => self.sharers.contains(position),
            Step::Consistency => self.survivors.contains(position),
            Step::Unmask => self.signatures.contains_key(&position),
            Step::Done => false,
        }
    }

    fn has_answered(&self, position: Position) -> bool {
        match self.step {
            Step::Keys => self.keys.contains_key(&position),
            Step::Shares => self.shares.contains_key(&position),
            Step::Mask => self.survivors.contains(position),
            Step::Consistency => self.signatures.contains_key(&position),
            Step::Unmask => self.revealed.contains(position),
            Step::Done => true,
        }
    }

    fn check_least(&self, step: Step, have: usize) -> Result<(), Failure> {
        let need = self.session.settings().least;
        match have >= need {
            true => Ok(()),
            false => Err(Failure::TooFew { step, have, need }),
        }
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

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
