use super::failure::{Failure, Fault};
use super::message::{Keys, Shares, Step, ToClient, UnmaskRequest};
use super::roster::{Members, Position};
use super::session::Session;
use super::unmask::{self, Entrusted, Round};
use karman_types::NodeId;
use serde_bytes::ByteArray;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

mod receive;

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

    fn round(&self) -> Round<'_> {
        Round {
            session: &self.session,
            members: &self.members,
            sharers: &self.sharers,
            survivors: &self.survivors,
            holders: &self.holders,
            keys: &self.keys,
            shares: &self.shares,
        }
    }

    /// How long unmasking takes by what is known now, on a machine that makes so many bytes of masks in a second; twice as long, to be on the
    /// safe side. Before vectors are closed, nobody is taken to drop out.
    pub fn unmasking(&self, bytes_per_second: f64) -> Duration {
        let masks = match self.step {
            Step::Keys => self.session.members(),
            Step::Shares => self.members.len(),
            Step::Mask => self.sharers.len(),
            Step::Consistency | Step::Unmask | Step::Done => self.round().masks(),
        };
        let bytes = masks as f64 * self.session.bytes() as f64;
        Duration::try_from_secs_f64(2.0 * bytes / bytes_per_second).unwrap_or(Duration::MAX)
    }

    fn unmask(&mut self) -> Result<SecureSum, Failure> {
        let mut sum = std::mem::take(&mut self.sum);
        let unmasked = unmask::unmask(&self.round(), &self.entrusted, &mut sum);
        unmasked.map_err(|failure| self.blamed(failure))?;
        let ring = self.session.settings().ring;
        let elements = sum.into_iter().map(|element| ring.wrap(element));
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

    /// The same failure, or that its owner is to blame.
    fn blamed(&self, failure: Failure) -> Failure {
        let Failure::TooFewShares { owner, .. } = failure else {
            return failure;
        };
        // What is well sealed and not what its owner committed to looks as if its holder had changed it.
        let holders = self.faults.iter().filter(|fault| fault.owner == owner).count();
        let need = self.session.threshold(self.members.len());
        let position = self.session.roster().position(owner);
        let all = position.and_then(|position| self.holders.get(&position));
        // Of fewer holders each might lie.
        match all.is_some_and(|all| all.len() < need + holders && all.len() < 3 * holders) {
            true => Failure::Garbage { owner, holders },
            false => failure,
        }
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
        let need = self.session.least();
        match have >= need {
            true => Ok(()),
            false => Err(Failure::TooFew { step, have, need }),
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
