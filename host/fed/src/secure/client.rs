mod checks;

use super::keys::{self, Channel, Statement};
use super::message::{Keys, Revealed, Shares, Step, ToClient, ToServer, UnmaskRequest};
use super::pass::Pass;
use super::refusal::Refusal;
use super::roster::{Members, Position};
use super::session::Session;
use super::shamir::{self, Secret};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use curve25519_dalek::Scalar;
use ed25519_compact::KeyPair;
use karman_types::NodeId;
use serde_bytes::ByteArray;
use std::collections::BTreeMap;
use std::sync::Arc;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

/// One client's side of a secure sum.
///
/// It trusts the roster and nothing that the coordinator says. What it refuses ends nothing: the coordinator may still say the
/// right thing; and since it answers each step once, it never reveals both secrets of anybody. It is not written down: a client that
/// restarts has dropped out of the round.
pub struct Client {
    session: Arc<Session>,
    me: Position,
    identity: KeyPair,
    random: ChaCha20Rng,
    channel: StaticSecret,
    mask: StaticSecret,
    /// What `mask` is derived from, and what neighbours get shares of.
    mask_secret: Zeroizing<Scalar>,
    own_mask: Zeroizing<Scalar>,
    step: Step,
    /// Whether the vector is on its way.
    masked: bool,
    members: Members,
    /// The neighbours and this client.
    holders: Vec<Position>,
    neighbours: BTreeMap<Position, Keys>,
    sharers: Members,
    /// What others have entrusted to this client, both shares of each.
    held: BTreeMap<Position, Zeroizing<[[u8; 32]; 2]>>,
    survivors: Members,
}

impl Client {
    /// Joins a round. The second part of the result is the first message. The pass is used up: a client is in one round with it,
    /// and nothing that it says there can be taken for part of another.
    ///
    /// `entropy` has to be fresh from the operating system: whoever knows it knows the vector. The same entropy gives the same
    /// messages, for tests and the simulator.
    ///
    /// # Errors
    ///
    /// The node is not on the roster, or under another key, or with another number than that of its pass.
    pub fn join(
        session: Arc<Session>,
        node: NodeId,
        identity: KeyPair,
        pass: Pass,
        entropy: [u8; 32],
    ) -> Result<(Self, ToServer), Refusal> {
        let me = session.roster().position(node).ok_or(Refusal::NotInvited(node))?;
        if session.roster().key(me) != identity.pk {
            return Err(Refusal::NotMyKey(node));
        }
        if *session.roster().once(me) != pass.use_up() {
            return Err(Refusal::NotMyPass(node));
        }
        let mut random = ChaCha20Rng::from_seed(entropy);
        let channel = StaticSecret::random_from_rng(&mut random);
        let mask_secret = Zeroizing::new(keys::fresh_scalar(&mut random));
        let own_mask = Zeroizing::new(keys::fresh_scalar(&mut random));
        let mask = keys::mask_secret(&session, &mask_secret, me);
        let public = [&channel, &mask].map(|secret| PublicKey::from(secret).to_bytes());
        let statement = Statement::Keys {
            channel: &public[0],
            mask: &public[1],
        };
        let keys = Keys {
            channel: public[0].into(),
            mask: public[1].into(),
            signature: statement.sign(&session, &identity).into(),
        };
        let nobody = Members::none(session.members());
        let client = Self {
            session,
            me,
            identity,
            random,
            channel,
            mask,
            mask_secret,
            own_mask,
            step: Step::Keys,
            masked: false,
            members: nobody.clone(),
            holders: Vec::new(),
            neighbours: BTreeMap::new(),
            sharers: nobody.clone(),
            held: BTreeMap::new(),
            survivors: nobody,
        };
        Ok((client, ToServer::Keys(keys)))
    }

    /// Where it is.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// What the coordinator says, and the answer. After the neighbours' shares there is none: [`Client::mask`] gives the next
    /// message, as soon as there is a vector.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; the client is where it was before.
    pub fn handle(&mut self, message: ToClient) -> Result<Option<ToServer>, Refusal> {
        if self.step == Step::Done {
            return Err(Refusal::Revealed);
        }
        // With the shares here it is the vector's turn, and the coordinator's only after that.
        let vector_is_due = self.step == Step::Mask && !self.masked;
        if message.step() != self.step || vector_is_due {
            return Err(Refusal::OutOfTurn {
                said: message.step(),
                at: self.step,
            });
        }
        match message {
            ToClient::Keys { members, keys } => self.share(members, &keys).map(Some),
            ToClient::Shares { sharers, sealed } => self.hold(sharers, &sealed).map(|()| None),
            ToClient::Survivors(survivors) => self.sign(survivors).map(Some),
            ToClient::Unmask(request) => self.reveal(&request).map(Some),
        }
    }

    fn share(&mut self, members: Members, keys: &[Keys]) -> Result<ToServer, Refusal> {
        let session = self.session.clone();
        self.check(Step::Keys, &members, None)?;
        let holders = session.holders(&members, self.me);
        let neighbours: Vec<_> = holders
            .iter()
            .copied()
            .filter(|holder| *holder != self.me)
            .collect();
        self.check_count(Step::Keys, keys.len(), neighbours.len())?;
        let mut known = BTreeMap::new();
        for (neighbour, keys) in neighbours.into_iter().zip(keys) {
            let statement = Statement::Keys {
                channel: &keys.channel,
                mask: &keys.mask,
            };
            if !statement.verify(&session, &session.roster().key(neighbour), *keys.signature) {
                return Err(Refusal::Signature {
                    what: Step::Keys,
                    node: session.node(neighbour),
                });
            }
            known.insert(neighbour, *keys);
        }
        let threshold = session.threshold(members.len());
        let too_few = Refusal::TooFew {
            step: Step::Keys,
            have: holders.len(),
            need: threshold,
        };
        let split = |secret: &Scalar, random: &mut ChaCha20Rng| {
            shamir::split(secret, threshold, &holders, random).ok_or_else(|| too_few.clone())
        };
        let pair_masks = Zeroizing::new(split(&self.mask_secret, &mut self.random)?);
        let own_mask = Zeroizing::new(split(&self.own_mask, &mut self.random)?);

        let mut sealed = Vec::with_capacity(known.len());
        let mut commitments = Vec::with_capacity(holders.len());
        for (place, holder) in holders.iter().enumerate() {
            let shares = [pair_masks[place], own_mask[place]];
            let commit = |which, share| shamir::commitment(&session, self.me, *holder, which, share);
            let both = [
                commit(Secret::PairMasks, &shares[0]),
                commit(Secret::OwnMask, &shares[1]),
            ];
            let mut commitment = [0; 32];
            commitment.copy_from_slice(both.as_flattened());
            commitments.push(commitment.into());
            match known.get(holder) {
                Some(keys) => {
                    let channel = Channel::new(&session, &self.channel, *keys.channel);
                    let weak = || Refusal::WeakKey(session.node(*holder));
                    sealed.push(channel.seal(self.me, *holder, shares).ok_or_else(weak)?.into());
                }
                None => {
                    self.held.insert(self.me, Zeroizing::new(shares));
                }
            }
        }
        (self.members, self.holders, self.neighbours) = (members, holders, known);
        self.step = Step::Shares;
        let own_mask = keys::own_mask_identity(&session, &self.own_mask, self.me).into();
        Ok(ToServer::Shares(Shares {
            sealed,
            commitments,
            own_mask,
        }))
    }

    fn hold(&mut self, sharers: Members, sealed: &[ByteArray<{ keys::SEALED }>]) -> Result<(), Refusal> {
        self.check(Step::Shares, &sharers, Some(&self.members))?;
        self.check_holders(Step::Shares, &sharers)?;
        let from: Vec<_> = self
            .neighbours
            .keys()
            .copied()
            .filter(|one| sharers.contains(*one))
            .collect();
        self.check_count(Step::Shares, sealed.len(), from.len())?;
        for (neighbour, sealed) in from.into_iter().zip(sealed) {
            let channel = Channel::new(&self.session, &self.channel, *self.neighbours[&neighbour].channel);
            // A neighbour that sends garbage harms itself: this holder will have nothing to reveal of it.
            if let Some(shares) = channel.open(neighbour, self.me, sealed) {
                self.held.insert(neighbour, Zeroizing::new(shares));
            }
        }
        self.sharers = sharers;
        self.step = Step::Mask;
        Ok(())
    }

    /// Masks the vector, once the neighbours' shares are here ([`Step::Mask`]).
    ///
    /// # Errors
    ///
    /// It is not the vector's turn, the vector has another length than was agreed on, or an element is outside the ring.
    pub fn mask(&mut self, vector: &[u64]) -> Result<ToServer, Refusal> {
        let session = self.session.clone();
        let (ring, length) = (session.settings().ring, session.settings().length);
        if self.step != Step::Mask || self.masked {
            return Err(Refusal::OutOfTurn {
                said: Step::Mask,
                at: self.step,
            });
        }
        if vector.len() != length {
            return Err(Refusal::Length {
                have: vector.len(),
                need: length,
            });
        }
        if let Some(element) = vector.iter().position(|element| ring.wrap(*element) != *element) {
            return Err(Refusal::OutsideRing(element));
        }
        let mut masked = vector.to_vec();
        ring.add_mask(&mut masked, &keys::own_mask(&session, &self.own_mask, self.me));
        for (neighbour, keys) in &self.neighbours {
            if !self.sharers.contains(*neighbour) {
                continue;
            }
            let key = keys::pair_mask(&session, &self.mask, &keys.mask, [self.me, *neighbour])
                .ok_or_else(|| Refusal::WeakKey(session.node(*neighbour)))?;
            match *neighbour < self.me {
                true => ring.add_mask(&mut masked, &key),
                false => ring.subtract_mask(&mut masked, &key),
            }
        }
        self.masked = true;
        Ok(ToServer::Masked(ring.pack(&masked).into()))
    }

    fn sign(&mut self, survivors: Members) -> Result<ToServer, Refusal> {
        self.check(Step::Mask, &survivors, Some(&self.sharers))?;
        self.check_holders(Step::Mask, &survivors)?;
        let channel = PublicKey::from(&self.channel).to_bytes();
        let statement = Statement::Survivors {
            members: &survivors,
            channel: &channel,
        };
        let signature = statement.sign(&self.session, &self.identity);
        self.survivors = survivors;
        self.step = Step::Consistency;
        Ok(ToServer::Consistent(signature.into()))
    }

    fn reveal(&mut self, request: &UnmaskRequest) -> Result<ToServer, Refusal> {
        let UnmaskRequest {
            survivors,
            dropped,
            signatures,
        } = request;
        if !survivors.fits(self.session.members()) || !dropped.fits(self.session.members()) {
            return Err(Refusal::Members(Step::Unmask));
        }
        if let Some(both) = survivors.overlap(dropped) {
            return Err(Refusal::Overlap(self.session.node(both)));
        }
        if *survivors != self.survivors {
            return Err(Refusal::OtherSurvivors);
        }
        if *dropped != self.sharers.without(survivors) {
            return Err(Refusal::NotAll);
        }
        self.check_signatures(survivors, signatures)?;
        let shares = self
            .holders
            .iter()
            .filter(|owner| self.sharers.contains(**owner))
            .map(|owner| {
                let which = if survivors.contains(*owner) {
                    Secret::OwnMask
                } else {
                    Secret::PairMasks
                };
                self.held.get(owner).map(|shares| shares[which as usize].into())
            })
            .collect();
        self.step = Step::Done;
        self.held.clear();
        Ok(ToServer::Unmask(Revealed(shares)))
    }
}

impl std::fmt::Debug for Client {
    /// Without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("me", &self.me)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
