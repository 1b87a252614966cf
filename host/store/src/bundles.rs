mod orders;
mod rows;

pub use self::orders::BundleOrder;

use self::orders::{any_over, must_be_new};
use self::rows::{Ended, Rows, due, find, taken, waiting_of};
use crate::tables::{BUNDLES, ENDED, FORGET, META, ORDERS, list};
use crate::{MOST_AHEAD, Store, StoreError};
use bytes::Bytes;
use karman_types::{Digest, NodeId};
use redb::{ReadableTableMetadata, WriteTransaction};
use serde::{Deserialize, Serialize};

/// Bundles that wait at once.
const MOST_WAITING: u64 = 10_000;
/// How long one that has ended is remembered after its time.
const REMEMBERED_MS: u64 = 86_400_000;
/// How long one that never left is remembered after it was made.
const WITHDRAWN_MS: u64 = 3_600_000;

/// A bundle that this node holds or held. What has become of it is remembered for a day after it would have expired, where not too
/// many have [ended](crate::StoreLimits::ended_bundles) meanwhile.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bundle {
    /// The digest of its file, under which [`Blobs`](crate::Blobs) has it while it is here.
    #[serde(skip, default = "unknown")]
    pub digest: Digest,
    /// What is in it, where this node made it.
    pub label: String,
    /// The node that made it.
    pub source: NodeId,
    /// The node where it shall be.
    pub destination: NodeId,
    /// The member that brought it; nothing where this node made it. The bundle itself names its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought_by: Option<NodeId>,
    /// Its length in bytes.
    pub size: u64,
    /// The higher goes first.
    pub priority: u8,
    /// When it was made, in milliseconds since 1970, by the clock of its source.
    pub created_ms: u64,
    /// The last instant at which it may arrive, in milliseconds since 1970.
    pub expires_ms: u64,
    /// How far it is.
    pub state: BundleState,
    /// Nodes that did not take it.
    pub refused_by: Vec<NodeId>,
}

/// The state of a bundle at this node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BundleState {
    /// It waits for a contact, or to be opened here.
    Waiting,
    /// The next node has it on its disk.
    Passed {
        /// That node.
        to: NodeId,
        /// When it was said, in milliseconds since 1970.
        at_ms: u64,
    },
    /// It was for this node, which has done what it asks for.
    Delivered,
    /// It was for this node, which does not do what it asks for.
    Refused {
        /// Why not.
        why: String,
    },
    /// Its time was over first.
    Expired,
}

const fn unknown() -> Digest {
    Digest::from_bytes([0; 32])
}

/// The bundles of this node, by digest.
#[derive(Clone, Copy, Debug)]
pub struct Bundles<'a>(pub(crate) &'a Store);

impl Bundles<'_> {
    /// Keeps a bundle until it has left: file and record are there together, fsynced. False when it is known already, whatever
    /// has become of it.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when there is no room for it, else what the disk refused.
    pub fn keep(&self, bundle: &Bundle, bytes: &Bytes) -> Result<bool, StoreError> {
        self.add(bundle, bytes, None)
    }

    /// Keeps the answer to a bundle that was for this node, in its place: that one and the order in it are done, and all of it is on the
    /// disk together.
    ///
    /// # Errors
    /// Those of [`keep`](Self::keep).
    pub fn answer(
        &self,
        done: (&Digest, &BundleOrder),
        bundle: &Bundle,
        bytes: &Bytes,
    ) -> Result<bool, StoreError> {
        self.add(bundle, bytes, Some(done))
    }

    fn add(
        &self,
        bundle: &Bundle,
        bytes: &Bytes,
        done: Option<(&Digest, &BundleOrder)>,
    ) -> Result<bool, StoreError> {
        self.0.blobs().add(bytes, |txn, digest| {
            let mut rows = self.rows(txn)?;
            let name = digest.to_string();
            if rows.find(&name)?.is_some() {
                return Ok((false, Vec::new()));
            }
            if let Some((done, order)) = done {
                let done = done.to_string();
                if let Some(mut before) = rows.find(&done)? {
                    before.state = BundleState::Delivered;
                    rows.put(&done, &before, until_ms(&before))?;
                }
                rows.remember(order)?;
            }
            let of_member = bundle.brought_by.map(|by| rows.waiting_of(by)).transpose()?;
            self.room(rows.waiting()?, of_member, bytes.len() as u64)?;
            rows.put(&name, bundle, until_ms(bundle))?;
            Ok((true, done.map(|(done, _)| *done).into_iter().collect()))
        })
    }

    /// Whether a bundle of this length that this node makes would be kept now.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn has_room(&self, bytes: u64) -> Result<bool, StoreError> {
        match self.must_have_room(None, bytes) {
            Ok(()) => Ok(true),
            Err(StoreError::Limit { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses a bundle of this length that would not be kept now; of one that a member brings, by what it has brought already, too.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when there is no room for it, else what the disk refused.
    pub fn must_have_room(&self, brought_by: Option<NodeId>, bytes: u64) -> Result<(), StoreError> {
        let txn = self.0.tables().read()?;
        let waiting = txn.open_table(BUNDLES)?.len()?;
        let meta = txn.open_table(META)?;
        let of_member = brought_by.map(|by| waiting_of(&meta, by)).transpose()?;
        self.room((waiting, taken(&meta)?), of_member, bytes)
    }

    fn room(
        &self,
        (waiting, taken): (u64, u64),
        of_member: Option<(u64, u64)>,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let limits = self.0.limits();
        let (most, most_waiting) = (limits.bundles_per_member.0, u64::from(limits.waiting_per_member));
        let of_member = of_member.map(|(waiting, taken)| {
            [
                ("bundles-per-member", taken.saturating_add(bytes), most),
                ("waiting-per-member", waiting + 1, most_waiting),
            ]
        });
        let of_all = [
            ("bundles", taken.saturating_add(bytes), limits.bundles.0),
            ("waiting bundles", waiting + 1, MOST_WAITING),
        ];
        for (field, value, most) in of_all.into_iter().chain(of_member.into_iter().flatten()) {
            if value > most {
                return Err(StoreError::Limit { field, value, most });
            }
        }
        Ok(())
    }

    /// The bundle of this digest.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn get(&self, digest: &Digest) -> Result<Option<Bundle>, StoreError> {
        let txn = self.0.tables().read()?;
        let (waiting, ended) = (txn.open_table(BUNDLES)?, txn.open_table(ENDED)?);
        let bundle = find(&waiting, &ended, &digest.to_string())?;
        Ok(bundle.map(|bundle| Bundle {
            digest: *digest,
            ..bundle
        }))
    }

    /// All that are known, those first that go first.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<Bundle>, StoreError> {
        let txn = self.0.tables().read()?;
        let waiting = list::<Bundle>(&txn.open_table(BUNDLES)?, BUNDLES)?;
        let ended = list::<Ended>(&txn.open_table(ENDED)?, ENDED)?;
        let ended = ended.into_iter().map(|(name, ended)| (name, ended.bundle));
        Ok(in_order(waiting.into_iter().chain(ended)))
    }

    /// Those that wait, those first that go first.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn waiting(&self) -> Result<Vec<Bundle>, StoreError> {
        let table = self.0.tables().read()?.open_table(BUNDLES)?;
        Ok(in_order(list::<Bundle>(&table, BUNDLES)?.into_iter()))
    }

    /// Says what has become of a bundle; its file goes unless it still waits.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when there is none, else what the disk refused.
    pub fn set(&self, digest: &Digest, state: BundleState) -> Result<(), StoreError> {
        self.change(digest, None, |bundle| bundle.state = state)
    }

    /// Says what has become of a bundle that was for this node, and remembers that the order in it is done.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn done(&self, digest: &Digest, order: &BundleOrder, state: BundleState) -> Result<(), StoreError> {
        self.change(digest, Some(order), |bundle| bundle.state = state)
    }

    /// Refuses an order that has been done, whatever bundle it comes in, and one that could not be remembered.
    ///
    /// # Errors
    /// [`StoreError::Done`], [`StoreError::Limit`] where as many of its member are remembered as may be, else what the disk refused.
    pub fn must_be_new(&self, order: &BundleOrder) -> Result<(), StoreError> {
        let txn = self.0.tables().read()?;
        let (done, meta) = (txn.open_table(ORDERS)?, txn.open_table(META)?);
        must_be_new(order, &done, &meta, self.0.limits())
    }

    /// Lets go of a bundle that has not left: its time counts as over. Whether it was still here.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn withdraw(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.leave(digest, BundleState::Expired)
    }

    /// Says what has become of a bundle if it still waits: whatever was said of it before stays. Whether it did.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn leave(&self, digest: &Digest, state: BundleState) -> Result<bool, StoreError> {
        let waits = |bundle: &Bundle| bundle.state == BundleState::Waiting;
        if !self.get(digest)?.as_ref().is_some_and(waits) {
            return Ok(false);
        }
        let mut waited = false;
        self.change(digest, None, |bundle| {
            waited = waits(bundle);
            if waited {
                bundle.state = state;
            }
        })?;
        Ok(waited)
    }

    /// Remembers that a node does not take it.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn refused(&self, digest: &Digest, by: NodeId) -> Result<(), StoreError> {
        self.change(digest, None, |bundle| {
            if !bundle.refused_by.contains(&by) {
                bundle.refused_by.push(by);
            }
        })
    }

    fn change(
        &self,
        digest: &Digest,
        done: Option<&BundleOrder>,
        change: impl FnOnce(&mut Bundle),
    ) -> Result<(), StoreError> {
        let name = digest.to_string();
        self.0.blobs().release(|txn| {
            let mut rows = self.rows(txn)?;
            let mut bundle = rows.find(&name)?.ok_or_else(|| StoreError::Unknown {
                what: "bundle",
                name: name.clone(),
            })?;
            change(&mut bundle);
            // One that was called back has never left: nobody brings it again.
            let soon = bundle.created_ms.saturating_add(WITHDRAWN_MS);
            let until_ms = match bundle.state {
                BundleState::Expired if soon < bundle.expires_ms => soon,
                _ => until_ms(&bundle),
            };
            rows.put(&name, &bundle, until_ms)?;
            done.map_or(Ok(()), |order| rows.remember(order))?;
            let gone = bundle.state != BundleState::Waiting;
            Ok(((), gone.then_some(*digest).into_iter().collect()))
        })
    }

    /// Lets go of those whose time is over: the ones that wait are expired, the ones that have left are forgotten a day later, and those
    /// that were [withdrawn](Self::withdraw) an hour after they were made. What is expired now. Nothing is by a clock that is too
    /// [far ahead](MOST_AHEAD): a single start of one that shows 2080 would throw all away.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn expire(&self, now_ms: u64) -> Result<Vec<Digest>, StoreError> {
        let seen_ms = self.0.mesh().time_floor(0)?.saturating_mul(1000);
        if now_ms > seen_ms.saturating_add(MOST_AHEAD.as_millis() as u64) {
            return Ok(Vec::new());
        }
        let txn = self.0.tables().read()?;
        let late = |(_, bundle): &(String, Bundle)| bundle.expires_ms < now_ms;
        let any_late = list::<Bundle>(&txn.open_table(BUNDLES)?, BUNDLES)?
            .iter()
            .any(late);
        // Most of the time there is nothing to do, and nothing is written.
        if !any_late
            && due(&txn.open_table(FORGET)?, now_ms)?.is_empty()
            && !any_over(&txn.open_table(ORDERS)?, now_ms)?
        {
            return Ok(Vec::new());
        }
        self.0.blobs().release(|txn| {
            let mut rows = self.rows(txn)?;
            rows.forget(now_ms)?;
            let mut expired = Vec::new();
            for (name, mut bundle) in rows.late(now_ms)? {
                bundle.state = BundleState::Expired;
                rows.put(&name, &bundle, until_ms(&bundle))?;
                expired.extend(name.parse::<Digest>().ok());
            }
            Ok((expired.clone(), expired))
        })
    }

    /// Sees to it that all that have ended are forgotten. In a damaged store there may be some of which nothing says when.
    pub(crate) fn mend(&self) -> Result<(), StoreError> {
        let txn = self.0.tables().read()?;
        let (ended, noted) = (txn.open_table(ENDED)?.len()?, txn.open_table(FORGET)?.len()?);
        if ended <= noted {
            return Ok(());
        }
        tracing::warn!(
            bundles = ended - noted,
            "the store was damaged: nothing said when what became of some bundles is forgotten; now something does"
        );
        self.0.tables().write(|txn| self.rows(txn)?.mend())
    }

    fn rows<'txn>(&self, txn: &'txn WriteTransaction) -> Result<Rows<'txn>, StoreError> {
        let most_ended = u64::from(self.0.limits().ended_bundles);
        Rows::open(txn, self.0.node_key().id(), most_ended)
    }
}

/// The last instant at which a bundle is remembered that has ended, in milliseconds since 1970.
const fn until_ms(bundle: &Bundle) -> u64 {
    bundle.expires_ms.saturating_add(REMEMBERED_MS)
}

fn in_order(rows: impl Iterator<Item = (String, Bundle)>) -> Vec<Bundle> {
    let all = rows.filter_map(|(name, bundle)| {
        let digest = name.parse().ok()?;
        Some(Bundle { digest, ..bundle })
    });
    let mut all: Vec<Bundle> = all.collect();
    all.sort_by_key(|bundle| (std::cmp::Reverse(bundle.priority), bundle.expires_ms));
    all
}

#[cfg(test)]
pub(crate) mod tests;
