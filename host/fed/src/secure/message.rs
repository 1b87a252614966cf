//! What goes between a client and the coordinator. Lists have no names in them: both sides know who the neighbours of a client
//! are, and keep to the order of the roster.

use super::keys::SEALED;
use super::roster::{Members, Position};
use bytes::Bytes;
use karman_types::serde_list;
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::ByteArray;

/// From a client.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToServer {
    /// Its keys for this round.
    Keys(Keys),
    /// Shares of its secrets.
    Shares(Shares),
    /// Its masked vector.
    Masked(Bytes),
    /// It has seen the list of those whose vectors arrived, and signs it.
    Consistent(ByteArray<64>),
    /// Shares of others' secrets.
    Unmask(Revealed),
}

/// From the coordinator.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToClient {
    /// Who takes part, and the neighbours' keys.
    Keys {
        /// All who sent keys.
        members: Members,
        /// Those of the neighbours.
        keys: Vec<Keys>,
    },
    /// The shares that neighbours have for this client.
    Shares {
        /// All who sent shares.
        sharers: Members,
        /// Sealed, from each neighbour among them.
        sealed: Vec<ByteArray<SEALED>>,
    },
    /// All whose vectors arrived.
    Survivors(Members),
    /// It is time to unmask.
    Unmask(UnmaskRequest),
}

/// A client's keys for one round.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Keys {
    /// X25519: what neighbours seal shares with.
    pub channel: ByteArray<32>,
    /// X25519: what masks are agreed on with.
    pub mask: ByteArray<32>,
    /// Ed25519, by the key on the roster.
    pub signature: ByteArray<64>,
}

/// A client's secrets, split.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Shares {
    /// One of each secret for each neighbour, sealed for it.
    pub sealed: Vec<ByteArray<SEALED>>,
    /// What the shares of each holder (the neighbours and itself) hash to: half a digest of each.
    pub commitments: Vec<ByteArray<32>>,
    /// What its own mask's secret is known by.
    pub own_mask: ByteArray<32>,
}

/// The coordinator asks for one share of each neighbour's: of its own mask if it survived, of its pair masks if it dropped out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnmaskRequest {
    /// Whose vectors are in the sum.
    pub survivors: Members,
    /// Who shared secrets and then dropped out.
    pub dropped: Members,
    /// Who signed the survivors. Of each client's holders, more than two thirds have to.
    pub signatures: Vec<(Position, ByteArray<64>)>,
}

/// One share for each client whose holder it is and that shared secrets, itself included; nothing where the owner sent garbage.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Revealed(#[serde(deserialize_with = "of_members")] pub Vec<Option<ByteArray<32>>>);

/// No more than a roster has members: nothing takes a byte on its way, and as much room as a share.
fn of_members<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    serde_list::at_most(deserializer, usize::from(Position::MAX) + 1)
}

impl ToServer {
    /// The step that it belongs to.
    pub(crate) const fn step(&self) -> Step {
        match self {
            Self::Keys(_) => Step::Keys,
            Self::Shares(_) => Step::Shares,
            Self::Masked(_) => Step::Mask,
            Self::Consistent(_) => Step::Consistency,
            Self::Unmask(_) => Step::Unmask,
        }
    }
}

impl ToClient {
    /// The step that it ends.
    pub(crate) const fn step(&self) -> Step {
        match self {
            Self::Keys { .. } => Step::Keys,
            Self::Shares { .. } => Step::Shares,
            Self::Survivors(_) => Step::Mask,
            Self::Unmask(_) => Step::Consistency,
        }
    }
}

/// The steps of a round.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Clients send keys.
    Keys,
    /// They send shares of their secrets.
    Shares,
    /// They send masked vectors.
    Mask,
    /// They sign who survived.
    Consistency,
    /// They reveal shares.
    Unmask,
    /// Nothing more is sent.
    Done,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keys => "keys",
            Self::Shares => "shares",
            Self::Mask => "masked vectors",
            Self::Consistency => "signatures",
            Self::Unmask => "unmasking",
            Self::Done => "the end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_vector_takes_its_bytes() {
        let keys = Keys {
            channel: [1; 32].into(),
            mask: [2; 32].into(),
            signature: [3; 64].into(),
        };
        let vector = ToServer::Masked(vec![200; 1 << 12].into());
        for says in [
            ToServer::Keys(keys),
            vector.clone(),
            ToServer::Consistent([4; 64].into()),
            ToServer::Unmask(Revealed(vec![None, Some([5; 32].into())])),
        ] {
            let written = cbor4ii::serde::to_vec(Vec::new(), &says).unwrap();
            assert_eq!(cbor4ii::serde::from_slice::<ToServer>(&written).unwrap(), says);
        }
        let written = cbor4ii::serde::to_vec(Vec::new(), &vector).unwrap();
        assert!(written.len() < (1 << 12) + 16, "{}", written.len());
        let nothing = ToServer::Unmask(Revealed(vec![None; (1 << 16) + 1]));
        let written = cbor4ii::serde::to_vec(Vec::new(), &nothing).unwrap();
        let error = cbor4ii::serde::from_slice::<ToServer>(&written).unwrap_err();
        assert!(error.to_string().contains("at most 65536"), "{error}");
        let said = ToClient::Keys {
            members: Members::of(3, [0, 2]),
            keys: vec![keys],
        };
        let written = cbor4ii::serde::to_vec(Vec::new(), &said).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<ToClient>(&written).unwrap(), said);
    }
}
