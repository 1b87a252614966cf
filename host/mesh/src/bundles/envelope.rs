use crate::membership::{Kind, Member, MembershipError, Signed, UnixTime};
use crate::seal::{self, Private};
use crate::standing::Standing;
use bytes::Bytes;
use ed25519_compact::{KeyPair, PublicKey, Seed, x25519};
use karman_types::{Digest, NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the key that seals an envelope is for.
const PURPOSE: &[u8] = b"karman-envelope/1";
/// The length of the statement stands before it.
const LENGTH: usize = 4;

/// A sealed request to a node that cannot be reached now.
///
/// It is stated by a member ([`Signed`]: membership, rights and expiry go with it), together with the digest of what it
/// brings, and sealed to the destination by HPKE (RFC 9180), bound to the mesh. The destination's key is the Montgomery form of its
/// Ed25519 key: the one key pair serves for both (Thormarker, "On using the same key pair for Ed25519 and an X25519 based KEM", 2021).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Envelope {
    /// The node that shall do it.
    pub to: NodeId,
    /// The last second in which it may.
    pub not_after: UnixTime,
    /// The tasks that led here, outermost first.
    pub chain: Vec<Arc<str>>,
    /// What it shall do.
    pub parcel: Parcel,
    /// What it brings.
    pub content: Digest,
}

/// The subject of an envelope.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Parcel {
    /// Take the component that it brings as a plugin of this name.
    Deploy {
        /// The plugin.
        name: String,
        /// Whether an older version may replace a newer one.
        downgrade: bool,
    },
    /// Run an attempt at an accepted task of this name: the content says which, and with what.
    Attempt {
        /// The task.
        name: String,
    },
    /// What came of the attempt that came in this bundle: the content says it.
    Answer {
        /// The bundle.
        bundle: Digest,
    },
    /// What became of an envelope that came in this bundle.
    Outcome {
        /// The bundle.
        bundle: Digest,
        /// Why it was refused; nothing when it was done.
        refused: Option<TaskError>,
    },
}

impl Envelope {
    /// Signs it in this node's name and seals it to the node of this public key.
    ///
    /// # Errors
    /// `unavailable` while this node is no member, `invalid` when nothing can be sealed to that key.
    pub fn seal(&self, key: &[u8; 32], content: &[u8], standing: &Standing) -> Result<Vec<u8>, TaskError> {
        let internal = |error: &dyn std::fmt::Display| TaskError::internal(error.to_string());
        let says = cbor4ii::serde::to_vec(Vec::new(), self).map_err(|error| internal(&error))?;
        let signed = standing.sign(Kind::Envelope, says.into())?.encode();
        let length = u32::try_from(signed.len()).map_err(|error| internal(&error))?;
        let plain = [&length.to_le_bytes(), &signed[..], content].concat();
        let sealed = x25519::PublicKey::from_ed25519(&PublicKey::new(*key)).ok();
        let sealed = sealed.and_then(|key| seal::seal(&key, PURPOSE, standing.mesh().as_bytes(), &plain));
        sealed.ok_or_else(|| TaskError::invalid("the node's key is no point on the curve"))
    }

    /// Opens what was sealed to this node, and judges who sent it: the sender, what it asks, and what it brings.
    ///
    /// # Errors
    /// `invalid` when it was changed, or sealed to another; those of [`judge`](Self::judge).
    pub fn open(sealed: &[u8], standing: &Standing) -> Result<(Member, Self, Bytes), TaskError> {
        let plain = unseal(sealed, standing)
            .ok_or_else(|| wrong("was not sealed to this node, or was changed on the way"))?;
        Self::judge(plain.into(), standing)
    }

    /// Of what it says and who says it: that stays the same in whatever bundle it comes.
    ///
    /// # Errors
    /// `internal` when it cannot be written.
    pub fn digest(&self, sender: NodeId) -> Result<Digest, TaskError> {
        let says = cbor4ii::serde::to_vec(Vec::new(), &(sender, self));
        let says =
            says.map_err(|error| TaskError::internal(format!("an envelope cannot be written: {error}")))?;
        Ok(Digest::of(&says))
    }

    /// Judges what was sealed.
    ///
    /// # Errors
    /// `invalid` when it does not read, `denied` when the sender's membership does not hold, it is for another node, or its
    /// time is over.
    pub fn judge(mut plain: Bytes, standing: &Standing) -> Result<(Member, Self, Bytes), TaskError> {
        if plain.len() < LENGTH {
            return Err(wrong("is cut off"));
        }
        let length = plain.split_to(LENGTH);
        let length = u32::from_le_bytes(length[..].try_into().unwrap_or_default()) as usize;
        if length > plain.len() {
            return Err(wrong("is cut off"));
        }
        let refused = |error: MembershipError| {
            TaskError::new(error.kind(), format!("the envelope: {error}")).with_field("envelope")
        };
        let signed = Signed::decode(&plain.split_to(length)).map_err(refused)?;
        let sender = standing.judge(Kind::Envelope, &signed).map_err(refused)?;
        let envelope: Self = cbor4ii::serde::from_slice(signed.says())
            .map_err(|error| wrong(&format!("does not read: {error}")))?;
        let denied =
            |why: String| Err(TaskError::denied(format!("the envelope {why}")).with_field("envelope"));
        if envelope.to != NodeId::of_key(&standing.public_key()) {
            return denied(format!("is for node {}", envelope.to.short()));
        }
        if envelope.not_after < standing.now() {
            return denied(format!("was good until {}", envelope.not_after));
        }
        if envelope.content != Digest::of(&plain) {
            return Err(wrong("brings something else than its sender has signed"));
        }
        Ok((sender, envelope, plain))
    }
}

fn wrong(why: &str) -> TaskError {
    TaskError::invalid(format!("the envelope {why}")).with_field("envelope")
}

fn unseal(sealed: &[u8], standing: &Standing) -> Option<Vec<u8>> {
    let pair = KeyPair::from_seed(Seed::new(*standing.seed()));
    let key = Private::from_bytes(&x25519::SecretKey::from_ed25519(&pair.sk).ok()?[..])?;
    // It may have been sealed before the mesh got the root key that it has now.
    let mut meshes = standing.meshes().into_iter();
    meshes.find_map(|mesh| key.open(PURPOSE, mesh.as_bytes(), sealed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey, Terms};
    use karman_store::Store;
    use karman_types::Tier;
    use proptest::prelude::*;
    use std::time::Duration;
    use tempfile::TempDir;

    fn node(root: &RootKey) -> (Standing, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (
            Standing::open(store, Tier::Edge, None, Some(Issuer::root(root))).unwrap(),
            folder,
        )
    }

    fn envelope(to: &Standing, content: &[u8]) -> Envelope {
        Envelope {
            to: NodeId::of_key(&to.public_key()),
            not_after: to.now().after(Duration::from_secs(60)),
            chain: Vec::new(),
            parcel: Parcel::Deploy {
                name: "tiny".into(),
                downgrade: false,
            },
            content: Digest::of(content),
        }
    }

    #[test]
    fn only_the_destination_opens_it_and_knows_who_sent_it() {
        let root = RootKey::generate().unwrap();
        let ((ours, _a), (theirs, _b), (between, _c)) = (node(&root), node(&root), node(&root));
        let sent = envelope(&theirs, b"component");
        let sealed = sent.seal(&theirs.public_key(), b"component", &ours).unwrap();
        assert!(!sealed.windows(9).any(|window| window == b"component"));
        let (sender, read, content) = Envelope::open(&sealed, &theirs).unwrap();
        assert_eq!(
            (sender.key, read, &content[..]),
            (ours.public_key(), sent, &b"component"[..])
        );
        let refused = Envelope::open(&sealed, &between).unwrap_err();
        assert!(refused.message.contains("not sealed to this node"), "{refused:?}");
        for at in (0..sealed.len()).step_by(7) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(Envelope::open(&changed, &theirs).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_does_not_hold_is_refused() {
        let root = RootKey::generate().unwrap();
        let ((ours, _a), (theirs, _b)) = (node(&root), node(&root));
        let open = |envelope: &Envelope, from: &Standing| {
            let sealed = envelope.seal(&theirs.public_key(), b"x", from).unwrap();
            Envelope::open(&sealed, &theirs).map(drop).unwrap_err().message
        };
        let good = envelope(&theirs, b"x");
        let other = Envelope {
            to: NodeId::of_key(b"other"),
            ..good.clone()
        };
        assert!(open(&other, &ours).contains("is for node"));
        let late = Envelope {
            not_after: UnixTime::from_seconds(1),
            ..good.clone()
        };
        assert!(open(&late, &ours).contains("was good until"));
        let swapped = Envelope {
            content: Digest::of(b"y"),
            ..good.clone()
        };
        assert!(open(&swapped, &ours).contains("something else"));
        let (stranger, _c) = node(&RootKey::generate().unwrap());
        assert!(
            open(&good, &stranger).contains("not sealed to this node"),
            "bound to the mesh"
        );
    }

    #[test]
    fn who_was_put_out_sends_nothing_any_more() {
        let root = RootKey::generate().unwrap();
        let ((issuer, _a), (theirs, _b)) = (node(&root), node(&root));
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let now = issuer.now();
        let terms = Terms::usual(Tier::Edge, now.after(Duration::from_secs(60)));
        let word =
            Issuer::root(&root).invite(&terms, now.after(Duration::from_secs(60)), None, Vec::new(), now);
        let word = word.unwrap();
        let member = Standing::open(store, Tier::Edge, Some(word.clone()), None).unwrap();
        let membership = issuer.redeem(&word, &member.public_key()).unwrap();
        member.granted(membership).unwrap();
        let sealed = envelope(&theirs, b"x")
            .seal(&theirs.public_key(), b"x", &member)
            .unwrap();
        Envelope::open(&sealed, &theirs).unwrap();
        theirs.revoke(&member.public_key()).unwrap();
        assert!(Envelope::open(&sealed, &theirs).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_bytes_are_refused(garbage in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (standing, _folder) = node(&RootKey::from_seed(&[7; 32]));
            prop_assert!(Envelope::open(&garbage, &standing).is_err());
        }
    }
}
