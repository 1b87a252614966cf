use super::roster::Position;
use super::session::Session;
use chacha20::rand_core::CryptoRng;
use curve25519_dalek::Scalar;
use karman_types::Digest;
use std::collections::HashMap;
use vsss_rs::{IdentifierPrimeField, PrimeFieldShare, Share, shamir};

/// A client's share of a secret belongs to the point after its position: zero is where the secret is.
fn point(holder: Position) -> Scalar {
    Scalar::from(u64::from(holder) + 1)
}

/// Splits a secret among holders, `threshold` of which can put it together again (Shamir, 1979). The shares come in the order of
/// the holders; `None` if there are fewer holders than the threshold, or the threshold is below two.
pub(crate) fn split(
    secret: &Scalar,
    threshold: usize,
    holders: &[Position],
    random: &mut impl CryptoRng,
) -> Option<Vec<[u8; 32]>> {
    let points = holders.iter().map(|holder| IdentifierPrimeField(point(*holder)));
    let secret = IdentifierPrimeField(*secret);
    let shares = shamir::split_secret_with_participant_ids_iter::<PrimeFieldShare<Scalar>>(
        threshold,
        holders.len(),
        &secret,
        random,
        points,
    );
    let bytes = |share: &PrimeFieldShare<Scalar>| share.value().0.to_bytes();
    Some(shares.ok()?.iter().map(bytes).collect())
}

/// Puts secrets together.
///
/// The weights of the shares depend on who holds them, not on what they are. On a complete graph the same holders answer for
/// everybody, so their weights are kept: without that the coordinator's time grows with the cube of the clients' number.
#[derive(Default)]
pub(crate) struct Combiner {
    weights: HashMap<Vec<Position>, Vec<Scalar>>,
}

impl Combiner {
    /// The secret that these shares are of, by interpolation at zero. A share that is no scalar counts for nothing, and the result is
    /// wrong: it has to be checked against what its owner said of it.
    pub(crate) fn combine(&mut self, shares: &[(Position, [u8; 32])]) -> Scalar {
        let holders: Vec<_> = shares.iter().map(|(holder, _)| *holder).collect();
        let weights = self
            .weights
            .entry(holders)
            .or_insert_with_key(|holders| weights(holders));
        weights
            .iter()
            .zip(shares)
            .map(|(weight, (_, share))| weight * scalar(share).unwrap_or(Scalar::ZERO))
            .sum()
    }
}

/// The scalar that these bytes are, if they are one.
pub(crate) fn scalar(bytes: &[u8; 32]) -> Option<Scalar> {
    Scalar::from_canonical_bytes(*bytes).into()
}

/// Lagrange's basis polynomials at zero. The points are public and distinct.
fn weights(holders: &[Position]) -> Vec<Scalar> {
    let points: Vec<_> = holders.iter().map(|holder| point(*holder)).collect();
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for (mine, at) in points.iter().enumerate() {
        let others = || points.iter().enumerate().filter(|(other, _)| *other != mine);
        above.push(others().map(|(_, other)| other).product::<Scalar>());
        below.push(others().map(|(_, other)| other - at).product::<Scalar>());
    }
    Scalar::invert_batch_alloc(&mut below);
    above
        .iter()
        .zip(&below)
        .map(|(above, below)| above * below)
        .collect()
}

/// What an owner tells the coordinator of a share, so that whoever changes it later is found out: half a digest. The share itself
/// is a uniform scalar, which nobody guesses.
pub(crate) fn commitment(
    session: &Session,
    owner: Position,
    holder: Position,
    which: Secret,
    share: &[u8; 32],
) -> [u8; 16] {
    let mut text = session.digest().as_bytes().to_vec();
    text.extend_from_slice(&owner.to_le_bytes());
    text.extend_from_slice(&holder.to_le_bytes());
    text.push(which as u8);
    text.extend_from_slice(share);
    let mut half = [0; 16];
    half.copy_from_slice(&Digest::of(&text).as_bytes()[..16]);
    half
}

/// Which of a client's two secrets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Secret {
    /// The key that its pair masks come from: asked for if it dropped out.
    PairMasks = 0,
    /// Its own mask: asked for if it did not.
    OwnMask = 1,
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20::ChaCha20Rng;
    use chacha20::rand_core::SeedableRng;
    use proptest::prelude::*;
    use vsss_rs::ReadableShareSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_threshold_of_shares_gives_the_secret_and_fewer_do_not(
            seed in any::<[u8; 32]>(), holders in 3_usize..20, order in any::<u64>(),
        ) {
            let mut random = ChaCha20Rng::from_seed(seed);
            let secret = super::super::keys::fresh_scalar(&mut random);
            let threshold = super::super::graph::threshold(holders);
            let positions: Vec<Position> = (0..holders as u16).map(|n| n * 3).collect();
            let shares = split(&secret, threshold, &positions, &mut random).unwrap();
            let mut shares: Vec<_> = positions.iter().copied().zip(shares).collect();
            fastrand::Rng::with_seed(order).shuffle(&mut shares);

            let mut combiner = Combiner::default();
            prop_assert_eq!(combiner.combine(&shares[..threshold]), secret);
            prop_assert_ne!(combiner.combine(&shares[..threshold - 1]), secret);
            let theirs: Vec<_> = shares[..threshold]
                .iter()
                .map(|(holder, share)| PrimeFieldShare::with_identifier_and_value(
                    IdentifierPrimeField(point(*holder)),
                    IdentifierPrimeField(scalar(share).unwrap()),
                ))
                .collect();
            prop_assert_eq!(theirs.combine().unwrap().0, secret, "as the library puts it together");
        }
    }

    #[test]
    fn a_threshold_that_cannot_be_met_is_refused() {
        let mut random = ChaCha20Rng::from_seed([1; 32]);
        assert_eq!(split(&Scalar::ONE, 4, &[0, 1, 2], &mut random), None);
    }
}
