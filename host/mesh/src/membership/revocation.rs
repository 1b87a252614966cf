use super::signer::Signer;
use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{Member, MembershipError, MeshKey, UnixTime};
use bytes::Bytes;
use karman_types::{Digest, NodeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const FIELD: &str = "revocations";

/// The statement that a node is no longer a member, signed by the root key or an issuer with the right `revoke`. Of who holds the root
/// key, only that key says so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Revocation {
    node: [u8; 32],
    at: UnixTime,
    issuer: Option<Bytes>,
    signature: [u8; 64],
}

/// The revocations of a mesh: they spread from node to node, only grow, and are the same in whatever order they arrive.
/// Those of a key that is later revoked itself stay in force.
///
/// Each revoked node is in it once. Where two have revoked it, all nodes keep the same statement: the root key's, else the
/// earlier one. It grows to [`Revocations::MAX_ENTRIES`]; a mesh that comes near replaces its root key by one that the old
/// memberships do not outlive (`karman mesh rotate --grace 0s`), and begins with an empty list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Revocations {
    mesh: MeshKey,
    entries: BTreeMap<[u8; 32], Revocation>,
    /// Nothing while nobody is revoked. It is told at every gate.
    digest: Option<Digest>,
}

/// The result of merging another node's list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Merged {
    /// How many it has: what that node will never again know fewer of.
    pub shown: usize,
    /// How many were new here: 0 means that there is nothing to pass on.
    pub new: usize,
}

/// Node, time, token of the issuer, signature.
type Wire = (Fixed<32>, UnixTime, Option<Bytes>, Fixed<64>);

impl Revocation {
    /// The public key of the node that is no longer a member.
    pub const fn node(&self) -> &[u8; 32] {
        &self.node
    }

    /// When it was revoked, by its signer's clock.
    pub const fn at(&self) -> UnixTime {
        self.at
    }

    pub(super) fn sign(
        mesh: MeshKey,
        node: &[u8; 32],
        at: UnixTime,
        issuer: Option<Bytes>,
        seed: &[u8; 32],
    ) -> Self {
        Self {
            node: *node,
            at,
            issuer,
            signature: Statement::Revocation.sign(seed, &body(&mesh, node, at)),
        }
    }

    /// Whether the root key itself has signed it.
    pub(crate) const fn is_of_root(&self) -> bool {
        self.issuer.is_none()
    }

    /// Of two for the same node, the lower one is kept.
    fn rank(&self) -> (bool, UnixTime, &Option<Bytes>, &[u8; 64]) {
        (self.issuer.is_some(), self.at, &self.issuer, &self.signature)
    }

    fn wire(&self) -> Wire {
        (
            Fixed(self.node),
            self.at,
            self.issuer.clone(),
            Fixed(self.signature),
        )
    }
}

impl Revocations {
    /// More are not kept.
    pub const MAX_ENTRIES: usize = 10_000;
    /// The most bytes that the CBOR form has.
    pub const MAX_BYTES: usize = 8 << 20;

    /// Those of a mesh in which nobody is revoked.
    pub const fn new(mesh: MeshKey) -> Self {
        Self {
            mesh,
            entries: BTreeMap::new(),
            digest: None,
        }
    }

    /// The mesh whose root key they are signed under.
    pub const fn mesh(&self) -> MeshKey {
        self.mesh
    }

    /// Whether the node with this public key is revoked.
    pub fn contains(&self, key: &[u8; 32]) -> bool {
        self.entries.contains_key(key)
    }

    /// How many nodes are revoked.
    pub fn number(&self) -> usize {
        self.entries.len()
    }

    /// One after the other, sorted by the node's key.
    pub fn iter(&self) -> impl Iterator<Item = &Revocation> {
        self.entries.values()
    }

    /// Equal on nodes that know the same, whatever order they learnt it in: what to compare before sending the rest.
    pub fn digest(&self) -> Digest {
        self.digest.unwrap_or_else(|| Digest::of(&self.encode()))
    }

    /// Takes one in. Whether that changed anything.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge).
    pub fn add(&mut self, revocation: Revocation) -> Result<bool, MembershipError> {
        Ok(self.add_all([revocation])? == 1)
    }

    /// Takes many in, all or, on an error, none. How many changed anything.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge).
    pub fn add_all(
        &mut self,
        revocations: impl IntoIterator<Item = Revocation>,
    ) -> Result<usize, MembershipError> {
        self.take(revocations)
    }

    /// Takes in what another node has [encoded](Self::encode), all or, on an error, nothing. That node is known to have had
    /// `had` of them before: lists only grow, so one with fewer is an old one, sent again.
    ///
    /// # Errors
    /// [`MembershipError::Old`]; [`TooLong`](MembershipError::TooLong) beyond a limit;
    /// [`Malformed`](MembershipError::Malformed), [`Foreign`](MembershipError::Foreign),
    /// [`NotAnIssuer`](MembershipError::NotAnIssuer) and [`Expired`](MembershipError::Expired) when one of them was not
    /// signed by who may.
    pub fn merge(&mut self, bytes: &[u8], had: usize) -> Result<Merged, MembershipError> {
        let wires: Vec<Wire> = wire::decode(FIELD, bytes, Self::MAX_BYTES)?;
        check_number(wires.len())?;
        let shown = wires
            .iter()
            .map(|(node, ..)| node.0)
            .collect::<BTreeSet<_>>()
            .len();
        if shown < had {
            let field = FIELD;
            return Err(MembershipError::Old { field, shown, had });
        }
        let new = self.take(wires.into_iter().map(|(node, at, issuer, signature)| Revocation {
            node: node.0,
            at,
            issuer,
            signature: signature.0,
        }))?;
        Ok(Merged { shown, new })
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&self.entries.values().map(Revocation::wire).collect::<Vec<_>>())
    }

    /// Those of a mesh, from the CBOR form.
    ///
    /// # Errors
    /// As for [`merge`](Self::merge).
    pub fn decode(mesh: MeshKey, bytes: &[u8]) -> Result<Self, MembershipError> {
        let mut revocations = Self::new(mesh);
        revocations.merge(bytes, 0)?;
        Ok(revocations)
    }

    pub(crate) fn check(&self, key: &[u8; 32]) -> Result<(), MembershipError> {
        if self.contains(key) {
            return Err(MembershipError::Revoked {
                node: NodeId::of_key(key),
            });
        }
        Ok(())
    }

    /// Refuses a member that is revoked. No issuer puts out who holds the root key: what others have signed of that one is passed on, and
    /// does not count.
    pub(crate) fn check_member(&self, member: &Member) -> Result<(), MembershipError> {
        match self.entries.get(&member.key) {
            Some(revocation) if revocation.is_of_root() || !member.holds_root() => self.check(&member.key),
            _ => Ok(()),
        }
    }

    fn take(&mut self, revocations: impl IntoIterator<Item = Revocation>) -> Result<usize, MembershipError> {
        let mut merged = self.entries.clone();
        let mut new = 0;
        // Many are signed by few, each of whom is verified once.
        let mut signers = HashMap::new();
        for revocation in revocations {
            let kept = merged.get(&revocation.node);
            if kept.is_some_and(|kept| kept.rank() <= revocation.rank()) {
                continue;
            }
            let signer = match signers.get(&revocation.issuer) {
                Some(signer) => signer,
                None => {
                    let signer = Signer::read(&self.mesh, revocation.issuer.as_deref())?;
                    signers.entry(revocation.issuer.clone()).or_insert(signer)
                }
            };
            let body = body(&self.mesh, &revocation.node, revocation.at);
            Statement::Revocation.verify(signer.key(), &body, &revocation.signature)?;
            signer.may_revoke(revocation.at)?;
            merged.insert(revocation.node, revocation);
            new += 1;
        }
        if new == 0 {
            return Ok(0);
        }
        check_number(merged.len())?;
        let mut merged = Self {
            mesh: self.mesh,
            entries: merged,
            digest: None,
        };
        let encoded = merged.encode();
        if encoded.len() > Self::MAX_BYTES {
            return Err(MembershipError::TooLong {
                field: FIELD,
                limit: Self::MAX_BYTES,
            });
        }
        merged.digest = Some(Digest::of(&encoded));
        *self = merged;
        Ok(new)
    }
}

const fn check_number(number: usize) -> Result<(), MembershipError> {
    if number > Revocations::MAX_ENTRIES {
        return Err(MembershipError::TooLong {
            field: FIELD,
            limit: Revocations::MAX_ENTRIES,
        });
    }
    Ok(())
}

fn body(mesh: &MeshKey, node: &[u8; 32], at: UnixTime) -> Vec<u8> {
    wire::encode(&(Fixed(*mesh.as_bytes()), Fixed(*node), at))
}
