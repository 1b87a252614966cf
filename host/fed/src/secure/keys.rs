use super::roster::{Members, Position};
use super::session::Session;
use chacha20::rand_core::CryptoRng;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key};
use curve25519_dalek::Scalar;
use ed25519_compact::{KeyPair, PublicKey, Signature};
use hkdf::Hkdf;
use sha2::Sha256;
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// Derived keys wipe themselves.
pub(crate) type Key32 = Zeroizing<[u8; 32]>;

/// Bytes of two sealed shares.
pub(crate) const SEALED: usize = 64 + 16;

/// What is derived, so that no two derivations are of the same key.
#[derive(Clone, Copy)]
enum Purpose {
    MaskSecret = 1,
    OwnMask = 2,
    PairMask = 3,
    Channel = 4,
    Identity = 5,
}

/// HKDF-SHA256 (RFC 5869), the round as its salt.
fn derive(session: &Session, purpose: Purpose, secret: &[u8], of: [Position; 2]) -> Key32 {
    let mut key = Zeroizing::new([0; 32]);
    let mut info = [purpose as u8; 5];
    info[1..3].copy_from_slice(&of[0].to_le_bytes());
    info[3..5].copy_from_slice(&of[1].to_le_bytes());
    let expanded = Hkdf::<Sha256>::new(Some(session.digest().as_bytes()), secret).expand(&info, &mut *key);
    debug_assert!(expanded.is_ok(), "32 bytes are within what HKDF gives");
    key
}

/// A fresh secret that can be shared: uniform in the scalars of Curve25519.
pub(crate) fn fresh_scalar(random: &mut impl CryptoRng) -> Scalar {
    let mut wide = Zeroizing::new([0; 64]);
    random.fill_bytes(&mut *wide);
    Scalar::from_bytes_mod_order_wide(&wide)
}

/// The X25519 key that pair masks come from. It is derived from a scalar, and the scalar is what is shared: an X25519 key itself
/// is no scalar below the order of the curve.
pub(crate) fn mask_secret(session: &Session, secret: &Scalar, owner: Position) -> StaticSecret {
    let key = derive(session, Purpose::MaskSecret, secret.as_bytes(), [owner, owner]);
    StaticSecret::from(*key)
}

/// The key of the mask that a client puts on for itself.
pub(crate) fn own_mask(session: &Session, secret: &Scalar, owner: Position) -> Key32 {
    derive(session, Purpose::OwnMask, secret.as_bytes(), [owner, owner])
}

/// What a client says of its own secret before it shares it: whoever puts it together can tell whether it is right.
pub(crate) fn own_mask_identity(session: &Session, secret: &Scalar, owner: Position) -> [u8; 32] {
    *derive(session, Purpose::Identity, secret.as_bytes(), [owner, owner])
}

/// The key of the mask that two clients have in common; `None` if the other's key is of low order.
pub(crate) fn pair_mask(
    session: &Session,
    secret: &StaticSecret,
    theirs: &[u8; 32],
    between: [Position; 2],
) -> Option<Key32> {
    let shared = secret.diffie_hellman(&(*theirs).into());
    let between = [between[0].min(between[1]), between[0].max(between[1])];
    shared
        .was_contributory()
        .then(|| derive(session, Purpose::PairMask, shared.as_bytes(), between))
}

/// Whether anything agreed on with this key is known to everybody.
pub(crate) fn is_of_low_order(key: &[u8; 32]) -> bool {
    !StaticSecret::from([1; 32])
        .diffie_hellman(&(*key).into())
        .was_contributory()
}

/// What one client tells another through the coordinator, by ChaCha20-Poly1305 (RFC 8439). The key of each direction seals one
/// message only.
pub(crate) struct Channel<'a> {
    session: &'a Session,
    secret: &'a StaticSecret,
    theirs: [u8; 32],
}

impl<'a> Channel<'a> {
    pub(crate) const fn new(session: &'a Session, secret: &'a StaticSecret, theirs: [u8; 32]) -> Self {
        Self {
            session,
            secret,
            theirs,
        }
    }

    fn cipher(&self, from: Position, to: Position) -> Option<ChaCha20Poly1305> {
        let shared = self.secret.diffie_hellman(&self.theirs.into());
        let key = derive(self.session, Purpose::Channel, shared.as_bytes(), [from, to]);
        let cipher = ChaCha20Poly1305::new(&Key::from(*key));
        shared.was_contributory().then_some(cipher)
    }

    /// Two shares for `to`; `None` if its key is of low order.
    pub(crate) fn seal(&self, from: Position, to: Position, shares: [[u8; 32]; 2]) -> Option<[u8; SEALED]> {
        let plain = Zeroizing::new(shares.concat());
        let payload = Payload {
            msg: &plain,
            aad: self.session.digest().as_bytes(),
        };
        let sealed = self
            .cipher(from, to)?
            .encrypt(&Default::default(), payload)
            .ok()?;
        sealed.try_into().ok()
    }

    /// The two shares from `from`, if it sealed these for us in this round.
    pub(crate) fn open(&self, from: Position, to: Position, sealed: &[u8; SEALED]) -> Option<[[u8; 32]; 2]> {
        let payload = Payload {
            msg: sealed.as_slice(),
            aad: self.session.digest().as_bytes(),
        };
        let plain = Zeroizing::new(
            self.cipher(from, to)?
                .decrypt(&Default::default(), payload)
                .ok()?,
        );
        let (shares, rest) = plain.as_chunks::<32>();
        (rest.is_empty() && shares.len() == 2).then(|| [shares[0], shares[1]])
    }
}

/// Something that a client signs in a round.
pub(crate) enum Statement<'a> {
    /// These are my keys.
    Keys {
        channel: &'a [u8; 32],
        mask: &'a [u8; 32],
    },
    /// These are all whose vectors arrived, in the round in which I have opened this channel.
    Survivors {
        members: &'a Members,
        channel: &'a [u8; 32],
    },
}

impl Statement<'_> {
    fn text(&self, session: &Session) -> Vec<u8> {
        let mut text = session.digest().as_bytes().to_vec();
        match self {
            Self::Keys { channel, mask } => {
                text.push(1);
                text.extend_from_slice(*channel);
                text.extend_from_slice(*mask);
            }
            Self::Survivors { members, channel } => {
                text.push(2);
                text.extend_from_slice(*channel);
                text.extend_from_slice(members.as_bytes());
            }
        }
        text
    }

    pub(crate) fn sign(&self, session: &Session, by: &KeyPair) -> [u8; 64] {
        *by.sk.sign(self.text(session), None)
    }

    pub(crate) fn verify(&self, session: &Session, by: &PublicKey, signature: [u8; 64]) -> bool {
        by.verify(self.text(session), &Signature::new(signature)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Graph;
    use super::super::tests::session;
    use super::*;

    #[test]
    fn two_clients_find_the_same_mask_and_different_channels() {
        let session = session(4, Graph::Complete, 1).0;
        let [one, two] = [[1; 32], [2; 32]].map(StaticSecret::from);
        let [public_one, public_two] = [&one, &two].map(|key| x25519_dalek::PublicKey::from(key).to_bytes());
        let mask = pair_mask(&session, &one, &public_two, [0, 1]).unwrap();
        assert_eq!(mask, pair_mask(&session, &two, &public_one, [1, 0]).unwrap());
        assert_ne!(mask, pair_mask(&session, &one, &public_two, [0, 2]).unwrap());

        let shares = [[3; 32], [4; 32]];
        let sealed = Channel::new(&session, &one, public_two)
            .seal(0, 1, shares)
            .unwrap();
        let theirs = Channel::new(&session, &two, public_one);
        assert_eq!(theirs.open(0, 1, &sealed), Some(shares));
        assert_eq!(theirs.open(1, 0, &sealed), None, "a message sent back");
        let other = super::super::tests::session(5, Graph::Complete, 1).0;
        let replayed = Channel::new(&other, &two, public_one);
        assert_eq!(replayed.open(0, 1, &sealed), None, "a message of another round");
    }

    #[test]
    fn keys_of_low_order_are_noticed() {
        let session = session(4, Graph::Complete, 1).0;
        let secret = StaticSecret::from([1; 32]);
        assert_eq!(pair_mask(&session, &secret, &[0; 32], [0, 1]), None);
        assert_eq!(
            Channel::new(&session, &secret, [0; 32]).seal(0, 1, [[0; 32]; 2]),
            None
        );
    }
}
