use super::failure::Failure;
use super::keys;
use super::message::{Keys, Shares};
use super::roster::{Members, Position};
use super::session::Session;
use super::shamir::{self, Combiner, Secret};
use serde_bytes::ByteArray;
use std::collections::BTreeMap;

/// The shares that holders have revealed, by owner.
#[derive(Default)]
pub(crate) struct Entrusted(BTreeMap<Position, Vec<(Position, [u8; 32])>>);

impl Entrusted {
    pub(crate) fn add(&mut self, owner: Position, holder: Position, share: [u8; 32]) {
        self.0.entry(owner).or_default().push((holder, share));
    }

    /// As many as are needed, always of the holders that come first: so the weights of the shares are most often the same.
    fn of(
        &self,
        session: &Session,
        owner: Position,
        need: usize,
    ) -> Result<Vec<(Position, [u8; 32])>, Failure> {
        let mut shares = self.0.get(&owner).cloned().unwrap_or_default();
        shares.sort_unstable();
        let have = shares.len();
        if have < need {
            return Err(Failure::TooFewShares {
                owner: session.node(owner),
                have,
                need,
            });
        }
        shares.truncate(need);
        Ok(shares)
    }
}

/// What is known of a round when its sum is unmasked.
pub(crate) struct Round<'a> {
    pub(crate) session: &'a Session,
    pub(crate) members: &'a Members,
    pub(crate) sharers: &'a Members,
    pub(crate) survivors: &'a Members,
    pub(crate) holders: &'a BTreeMap<Position, Vec<Position>>,
    pub(crate) keys: &'a BTreeMap<Position, Keys>,
    pub(crate) shares: &'a BTreeMap<Position, Shares>,
}

impl Round<'_> {
    /// The masks that are to be taken off: of each survivor its own, and of each that dropped out those that it has in common with survivors.
    pub(crate) fn masks(&self) -> usize {
        let dropped = self.sharers.without(self.survivors);
        let pairs = dropped.iter().map(|owner| self.left_around(owner).count());
        self.survivors.len() + pairs.sum::<usize>()
    }

    /// The neighbours of a client whose vectors are in the sum.
    fn left_around(&self, owner: Position) -> impl Iterator<Item = Position> + '_ {
        let holders = self.holders.get(&owner).map_or(&[][..], Vec::as_slice);
        let left = move |holder: &Position| *holder != owner && self.survivors.contains(*holder);
        holders.iter().copied().filter(left)
    }
}

/// The secret that may be asked for.
pub(crate) fn which(survivors: &Members, owner: Position) -> Secret {
    match survivors.contains(owner) {
        true => Secret::OwnMask,
        false => Secret::PairMasks,
    }
}

/// Whether a share is the one that its owner committed to.
pub(crate) fn is_committed(
    session: &Session,
    owner: Position,
    holder: Position,
    which: Secret,
    share: &[u8; 32],
    commitments: &[u8; 32],
) -> bool {
    let said = &commitments.as_chunks::<16>().0[which as usize];
    shamir::scalar(share).is_some() && shamir::commitment(session, owner, holder, which, share) == *said
}

/// Takes the survivors' own masks off the sum, and the masks that they share with those who dropped out.
pub(crate) fn unmask(round: &Round<'_>, entrusted: &Entrusted, sum: &mut [u64]) -> Result<(), Failure> {
    let session = round.session;
    let need = session.threshold(round.members.len());
    let mut combiner = Combiner::default();
    for owner in round.sharers.iter() {
        let survived = round.survivors.contains(owner);
        // With no vector of a neighbour in the sum, none of its pair masks is.
        if !survived && round.left_around(owner).next().is_none() {
            continue;
        }
        let secret = combiner.combine(&entrusted.of(session, owner, need)?);
        let false_secret = || Failure::FalseSecret(session.node(owner));
        if survived {
            let identity = ByteArray::new(keys::own_mask_identity(session, &secret, owner));
            if round.shares[&owner].own_mask != identity {
                return Err(false_secret());
            }
            session
                .settings()
                .ring
                .subtract_mask(sum, &keys::own_mask(session, &secret, owner));
            continue;
        }
        let mask = keys::mask_secret(session, &secret, owner);
        if x25519_dalek::PublicKey::from(&mask).as_bytes() != &*round.keys[&owner].mask {
            return Err(false_secret());
        }
        for neighbour in round.left_around(owner) {
            let key = keys::pair_mask(session, &mask, &round.keys[&neighbour].mask, [owner, neighbour])
                .ok_or_else(false_secret)?;
            // The survivor added the mask if it stands after the one that dropped out.
            match owner < neighbour {
                true => session.settings().ring.subtract_mask(sum, &key),
                false => session.settings().ring.add_mask(sum, &key),
            }
        }
    }
    Ok(())
}
