//! What this node remembers of who announced what, for others that search. It is in memory: what is announced is announced again.
//!
//! Members tell it, and a member may be broken: nobody takes the room of others, and what nobody tells any more goes. Values, which
//! Kademlia keeps, too, nothing here uses: they are refused.

use libp2p::PeerId;
use libp2p::kad::store::{Error, RecordStore, Result};
use libp2p::kad::{ProviderRecord, Record, RecordKey};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::iter::{Empty, empty};
use std::time::{Duration, Instant};

/// Records of others, about a kilobyte each.
const MOST: usize = 32_768;
/// Nodes that are remembered of one key.
pub(super) const MOST_OF_A_KEY: usize = 64;
/// Addresses of one of them.
const MOST_ADDRESSES: usize = 16;
/// Bytes of a key: all are digests.
const KEY: usize = 32;
/// How often all are looked through for those that are over, where there is no room.
const SWEPT: Duration = Duration::from_secs(60);

/// Who announced what.
pub(crate) struct Records {
    me: PeerId,
    most: usize,
    by_key: HashMap<RecordKey, Vec<ProviderRecord>>,
    by_provider: HashMap<PeerId, HashSet<RecordKey>>,
    /// Records of others.
    count: usize,
    swept: Option<Instant>,
}

impl Records {
    /// Nothing yet, for this node.
    pub(crate) fn new(me: PeerId) -> Self {
        Self {
            me,
            most: MOST,
            by_key: HashMap::new(),
            by_provider: HashMap::new(),
            count: 0,
            swept: None,
        }
    }

    /// Puts a record in the place of what the same node told before; nothing where it told nothing.
    fn renew(&mut self, record: &ProviderRecord) -> bool {
        let known = self.by_key.get_mut(&record.key);
        let known = known.and_then(|known| known.iter_mut().find(|known| known.provider == record.provider));
        match known {
            Some(known) => {
                *known = record.clone();
                true
            }
            None => false,
        }
    }

    /// Forgets all that a node has told.
    pub(crate) fn has_left(&mut self, provider: &PeerId) {
        for key in self.by_provider.get(provider).cloned().unwrap_or_default() {
            self.remove_provider(&key, provider);
        }
    }

    /// Makes room for a record of somebody else: first of those that have expired, then of the node that has the most.
    fn make_room(&mut self, record: &ProviderRecord, now: Instant) -> Result<()> {
        self.make_room_at(&record.key, now);
        if self.count < self.most {
            return Ok(());
        }
        if self.swept.is_none_or(|swept| now.duration_since(swept) >= SWEPT) {
            self.swept = Some(now);
            self.forget(|known| known.is_expired(now));
        }
        if self.count < self.most {
            return Ok(());
        }
        let of = |provider: &PeerId| self.by_provider.get(provider).map_or(0, HashSet::len);
        let others = self.by_provider.keys().filter(|provider| **provider != self.me);
        let Some(most) = others.copied().max_by_key(of) else {
            return Err(Error::MaxProvidedKeys);
        };
        if of(&record.provider) + 1 >= of(&most) {
            return Err(Error::MaxProvidedKeys);
        }
        let key = self
            .by_provider
            .get(&most)
            .and_then(|keys| keys.iter().next().cloned());
        if let Some(key) = key {
            self.remove_provider(&key, &most);
        }
        Ok(())
    }

    /// Of a key that too many have announced, forgets who told it longest ago: it may be gone.
    fn make_room_at(&mut self, key: &RecordKey, now: Instant) {
        let Some(known) = self.by_key.get(key).filter(|known| known.len() >= MOST_OF_A_KEY) else {
            return;
        };
        let others = known.iter().filter(|known| known.provider != self.me);
        let oldest = others.min_by_key(|known| known.expires.unwrap_or(now));
        if let Some(oldest) = oldest.map(|oldest| oldest.provider) {
            self.remove_provider(key, &oldest);
        }
    }

    fn forget(&mut self, is_over: impl Fn(&ProviderRecord) -> bool) {
        let known = self.by_key.values().flatten().filter(|known| is_over(known));
        let over: Vec<_> = known.map(|known| (known.key.clone(), known.provider)).collect();
        for (key, provider) in over {
            self.remove_provider(&key, &provider);
        }
    }
}

impl RecordStore for Records {
    type RecordsIter<'a> = Empty<Cow<'a, Record>>;
    type ProvidedIter<'a> = Box<dyn Iterator<Item = Cow<'a, ProviderRecord>> + 'a>;

    fn get(&self, _: &RecordKey) -> Option<Cow<'_, Record>> {
        None
    }

    fn put(&mut self, _: Record) -> Result<()> {
        Err(Error::MaxRecords)
    }

    fn remove(&mut self, _: &RecordKey) {}

    fn records(&self) -> Self::RecordsIter<'_> {
        empty()
    }

    fn add_provider(&mut self, mut record: ProviderRecord) -> Result<()> {
        if record.key.as_ref().len() != KEY {
            return Err(Error::ValueTooLarge);
        }
        record.addresses.truncate(MOST_ADDRESSES);
        if self.renew(&record) {
            return Ok(());
        }
        if record.provider != self.me {
            self.make_room(&record, Instant::now())?;
            self.count += 1;
        }
        let keys = self.by_provider.entry(record.provider).or_default();
        keys.insert(record.key.clone());
        self.by_key.entry(record.key.clone()).or_default().push(record);
        Ok(())
    }

    /// In any order: an answer has room for few, and a search that asks all who are next to the key finds the others there.
    fn providers(&self, key: &RecordKey) -> Vec<ProviderRecord> {
        let mut known = self.by_key.get(key).cloned().unwrap_or_default();
        fastrand::shuffle(&mut known);
        known
    }

    fn provided(&self) -> Self::ProvidedIter<'_> {
        let keys = self.by_provider.get(&self.me).into_iter().flatten();
        let known = keys.filter_map(|key| self.by_key.get(key)).flatten();
        Box::new(known.filter(|known| known.provider == self.me).map(Cow::Borrowed))
    }

    fn remove_provider(&mut self, key: &RecordKey, provider: &PeerId) {
        let Some(known) = self.by_key.get_mut(key) else {
            return;
        };
        let Some(at) = known.iter().position(|known| known.provider == *provider) else {
            return;
        };
        known.swap_remove(at);
        if known.is_empty() {
            self.by_key.remove(key);
        }
        if let Some(keys) = self.by_provider.get_mut(provider) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_provider.remove(provider);
            }
        }
        self.count -= usize::from(*provider != self.me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn key(number: usize) -> RecordKey {
        let mut key = [0; KEY];
        key[..8].copy_from_slice(&(number as u64).to_be_bytes());
        RecordKey::new(&key)
    }

    fn record(number: usize, provider: PeerId, expires: Option<Instant>) -> ProviderRecord {
        let mut record = ProviderRecord::new(key(number), provider, Vec::new());
        record.expires = expires;
        record
    }

    fn later() -> Option<Instant> {
        Some(Instant::now() + HOUR)
    }

    fn small(most: usize) -> Records {
        let mut records = Records::new(PeerId::random());
        records.most = most;
        records
    }

    fn knows(records: &Records, number: usize, provider: PeerId) -> bool {
        records
            .providers(&key(number))
            .iter()
            .any(|known| known.provider == provider)
    }

    #[test]
    fn what_is_told_again_takes_no_more_room_and_what_is_taken_back_none() {
        let (mut records, other) = (small(4), PeerId::random());
        let me = records.me;
        for _ in 0..9 {
            records.add_provider(record(1, other, later())).unwrap();
            records.add_provider(record(1, me, None)).unwrap();
        }
        assert_eq!((records.count, records.providers(&key(1)).len()), (1, 2));
        let provided: Vec<_> = records.provided().map(|own| own.provider).collect();
        assert_eq!(provided, [me]);
        records.remove_provider(&key(1), &other);
        records.remove_provider(&key(1), &other);
        records.remove_provider(&key(1), &me);
        assert_eq!((records.count, records.provided().count()), (0, 0));
        assert!(records.by_key.is_empty() && records.by_provider.is_empty());
    }

    #[test]
    fn of_one_that_has_left_nothing_is_known_and_all_of_the_others() {
        let (mut records, stays, leaves) = (small(8), PeerId::random(), PeerId::random());
        for number in 0..4 {
            for provider in [stays, leaves] {
                records.add_provider(record(number, provider, later())).unwrap();
            }
        }
        records.has_left(&leaves);
        records.has_left(&PeerId::random());
        assert_eq!(records.count, 4);
        assert!((0..4).all(|number| knows(&records, number, stays) && !knows(&records, number, leaves)));
        records.add_provider(record(1, leaves, later())).unwrap();
        assert!(knows(&records, 1, leaves), "it is back");
    }

    #[test]
    fn what_nobody_tells_any_more_goes_when_there_is_no_room() {
        let (mut records, gone, new) = (small(8), PeerId::random(), PeerId::random());
        for number in 0..8 {
            records
                .add_provider(record(number, gone, Some(Instant::now())))
                .unwrap();
        }
        for number in 0..8 {
            records.add_provider(record(number, new, later())).unwrap();
        }
        assert_eq!(records.count, 8);
        assert!((0..8).all(|number| knows(&records, number, new) && !knows(&records, number, gone)));
    }

    #[test]
    fn who_tells_without_end_takes_no_room_from_others() {
        let (mut records, floods, own) = (small(100), PeerId::random(), 3);
        let honest = [(); 10].map(|()| PeerId::random());
        for number in 0..1000 {
            let _ = records.add_provider(record(number, floods, later()));
        }
        for (at, honest) in honest.iter().enumerate() {
            for number in 0..own {
                records
                    .add_provider(record(2000 + at * own + number, *honest, later()))
                    .unwrap();
            }
        }
        for number in 1000..2000 {
            let _ = records.add_provider(record(number, floods, later()));
        }
        assert_eq!(records.count, 100);
        assert!(
            honest
                .iter()
                .all(|honest| records.by_provider[honest].len() == own)
        );
        let me = records.me;
        records.add_provider(record(1, me, None)).unwrap();
        assert!(knows(&records, 1, me), "what this node announces it knows itself");
    }

    #[test]
    fn of_a_key_that_many_announce_who_told_it_last_is_known() {
        let (mut records, start) = (Records::new(PeerId::random()), Instant::now() + HOUR);
        let told: Vec<PeerId> = std::iter::repeat_with(PeerId::random)
            .take(2 * MOST_OF_A_KEY)
            .collect();
        for (at, provider) in (0u32..).zip(&told) {
            let expires = start + at * Duration::from_secs(1);
            records.add_provider(record(1, *provider, Some(expires))).unwrap();
        }
        let (before, last) = told.split_at(MOST_OF_A_KEY);
        assert!(last.iter().all(|provider| knows(&records, 1, *provider)));
        assert!(!before.iter().any(|provider| knows(&records, 1, *provider)));
        assert_eq!(records.count, MOST_OF_A_KEY);
    }

    #[test]
    fn keys_that_are_no_digests_are_refused() {
        let (mut records, other) = (small(8), PeerId::random());
        for length in [0, 31, 33, 4096] {
            let record = ProviderRecord::new(RecordKey::new(&vec![7; length]), other, Vec::new());
            assert!(records.add_provider(record).is_err(), "{length}");
        }
        assert_eq!(records.count, 0);
        assert!(records.by_key.is_empty() && records.by_provider.is_empty());
    }

    #[test]
    fn values_are_refused() {
        let mut records = small(1);
        assert!(records.put(Record::new(key(1), vec![1])).is_err());
        assert!(records.get(&key(1)).is_none());
    }
}
