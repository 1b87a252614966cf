use bytes::Bytes;
use hardy_bpv7::block::{Flags, Type};
use hardy_bpv7::bpsec::no_keys;
use hardy_bpv7::builder::Builder;
use hardy_bpv7::bundle::{self, ParsedBundle};
use hardy_bpv7::creation_timestamp::CreationTimestamp;
use hardy_bpv7::dtn_time::DtnTime;
use hardy_bpv7::eid::Eid;
use karman_types::{NodeId, TaskError};
use std::time::Duration;

/// What a node's endpoint is called: `dtn://9c01d2e7a0b1c2d3/karman`.
const SERVICE: &str = "karman";
/// The block that holds the priority. Version 7 has no field for it; 192 to 255 are for private use (RFC 9171, 9.1).
const PRIORITY: u64 = 192;
/// 2000-01-01, where the time of the protocol begins (RFC 9171, 4.2.6), in milliseconds since 1970.
const EPOCH_MS: u64 = 946_684_800_000;
/// Ours have three.
const MOST_BLOCKS: usize = 16;

/// The header of a bundle, which every node on the way reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BundleHead {
    /// The node that made it.
    pub source: NodeId,
    /// The node where it shall be.
    pub destination: NodeId,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// How long it may be on its way.
    pub lifetime: Duration,
    /// The higher goes first.
    pub priority: u8,
}

impl BundleHead {
    /// The last instant at which it may arrive, in milliseconds since 1970.
    pub fn expires_ms(&self) -> u64 {
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        self.created_ms.saturating_add(lifetime)
    }
}

/// Bytes that are no bundle of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// They are no bundle of version 7.
    #[error("the bundle does not read: {0}")]
    Malformed(String),
    /// It lacks something that ours have.
    #[error("the bundle's {field} is none of ours")]
    Foreign {
        /// What it lacks.
        field: &'static str,
    },
}

impl From<BundleError> for TaskError {
    fn from(error: BundleError) -> Self {
        Self::invalid(error.to_string()).with_field("bundle")
    }
}

/// Writes a bundle: primary block, priority, payload, each with its CRC32C.
///
/// # Errors
/// When a field has no form in the protocol.
pub fn write_bundle(head: &BundleHead, payload: &[u8]) -> Result<Bytes, BundleError> {
    let malformed = |error: &dyn std::fmt::Display| BundleError::Malformed(error.to_string());
    let since = DtnTime::new(head.created_ms.saturating_sub(EPOCH_MS));
    let created = CreationTimestamp::from_parts(Some(since), fastrand::u32(..).into());
    let priority = cbor4ii::serde::to_vec(Vec::new(), &head.priority).map_err(|error| malformed(&error))?;
    let builder = Builder::new(endpoint(head.source)?, endpoint(head.destination)?)
        .with_flags(bundle::Flags {
            do_not_fragment: true,
            ..bundle::Flags::default()
        })
        .with_lifetime(head.lifetime)
        .add_extension_block(Type::Unrecognised(PRIORITY))
        .map_err(|error| malformed(&error))?
        .with_flags(Flags::default())
        .build(priority.into())
        .with_payload(payload.into());
    let (_, bytes) = builder.build(created).map_err(|error| malformed(&error))?;
    Ok(bytes.into())
}

/// Reads a bundle: its head, and its payload without a copy.
///
/// # Errors
/// When the bytes are no bundle, or none that this node would make.
pub fn open_bundle(bytes: &Bytes) -> Result<(BundleHead, Bytes), BundleError> {
    let foreign = |field| BundleError::Foreign { field };
    let parsed = ParsedBundle::parse(bytes, no_keys);
    let bundle = parsed
        .map_err(|error| BundleError::Malformed(error.to_string()))?
        .bundle;
    if bundle.id.fragment_info.is_some() || bundle.blocks.len() > MOST_BLOCKS {
        return Err(foreign("form"));
    }
    let created = bundle
        .id
        .timestamp
        .creation_time()
        .ok_or_else(|| foreign("creation time"))?;
    let mut blocks = bundle.blocks.values();
    let priority = blocks
        .find(|block| block.block_type == Type::Unrecognised(PRIORITY))
        .and_then(|block| cbor4ii::serde::from_slice(block.payload(bytes)?).ok())
        .ok_or_else(|| foreign("priority"))?;
    let payload = bundle
        .blocks
        .get(&1)
        .ok_or_else(|| foreign("payload"))?
        .payload_range();
    if payload.end > bytes.len() || payload.start > payload.end {
        return Err(foreign("payload"));
    }
    let head = BundleHead {
        source: node(&bundle.id.source).ok_or_else(|| foreign("source"))?,
        destination: node(&bundle.destination).ok_or_else(|| foreign("destination"))?,
        created_ms: created.millisecs().saturating_add(EPOCH_MS),
        lifetime: bundle.lifetime,
        priority,
    };
    Ok((head, bytes.slice(payload)))
}

fn endpoint(node: NodeId) -> Result<Eid, BundleError> {
    format!("dtn://{node}/{SERVICE}")
        .parse()
        .map_err(|error| BundleError::Malformed(format!("{error}")))
}

fn node(endpoint: &Eid) -> Option<NodeId> {
    let text = endpoint.to_string();
    let (node, service) = text.strip_prefix("dtn://")?.split_once('/')?;
    (service == SERVICE).then(|| node.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> BundleHead {
        BundleHead {
            source: NodeId::of_key(b"a"),
            destination: NodeId::of_key(b"b"),
            created_ms: 1_795_255_200_250,
            lifetime: Duration::from_secs(2 * 86_400),
            priority: 1,
        }
    }

    #[test]
    fn a_bundle_is_of_version_7() {
        let bytes = write_bundle(&head(), b"sealed").unwrap();
        // An array without a length, whose first item is the primary block: an array that begins with 7 (RFC 9171, 4.1).
        assert_eq!(bytes[0], 0x9f);
        assert_eq!(bytes[2], 7);
        assert_eq!(head().expires_ms(), 1_795_255_200_250 + 2 * 86_400_000);
    }

    #[test]
    fn a_changed_bit_shows() {
        let bytes = write_bundle(&head(), b"sealed").unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            let read = open_bundle(&changed.into());
            assert!(read.is_err(), "byte {at}: {read:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            created_ms in EPOCH_MS..4_000_000_000_000,
            lifetime in 0u64..1_000_000_000_000,
            priority in any::<u8>(),
            payload in proptest::collection::vec(any::<u8>(), 0..2_000),
        ) {
            let head = BundleHead { created_ms, priority, lifetime: Duration::from_millis(lifetime), ..head() };
            let bytes = write_bundle(&head, &payload).unwrap();
            let (read, found) = open_bundle(&bytes).unwrap();
            prop_assert_eq!(read, head);
            prop_assert_eq!(found, payload);
        }

        #[test]
        fn any_bytes_are_refused(garbage in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(open_bundle(&garbage.into()).is_err());
        }
    }
}
