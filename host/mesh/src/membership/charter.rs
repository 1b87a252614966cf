use super::signer::Signer;
use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{MembershipError, MeshKey, UnixTime};
use bytes::Bytes;
use std::collections::BTreeSet;

const FIELD: &str = "charter";
/// Six keys, a token and a signature, with their framing.
const MAX_BYTES: usize = 16 << 10;
/// The highest number but for the present root key: no other charter would ever take the place of the last one that there can be.
const MOST: u64 = 1 << 32;

/// The statement which nodes are the keepers of a mesh, signed by the root key or an issuer with the right `issue`. It goes from
/// node to node; of two, all take the one with the higher number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Charter {
    number: u64,
    keepers: BTreeSet<[u8; 32]>,
    former: BTreeSet<[u8; 32]>,
    at: UnixTime,
    issuer: Option<Bytes>,
    /// The node that has signed it; nothing where the root key has.
    by: Option<[u8; 32]>,
    signature: [u8; 64],
}

type Keys = Vec<Fixed<32>>;
/// Number, keepers, former keepers, time, token of the issuer, signature.
type Wire = (u64, Keys, Keys, UnixTime, Option<Bytes>, Fixed<64>);

impl Charter {
    /// How many keepers there are: two of them are a majority that survives the loss of one.
    pub const KEEPERS: usize = 3;

    pub(super) fn sign(
        keepers: &[[u8; 32]],
        before: Option<&Self>,
        at: UnixTime,
        (signer, issuer): (&Signer, Option<Bytes>),
        seed: &[u8; 32],
    ) -> Result<Self, MembershipError> {
        let number = before.map_or(Some(1), |before| before.number.checked_add(1));
        let number = number.ok_or_else(|| {
            MembershipError::malformed(
                FIELD,
                "has the last number that there is: no other can take its place",
            )
        })?;
        let mut charter = Self {
            number,
            keepers: keepers.iter().copied().collect(),
            former: before.map_or_else(BTreeSet::new, |before| before.keepers.clone()),
            at,
            issuer,
            by: node_of(signer),
            signature: [0; 64],
        };
        charter.check()?;
        charter.signature = Statement::Charter.sign(seed, &charter.body(&signer.mesh()));
        Ok(charter)
    }

    /// 1 for the first of a mesh, one more for each that takes the place of another.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The public key of the node that has signed it; nothing where that was the root key.
    pub const fn issuer(&self) -> Option<&[u8; 32]> {
        self.by.as_ref()
    }

    /// The public keys of the keepers.
    pub const fn keepers(&self) -> &BTreeSet<[u8; 32]> {
        &self.keepers
    }

    /// The public keys of those whose place they take; they hand over what is kept.
    pub const fn former(&self) -> &BTreeSet<[u8; 32]> {
        &self.former
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        let keys = |keys: &BTreeSet<[u8; 32]>| keys.iter().copied().map(Fixed).collect();
        let wire: Wire = (
            self.number,
            keys(&self.keepers),
            keys(&self.former),
            self.at,
            self.issuer.clone(),
            Fixed(self.signature),
        );
        wire::encode(&wire)
    }

    /// That of this mesh, from the CBOR form.
    ///
    /// # Errors
    /// [`MembershipError::TooLong`] (16 KiB); [`Malformed`](MembershipError::Malformed), [`Foreign`](MembershipError::Foreign),
    /// [`NotAnIssuer`](MembershipError::NotAnIssuer) and [`Expired`](MembershipError::Expired) when it was not signed by who may.
    pub fn decode(mesh: &MeshKey, bytes: &[u8]) -> Result<Self, MembershipError> {
        let (number, keepers, former, at, issuer, signature): Wire = wire::decode(FIELD, bytes, MAX_BYTES)?;
        let keys = |keys: Keys| keys.into_iter().map(|key| key.0).collect();
        let mut charter = Self {
            number,
            keepers: keys(keepers),
            former: keys(former),
            at,
            issuer,
            by: None,
            signature: signature.0,
        };
        let signer = Signer::read(mesh, charter.issuer.as_deref())?;
        charter.by = node_of(&signer);
        charter.check()?;
        Statement::Charter.verify(signer.key(), &charter.body(mesh), &charter.signature)?;
        signer.may_charter(at)?;
        Ok(charter)
    }

    /// The same with another number, which its signature is not for.
    #[cfg(test)]
    pub(crate) fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    fn check(&self) -> Result<(), MembershipError> {
        if self.keepers.len() != Self::KEEPERS || self.former.len() > Self::KEEPERS {
            return Err(MembershipError::malformed(
                FIELD,
                "names another number of nodes than three; name three different ones",
            ));
        }
        match self.by {
            Some(_) => self.check_number(),
            None => Ok(()),
        }
    }

    /// Refuses a number that is for the present root key only.
    ///
    /// # Errors
    /// [`MembershipError::Malformed`].
    pub(crate) fn check_number(&self) -> Result<(), MembershipError> {
        match self.number > MOST {
            true => Err(MembershipError::malformed(
                FIELD,
                "has a number that only the root key gives; name the keepers where that is",
            )),
            false => Ok(()),
        }
    }

    fn body(&self, mesh: &MeshKey) -> Vec<u8> {
        let keys = |keys: &BTreeSet<[u8; 32]>| keys.iter().copied().map(Fixed).collect::<Keys>();
        let (keepers, former) = (keys(&self.keepers), keys(&self.former));
        wire::encode(&(Fixed(*mesh.as_bytes()), self.number, keepers, former, self.at))
    }
}

fn node_of(signer: &Signer) -> Option<[u8; 32]> {
    match signer {
        Signer::Root(_) => None,
        Signer::Issuer(_) => Some(*signer.key()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, Revocations, Right, RootKey, Terms};
    use karman_types::Tier;
    use std::time::Duration;

    const NOW: UnixTime = UnixTime::from_seconds(1_800_000_000);

    #[test]
    fn keepers_are_named_by_the_issuer_only() {
        let root = RootKey::from_seed(&[1; 32]);
        let issuer = Issuer::root(&root);
        let first = issuer.charter(&[[1; 32], [2; 32], [3; 32]], None, NOW).unwrap();
        let next = issuer
            .charter(&[[2; 32], [3; 32], [4; 32]], Some(&first), NOW)
            .unwrap();
        assert_eq!((next.number(), next.former()), (2, first.keepers()));
        assert_eq!(Charter::decode(&root.public(), &next.encode()).unwrap(), next);

        let other = RootKey::from_seed(&[2; 32]);
        let foreign = Charter::decode(&other.public(), &next.encode()).unwrap_err();
        assert!(
            matches!(foreign, MembershipError::Malformed { field: "charter", .. }),
            "{foreign}"
        );
        let forged = next.numbered(9);
        assert!(Charter::decode(&root.public(), &forged.encode()).is_err());
        let few = issuer
            .charter(&[[1; 32], [1; 32], [2; 32]], None, NOW)
            .unwrap_err();
        assert!(few.to_string().contains("three different"), "{few}");
    }

    #[test]
    fn after_the_last_number_there_is_no_other() {
        let issuer = Issuer::root(&RootKey::from_seed(&[1; 32]));
        let keepers = [[1; 32], [2; 32], [3; 32]];
        let first = issuer.charter(&keepers, None, NOW).unwrap();
        let last = first.numbered(u64::MAX);
        let none = issuer.charter(&keepers, Some(&last), NOW).unwrap_err();
        assert!(none.to_string().contains("the last number"), "{none}");
    }

    #[test]
    fn a_node_leaves_the_root_key_higher_numbers() {
        let root = Issuer::root(&RootKey::from_seed(&[1; 32]));
        let (mesh, key) = (root.mesh(), *RootKey::from_seed(&[2; 32]).public().as_bytes());
        let mut terms = Terms::usual(Tier::Fog, NOW.after(Duration::from_secs(86_400)));
        terms.rights = [Right::Issue].into_iter().collect();
        let own = root.issue(&key, &terms, NOW).unwrap();
        let node = Issuer::node(&mesh, &[2; 32], &own, NOW, &Revocations::new(mesh)).unwrap();
        let keepers = [[1; 32], [2; 32], [3; 32]];
        let first = root.charter(&keepers, None, NOW).unwrap();
        let at_most = first.clone().numbered(MOST - 1);
        let last = node.charter(&keepers, Some(&at_most), NOW).unwrap();
        let last = Charter::decode(&mesh, &last.encode()).unwrap();
        assert_eq!((last.number(), last.issuer()), (MOST, Some(&key)));
        let beyond = node.charter(&keepers, Some(&last), NOW).unwrap_err();
        assert!(beyond.to_string().contains("only the root key"), "{beyond}");
        assert_eq!(
            root.charter(&keepers, Some(&last), NOW).unwrap().number(),
            MOST + 1
        );

        // Whatever its code would say to it.
        let mut forged = first.numbered(u64::MAX);
        (forged.issuer, forged.by) = (Some(own.token), Some(key));
        forged.signature = Statement::Charter.sign(&[2; 32], &forged.body(&mesh));
        let refused = Charter::decode(&mesh, &forged.encode()).unwrap_err();
        assert!(refused.to_string().contains("only the root key"), "{refused}");
    }
}
