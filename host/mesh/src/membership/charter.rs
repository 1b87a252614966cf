use super::signer::Signer;
use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{MembershipError, MeshKey, UnixTime};
use bytes::Bytes;
use std::collections::BTreeSet;

const FIELD: &str = "charter";
/// Six keys, a token and a signature, with their framing.
const MAX_BYTES: usize = 16 << 10;

/// The statement which nodes are the keepers of a mesh, signed by the root key or an issuer with the right `issue`. It goes from
/// node to node; of two, all take the one with the higher number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Charter {
    number: u64,
    keepers: BTreeSet<[u8; 32]>,
    former: BTreeSet<[u8; 32]>,
    at: UnixTime,
    issuer: Option<Bytes>,
    signature: [u8; 64],
}

type Keys = Vec<Fixed<32>>;
/// Number, keepers, former keepers, time, token of the issuer, signature.
type Wire = (u64, Keys, Keys, UnixTime, Option<Bytes>, Fixed<64>);

impl Charter {
    /// How many keepers there are: two of them are a majority that survives the loss of one.
    pub const KEEPERS: usize = 3;

    pub(super) fn sign(
        mesh: MeshKey,
        keepers: &[[u8; 32]],
        before: Option<&Self>,
        at: UnixTime,
        issuer: Option<Bytes>,
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
            signature: [0; 64],
        };
        charter.check()?;
        charter.signature = Statement::Charter.sign(seed, &charter.body(&mesh));
        Ok(charter)
    }

    /// 1 for the first of a mesh, one more for each that takes the place of another.
    pub const fn number(&self) -> u64 {
        self.number
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
        let charter = Self {
            number,
            keepers: keys(keepers),
            former: keys(former),
            at,
            issuer,
            signature: signature.0,
        };
        charter.check()?;
        let signer = Signer::read(mesh, charter.issuer.as_deref())?;
        Statement::Charter.verify(signer.key(), &charter.body(mesh), &charter.signature)?;
        signer.may_charter(at)?;
        Ok(charter)
    }

    fn check(&self) -> Result<(), MembershipError> {
        if self.keepers.len() != Self::KEEPERS || self.former.len() > Self::KEEPERS {
            return Err(MembershipError::malformed(
                FIELD,
                "names another number of nodes than three; name three different ones",
            ));
        }
        Ok(())
    }

    fn body(&self, mesh: &MeshKey) -> Vec<u8> {
        let keys = |keys: &BTreeSet<[u8; 32]>| keys.iter().copied().map(Fixed).collect::<Keys>();
        let (keepers, former) = (keys(&self.keepers), keys(&self.former));
        wire::encode(&(Fixed(*mesh.as_bytes()), self.number, keepers, former, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey};

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
        let forged = Charter { number: 9, ..next };
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
        let last = Charter {
            number: u64::MAX,
            ..first
        };
        let none = issuer.charter(&keepers, Some(&last), NOW).unwrap_err();
        assert!(none.to_string().contains("the last number"), "{none}");
    }
}
