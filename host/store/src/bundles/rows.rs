//! The rows of bundles within one transaction. Those that wait are apart from those that have ended: however many have, they take no
//! room from the others, and what is known of one is found without reading all.

use super::orders::{self, BundleOrder};
use crate::tables::{BROUGHT, BUNDLES, ENDED, FORGET, META, ORDERS, TAKEN, get, list, number, put};
use crate::{Bundle, BundleState, StoreError};
use karman_types::NodeId;
use redb::{
    MultimapTable, MultimapValue, ReadableMultimapTable, ReadableTable, ReadableTableMetadata, Table,
    WriteTransaction,
};
use serde::{Deserialize, Serialize};

type Row<'txn> = Table<'txn, &'static str, &'static [u8]>;
/// When one that has ended is forgotten: by rank, then by time.
type Place = (u8, u64, &'static str);
const RANKS: u8 = 4;
/// Before the id of a member: bytes of the bundles that it has brought and that wait, and how many these are, in [`META`].
const BYTES_OF: &str = "bundles-of/";
const WAITING_OF: &str = "waiting-of/";
/// From this rank on it is about bundles that this node has made itself.
const OWN: u8 = 2;

/// When one that has ended is forgotten, as a row says it.
pub(super) struct Due {
    rank: u8,
    until_ms: u64,
    name: String,
    /// The member that brought it, where the row is one of what that has brought.
    by: Option<String>,
}

/// A bundle that has ended.
#[derive(Deserialize, Serialize)]
pub(super) struct Ended {
    /// The last instant at which it is remembered, in milliseconds since 1970.
    until_ms: u64,
    pub(super) bundle: Bundle,
}

pub(super) struct Rows<'txn> {
    here: NodeId,
    most_ended: u64,
    waiting: Row<'txn>,
    ended: Row<'txn>,
    forget: Table<'txn, Place, ()>,
    brought: MultimapTable<'txn, &'static str, Place>,
    orders: Table<'txn, (u64, &'static str), &'static str>,
    meta: Table<'txn, &'static str, u64>,
}

impl<'txn> Rows<'txn> {
    pub(super) fn open(
        txn: &'txn WriteTransaction,
        here: NodeId,
        most_ended: u64,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            here,
            most_ended,
            waiting: txn.open_table(BUNDLES)?,
            ended: txn.open_table(ENDED)?,
            forget: txn.open_table(FORGET)?,
            brought: txn.open_multimap_table(BROUGHT)?,
            orders: txn.open_table(ORDERS)?,
            meta: txn.open_table(META)?,
        })
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<Bundle>, StoreError> {
        find(&self.waiting, &self.ended, name)
    }

    /// How many wait, and the bytes of all of them.
    pub(super) fn waiting(&self) -> Result<(u64, u64), StoreError> {
        Ok((self.waiting.len()?, taken(&self.meta)?))
    }

    /// How many of them this member has brought, and their bytes.
    pub(super) fn waiting_of(&self, by: NodeId) -> Result<(u64, u64), StoreError> {
        waiting_of(&self.meta, by)
    }

    /// Writes the row of a bundle, in the place of the one that there is. One that has ended is remembered for so long, or until there
    /// are too many of them.
    pub(super) fn put(&mut self, name: &str, bundle: &Bundle, until_ms: u64) -> Result<(), StoreError> {
        self.remove(name)?;
        if bundle.state == BundleState::Waiting {
            self.count(bundle, u64::saturating_add)?;
            return put(&mut self.waiting, BUNDLES, name, bundle);
        }
        let ended = Ended {
            until_ms,
            bundle: bundle.clone(),
        };
        put(&mut self.ended, ENDED, name, &ended)?;
        self.note(name, &ended)?;
        self.make_room()
    }

    /// Writes when one that has ended is forgotten; where that is written already nothing changes.
    fn note(&mut self, name: &str, ended: &Ended) -> Result<(), StoreError> {
        let place = (rank(&ended.bundle, self.here), ended.until_ms, name);
        self.forget.insert(place, ())?;
        if let Some(by) = ended.bundle.brought_by {
            self.brought.insert(by.to_string().as_str(), place)?;
        }
        Ok(())
    }

    /// Forgets some where too many have ended.
    fn make_room(&mut self) -> Result<(), StoreError> {
        while self.forget.len()? > self.most_ended {
            let Some(first) = self.goes_first()? else { break };
            self.forget_at(&first)?;
        }
        Ok(())
    }

    /// Remembers that an order which came in a bundle is done.
    pub(super) fn remember(&mut self, order: &BundleOrder) -> Result<(), StoreError> {
        orders::remember(&mut self.orders, &mut self.meta, order)
    }

    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        if let Some(bundle) = get::<Bundle>(&self.waiting, BUNDLES, name)? {
            self.waiting.remove(name)?;
            return self.count(&bundle, u64::saturating_sub);
        }
        self.remove_ended(name)
    }

    fn remove_ended(&mut self, name: &str) -> Result<(), StoreError> {
        if let Some(Ended { until_ms, bundle }) = get::<Ended>(&self.ended, ENDED, name)? {
            let rank = rank(&bundle, self.here);
            self.ended.remove(name)?;
            self.forget.remove((rank, until_ms, name))?;
            if let Some(by) = bundle.brought_by {
                self.brought
                    .remove(by.to_string().as_str(), (rank, until_ms, name))?;
            }
        }
        Ok(())
    }

    /// Forgets one that has ended. In a damaged store there may be a row for one that is not there, or that is remembered until another
    /// time: that row goes, or it would be come upon for ever.
    fn forget_at(&mut self, due: &Due) -> Result<(), StoreError> {
        let ended = get::<Ended>(&self.ended, ENDED, &due.name)?;
        if ended.is_some_and(|ended| ended.until_ms == due.until_ms) {
            self.remove_ended(&due.name)?;
        }
        let place = (due.rank, due.until_ms, due.name.as_str());
        let mut was_left = self.forget.remove(place)?.is_some();
        if let Some(by) = &due.by {
            was_left |= self.brought.remove(by.as_str(), place)?;
        }
        if was_left {
            tracing::warn!(
                bundle = due.name,
                "the store was damaged: a row about a bundle that it does not know is gone"
            );
        }
        Ok(())
    }

    /// Which of those that have ended is forgotten where there are too many. What was for others, or has been opened here, goes before
    /// what this node has made; and of that the first of the member that brought the most, so that none pushes out what others brought.
    fn goes_first(&self) -> Result<Option<Due>, StoreError> {
        let Some((first, _)) = self.forget.first()? else {
            return Ok(None);
        };
        if self.ended.get(first.value().2)?.is_none() {
            return Ok(Some(Due::at(first.value(), None)));
        }
        let mut most: Option<(String, MultimapValue<'_, Place>)> = None;
        for member in self.brought.iter()? {
            let (by, places) = member?;
            if most.as_ref().is_none_or(|(_, most)| places.len() > most.len()) {
                most = Some((by.value().to_owned(), places));
            }
        }
        let Some((by, place)) = most.and_then(|(by, mut places)| Some((by, places.next()?))) else {
            return Ok(Some(Due::at(first.value(), None)));
        };
        Ok(Some(Due::at(place?.value(), Some(by))))
    }

    /// Forgets those that have been remembered for long enough, bundles and orders.
    pub(super) fn forget(&mut self, now_ms: u64) -> Result<(), StoreError> {
        orders::forget(&mut self.orders, &mut self.meta, now_ms)?;
        for row in due(&self.forget, now_ms)? {
            self.forget_at(&row)?;
        }
        Ok(())
    }

    /// Has those forgotten in their time of which nothing says when: in a damaged store they would be remembered for ever, and count for
    /// nothing where too many have ended.
    pub(super) fn mend(&mut self) -> Result<(), StoreError> {
        for (name, ended) in list::<Ended>(&self.ended, ENDED)? {
            self.note(&name, &ended)?;
        }
        self.make_room()
    }

    /// Those that wait and whose time is over, by name.
    pub(super) fn late(&self, now_ms: u64) -> Result<Vec<(String, Bundle)>, StoreError> {
        let mut late = list::<Bundle>(&self.waiting, BUNDLES)?;
        late.retain(|(_, bundle)| bundle.expires_ms < now_ms);
        Ok(late)
    }

    /// Counts a bundle among those that wait, or no longer.
    fn count(&mut self, bundle: &Bundle, change: fn(u64, u64) -> u64) -> Result<(), StoreError> {
        let bytes = taken(&self.meta)?;
        self.meta.insert(TAKEN, change(bytes, bundle.size))?;
        for (name, more) in counts_of(bundle) {
            let before = number(&self.meta, &name)?;
            match change(before, more) {
                0 => _ = self.meta.remove(name.as_str())?,
                after => _ = self.meta.insert(name.as_str(), after)?,
            }
        }
        Ok(())
    }
}

/// Those with the least rank are forgotten first where too many have ended: what was for others. Then what this node has opened, and
/// what it has sent itself; an answer may still come to what has left and is not done. What a member has brought says of itself who
/// made it: that it was this node counts for nothing.
fn rank(bundle: &Bundle, here: NodeId) -> u8 {
    match bundle {
        Bundle {
            brought_by: None,
            source,
            state: BundleState::Passed { .. },
            ..
        } if *source == here => OWN + 1,
        Bundle {
            brought_by: None,
            source,
            ..
        } if *source == here => OWN,
        Bundle { destination, .. } if *destination == here => 1,
        _ => 0,
    }
}

pub(super) fn find(
    waiting: &impl ReadableTable<&'static str, &'static [u8]>,
    ended: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<Bundle>, StoreError> {
    match get::<Bundle>(waiting, BUNDLES, name)? {
        Some(waits) => Ok(Some(waits)),
        None => Ok(get::<Ended>(ended, ENDED, name)?.map(|ended| ended.bundle)),
    }
}

/// Bytes of all that wait.
pub(super) fn taken(meta: &impl ReadableTable<&'static str, u64>) -> Result<u64, StoreError> {
    number(meta, TAKEN)
}

/// How many of those that wait this member has brought, and their bytes.
pub(super) fn waiting_of(
    meta: &impl ReadableTable<&'static str, u64>,
    by: NodeId,
) -> Result<(u64, u64), StoreError> {
    let [bytes, waiting] = names_of(by);
    Ok((number(meta, &waiting)?, number(meta, &bytes)?))
}

/// What one that waits counts for, of the member that has brought it.
fn counts_of(bundle: &Bundle) -> impl Iterator<Item = (String, u64)> + use<> {
    let counts = [bundle.size, 1];
    let names = bundle.brought_by.map(names_of);
    names
        .into_iter()
        .flat_map(move |names| names.into_iter().zip(counts))
}

fn names_of(by: NodeId) -> [String; 2] {
    [format!("{BYTES_OF}{by}"), format!("{WAITING_OF}{by}")]
}

impl Due {
    fn at((rank, until_ms, name): (u8, u64, &str), by: Option<String>) -> Self {
        Self {
            rank,
            until_ms,
            name: name.to_owned(),
            by,
        }
    }
}

/// Those that have been remembered for long enough.
pub(super) fn due(forget: &impl ReadableTable<Place, ()>, now_ms: u64) -> Result<Vec<Due>, StoreError> {
    let mut due = Vec::new();
    for rank in 0..RANKS {
        for row in forget.range((rank, 0, "")..(rank, now_ms, ""))? {
            let (place, _) = row?;
            due.push(Due::at(place.value(), None));
        }
    }
    Ok(due)
}
