use super::succession::Wire;
use super::{MembershipError, MeshKey, Succession, UnixTime, wire};

const FIELD: &str = "lineage";

/// The root keys that a mesh has had, one after the other, each signed by the one before it.
///
/// It goes from node to node, as revocations do: a node that knows one of the keys follows from there, and none follows to a key
/// that the one before it has not signed. A key has one successor; a claim of another is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lineage {
    mesh: MeshKey,
    /// The earliest first; the last one leads to `mesh`.
    links: Vec<Succession>,
}

impl Lineage {
    /// Keys that were replaced and are remembered. Who knows an earlier one only has to be invited again.
    pub const MOST: usize = 16;
    /// The most bytes that the CBOR form has.
    pub const MAX_BYTES: usize = 4 << 10;

    /// That of a mesh whose root key was never replaced.
    pub const fn new(mesh: MeshKey) -> Self {
        Self {
            mesh,
            links: Vec::new(),
        }
    }

    /// The mesh, by the root key that it has now.
    pub const fn mesh(&self) -> MeshKey {
        self.mesh
    }

    /// The keys that were replaced, the earliest first.
    pub fn links(&self) -> &[Succession] {
        &self.links
    }

    /// Whether this is or was the mesh's root key.
    pub fn contains(&self, mesh: &MeshKey) -> bool {
        self.mesh == *mesh || self.links.iter().any(|link| link.old == *mesh)
    }

    /// From now on the mesh has another root key.
    ///
    /// # Errors
    /// Those of [`Succession::verify`]; [`MembershipError::Malformed`] for a key that it had before.
    pub fn add(&mut self, succession: Succession) -> Result<(), MembershipError> {
        let new = succession.verify(&self.mesh)?;
        if self.contains(&new) {
            return Err(MembershipError::malformed(
                FIELD,
                "goes back to a key that was replaced",
            ));
        }
        self.links.push(succession);
        if self.links.len() > Self::MOST {
            self.links.remove(0);
        }
        self.mesh = new;
        Ok(())
    }

    /// Takes in what another node knows; how many keys of it were new. It may know fewer: then it is told.
    ///
    /// # Errors
    /// [`MembershipError::FalseRoot`] when a key is claimed to follow that the one before has not signed,
    /// [`ForkedRoot`](MembershipError::ForkedRoot) when it has signed another before,
    /// [`Foreign`](MembershipError::Foreign) when the two have nothing in common.
    pub fn follow(&mut self, theirs: &Self) -> Result<usize, MembershipError> {
        if self.contains(&theirs.mesh) {
            return Ok(0);
        }
        if let Some(from) = theirs.links.iter().position(|link| link.old == self.mesh) {
            let mut followed = self.clone();
            for link in &theirs.links[from..] {
                followed.add(link.clone())?;
            }
            *self = followed;
            return Ok(theirs.links.len() - from);
        }
        for link in &theirs.links {
            if self.links.iter().any(|ours| ours.old == link.old) {
                let claims = link.verify(&link.old)?.short();
                let mesh = link.old.short();
                return Err(MembershipError::ForkedRoot { mesh, claims });
            }
        }
        Err(MembershipError::Foreign {
            mesh: self.mesh.short(),
        })
    }

    /// The keys that were replaced and still hold at this time, the latest first.
    pub fn former(&self, now: UnixTime) -> impl Iterator<Item = MeshKey> {
        let links = self.links.iter().rev();
        links.filter(move |link| now <= link.until).map(|link| link.old)
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&self.links.iter().map(Succession::wire).collect::<Vec<_>>())
    }

    /// Reads the CBOR form of one with at least one link, as another node shows it. The signatures are not verified yet:
    /// [`follow`](Self::follow) does where it matters.
    ///
    /// # Errors
    /// [`MembershipError::TooLong`] or [`MembershipError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let wires: Vec<Wire> = wire::decode(FIELD, bytes, Self::MAX_BYTES)?;
        if wires.len() > Self::MOST {
            return Err(MembershipError::TooLong {
                field: FIELD,
                limit: Self::MOST,
            });
        }
        let links: Vec<Succession> = wires.into_iter().map(Succession::of).collect();
        let follows = links.windows(2).all(|pair| pair[0].new == pair[1].old);
        let last = links.last().filter(|_| follows);
        let mesh = last
            .ok_or_else(|| MembershipError::malformed(FIELD, "is no chain of keys"))?
            .new;
        Ok(Self { mesh, links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::RootKey;

    const NOW: UnixTime = UnixTime::from_seconds(1_800_000_000);

    fn root(seed: u8) -> RootKey {
        RootKey::from_seed(&[seed; 32])
    }

    fn key(seed: u8) -> MeshKey {
        root(seed).public()
    }

    /// What a node knows that has followed from the first of these keys to the last; each holds a second longer.
    fn lineage(seeds: &[u8]) -> Lineage {
        let mut lineage = Lineage::new(key(seeds[0]));
        for (second, pair) in (1..).zip(seeds.windows(2)) {
            let until = UnixTime::from_seconds(NOW.seconds() + second);
            let succession = root(pair[0]).succession(&key(pair[1]), NOW, until);
            lineage.add(succession).unwrap();
        }
        lineage
    }

    #[test]
    fn whoever_knows_a_key_follows_from_there() {
        let theirs = Lineage::decode(&lineage(&[1, 2, 3, 4]).encode()).unwrap();
        for (known, new) in [
            (&[1][..], 3),
            (&[1, 2], 2),
            (&[3], 1),
            (&[1, 2, 3, 4], 0),
            (&[4], 0),
        ] {
            let mut ours = lineage(known);
            assert_eq!(ours.follow(&theirs), Ok(new), "{known:?}");
            assert_eq!(ours.mesh(), key(4));
            // The other way round there is nothing to learn.
            assert_eq!(ours.clone().follow(&lineage(known)), Ok(0));
        }
        let mut stranger = Lineage::new(key(9));
        assert_eq!(
            stranger.follow(&theirs),
            Err(MembershipError::Foreign { mesh: key(9).short() })
        );
    }

    #[test]
    fn nobody_follows_to_a_key_that_the_one_before_has_not_signed() {
        let usurper = root(9);
        let claim = Succession {
            old: key(1),
            ..usurper.succession(&key(9), NOW, NOW)
        };
        let theirs = Lineage {
            mesh: key(9),
            links: vec![claim],
        };
        let mut ours = Lineage::new(key(1));
        assert_eq!(
            ours.follow(&theirs),
            Err(MembershipError::FalseRoot {
                mesh: key(1).short(),
                claims: key(9).short()
            })
        );
        assert_eq!(ours, Lineage::new(key(1)));
        // Of a longer chain, none is taken when one does not hold.
        let mut links = lineage(&[1, 2]).links;
        links.push(Succession {
            old: key(2),
            ..usurper.succession(&key(9), NOW, NOW)
        });
        let theirs = Lineage { mesh: key(9), links };
        assert!(ours.follow(&theirs).is_err());
        assert_eq!(ours, Lineage::new(key(1)));
    }

    #[test]
    fn a_key_has_one_successor() {
        let mut ours = lineage(&[1, 2]);
        assert_eq!(
            ours.follow(&lineage(&[1, 3])),
            Err(MembershipError::ForkedRoot {
                mesh: key(1).short(),
                claims: key(3).short()
            })
        );
        let back = root(2).succession(&key(1), NOW, NOW);
        assert!(ours.add(back).is_err());
        assert_eq!(ours, lineage(&[1, 2]));
    }

    #[test]
    fn former_keys_hold_for_their_time() {
        let ours = lineage(&[1, 2, 3]);
        let at = |second: u64| {
            let now = UnixTime::from_seconds(NOW.seconds() + second);
            ours.former(now).collect::<Vec<_>>()
        };
        assert_eq!(at(1), [key(2), key(1)]);
        assert_eq!(at(2), [key(2)]);
        assert!(at(3).is_empty());
    }

    #[test]
    fn there_is_a_limit() {
        let seeds: Vec<u8> = (1..=30).collect();
        let ours = lineage(&seeds);
        assert_eq!((ours.links().len(), ours.mesh()), (Lineage::MOST, key(30)));
        assert_eq!(Lineage::decode(&ours.encode()), Ok(ours));
        assert!(Lineage::decode(&vec![0; Lineage::MAX_BYTES + 1]).is_err());
        assert!(Lineage::decode(&Lineage::new(key(1)).encode()).is_err());
    }
}
