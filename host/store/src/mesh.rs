use crate::tables::{META, REDEEMED, REDEEMED_ENDS};
use crate::{Named, StoreError};
use redb::{ReadableTable, ReadableTableMetadata, Table};
use std::ops::Deref;
use std::time::Duration;

/// Invitations that are remembered as used or withdrawn.
const MOST_REDEEMED: u64 = 100_000;
/// When this program was built, in seconds since 1970. No clock that shows less is right.
pub const BUILT: u64 = match u64::from_str_radix(env!("KARMAN_BUILT"), 10) {
    Ok(seconds) => seconds,
    Err(_) => panic!("SOURCE_DATE_EPOCH is no number of seconds"),
};

/// The newest time ever seen, in [`META`].
const TIME_FLOOR: &str = "time-floor";
/// Invitations that ended before this may be forgotten, in [`META`]; only where the newest time was [set back](Mesh::set_back).
const FORGOTTEN_BEFORE: &str = "forgotten-before";

/// How far a clock may be ahead of the newest times that are known for what it shows to be remembered as seen, or to end anything. No node
/// makes that undone by itself: a single start of a clock that shows 2080 would shut it out, and throw away what waits there.
pub const MOST_AHEAD: Duration = Duration::from_secs(366 * 86_400);

/// In the place of the key of the node that used an invitation: none may. It is the key of no node.
const NOBODY: [u8; 32] = [0; 32];

/// How an invitation was used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Redeemed {
    /// The holder of this public key has used it.
    By([u8; 32]),
    /// It was withdrawn before anybody had.
    Withdrawn,
}

/// What a node must not forget of the mesh that it belongs to: the mesh's own records, by name, and what has become of invitations.
#[derive(Clone, Copy)]
pub struct Mesh<'a>(pub(crate) Named<'a>);

impl<'a> Deref for Mesh<'a> {
    type Target = Named<'a>;

    fn deref(&self) -> &Named<'a> {
        &self.0
    }
}

impl Mesh<'_> {
    /// How long it is remembered what has become of an invitation, after its end.
    pub const REDEEMED_KEPT: Duration = Duration::from_secs(30 * 86_400);

    /// Remembers that an invitation was used by the holder of this public key. Whether it is (still) theirs: true at the
    /// first time and whenever the same holder comes again, false for anyone else, and for all once it is withdrawn. `expires` is the
    /// last second that it can be used, since 1970; whoever comes with it later is refused before this is asked.
    ///
    /// It is forgotten [so long](Self::REDEEMED_KEPT) after its end, by the newest time that this store has [seen](Self::time_floor):
    /// that never goes back, whatever a clock says, so no invitation that is forgotten is good again. Where its operator has
    /// [set it back](Self::set_back), those that may be forgotten are used up for all.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when too many are remembered, else what the disk refused.
    pub fn redeem(&self, invitation: u128, expires: u64, holder: &[u8; 32]) -> Result<bool, StoreError> {
        Ok(*holder != NOBODY && self.spend(invitation, expires, holder)? == *holder)
    }

    /// Remembers that an invitation may not be used, unless a node has used it. Returns its state now.
    ///
    /// # Errors
    /// As for [`Mesh::redeem`].
    pub fn withdraw(&self, invitation: u128, expires: u64) -> Result<Redeemed, StoreError> {
        Ok(became(self.spend(invitation, expires, &NOBODY)?))
    }

    /// How an invitation was used up; nothing while it can be used.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn redeemed(&self, invitation: u128) -> Result<Option<Redeemed>, StoreError> {
        let table = self.store.tables().read()?.open_table(REDEEMED)?;
        Ok(table.get(invitation)?.map(|holder| became(*holder.value())))
    }

    /// Gives an invitation to this holder where none has it. Returns its holder now.
    fn spend(&self, invitation: u128, expires: u64, holder: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        self.store.tables().write(|txn| {
            // Not when this program was built: an earlier one may be started again.
            let mut meta = txn.open_table(META)?;
            let floor = meta.get(TIME_FLOOR)?.map_or(0, |time| time.value());
            let mut forgotten_before = meta.get(FORGOTTEN_BEFORE)?.map_or(0, |time| time.value());
            let mut table = txn.open_table(REDEEMED)?;
            let mut ends = txn.open_table(REDEEMED_ENDS)?;
            if let Some(end) = forget(&mut table, &mut ends, floor)?.filter(|end| *end >= forgotten_before) {
                forgotten_before = end + 1;
                meta.insert(FORGOTTEN_BEFORE, forgotten_before)?;
            }
            if let Some(before) = table.get(invitation)? {
                return Ok(*before.value());
            }
            if table.len()? >= MOST_REDEEMED {
                return Err(StoreError::Limit {
                    field: "redeemed invitations",
                    value: MOST_REDEEMED + 1,
                    most: MOST_REDEEMED,
                });
            }
            // Somebody has used it, perhaps.
            let holder = if expires < forgotten_before {
                &NOBODY
            } else {
                holder
            };
            table.insert(invitation, holder)?;
            ends.insert((expires, invitation), ())?;
            Ok(*holder)
        })
    }

    /// The newest time ever seen, in seconds since 1970: the latest of when this program was built, what was remembered, and
    /// `seen`. Clocks of boards start in the past; what expired before this time has expired.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn time_floor(&self, seen: u64) -> Result<u64, StoreError> {
        let floor = {
            let meta = self.store.tables().read()?.open_table(META)?;
            meta.get(TIME_FLOOR)?
                .map_or(BUILT, |floor| floor.value().max(BUILT))
        };
        if seen <= floor {
            return Ok(floor);
        }
        self.raise(seen)
    }

    /// Has the newest time seen be this one, where it is later: the clock that showed that was wrong. What it has ended holds again. The
    /// newest time by then; it is no earlier than this program.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn set_back(&self, to: u64) -> Result<u64, StoreError> {
        self.store.tables().write(|txn| {
            let mut meta = txn.open_table(META)?;
            let floor = meta.get(TIME_FLOOR)?.map_or(0, |floor| floor.value());
            if to < floor {
                meta.insert(TIME_FLOOR, to)?;
            }
            Ok(floor.min(to).max(BUILT))
        })
    }

    /// Raises the floor to this time, unless it was raised further since it was read.
    fn raise(&self, seen: u64) -> Result<u64, StoreError> {
        self.store.tables().write(|txn| {
            let mut meta = txn.open_table(META)?;
            let there = meta.get(TIME_FLOOR)?.map_or(BUILT, |floor| floor.value());
            let floor = seen.max(there);
            meta.insert(TIME_FLOOR, floor)?;
            Ok(floor)
        })
    }
}

/// Forgets what has become of invitations that have ended long before this time; the latest of their ends.
fn forget(
    redeemed: &mut Table<'_, u128, &'static [u8; 32]>,
    ends: &mut Table<'_, (u64, u128), ()>,
    floor: u64,
) -> Result<Option<u64>, StoreError> {
    let before = floor.saturating_sub(Mesh::REDEEMED_KEPT.as_secs());
    let mut over = Vec::new();
    for row in ends.range((0, 0_u128)..(before, 0_u128))? {
        let (end, _) = row?;
        over.push(end.value());
    }
    for (end, invitation) in &over {
        ends.remove((*end, *invitation))?;
        redeemed.remove(*invitation)?;
    }
    Ok(over.last().map(|(end, _)| *end))
}

fn became(holder: [u8; 32]) -> Redeemed {
    match holder {
        NOBODY => Redeemed::Withdrawn,
        key => Redeemed::By(key),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUILT, Mesh, NOBODY, Redeemed};
    use crate::Store;
    use crate::tables::{REDEEMED, REDEEMED_ENDS};
    use redb::ReadableTableMetadata;

    /// The end of invitations.
    const END: u64 = 4_000_000_000;

    #[test]
    fn an_invitation_is_used_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.mesh().redeem(7, END, &[1; 32]).unwrap());
        assert!(store.mesh().redeem(7, END, &[1; 32]).unwrap());
        assert!(!store.mesh().redeem(7, END, &[2; 32]).unwrap());
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.mesh().redeem(7, END, &[2; 32]).unwrap());
    }

    #[test]
    fn an_invitation_that_was_withdrawn_is_used_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().redeemed(7).unwrap(), None);
        assert_eq!(store.mesh().withdraw(7, END).unwrap(), Redeemed::Withdrawn);
        assert_eq!(store.mesh().withdraw(7, END).unwrap(), Redeemed::Withdrawn);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.mesh().redeem(7, END, &[1; 32]).unwrap());
        assert!(
            !store.mesh().redeem(7, END, &NOBODY).unwrap(),
            "it is no node's key"
        );
        assert_eq!(store.mesh().redeemed(7).unwrap(), Some(Redeemed::Withdrawn));
        // Who was faster has it.
        assert!(store.mesh().redeem(8, END, &[1; 32]).unwrap());
        assert_eq!(store.mesh().withdraw(8, END).unwrap(), Redeemed::By([1; 32]));
        assert!(store.mesh().redeem(8, END, &[1; 32]).unwrap());
    }

    #[test]
    fn what_became_of_an_invitation_is_forgotten_long_after_its_end_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let mesh = store.mesh();
        let rows = || {
            let txn = store.tables().read().unwrap();
            let (redeemed, ends) = (txn.open_table(REDEEMED), txn.open_table(REDEEMED_ENDS));
            (redeemed.unwrap().len().unwrap(), ends.unwrap().len().unwrap())
        };
        assert!(mesh.redeem(1, END, &[1; 32]).unwrap());
        mesh.withdraw(2, END + 1).unwrap();
        assert!(mesh.redeem(3, u64::MAX, &[3; 32]).unwrap());
        assert_eq!(rows(), (3, 3));

        let kept = Mesh::REDEEMED_KEPT.as_secs();
        mesh.time_floor(END + kept).unwrap();
        assert!(mesh.redeem(5, u64::MAX, &[5; 32]).unwrap());
        assert_eq!(rows(), (4, 4), "its last second is not 30 days ago");
        mesh.time_floor(END + kept + 1).unwrap();
        assert!(mesh.redeem(5, u64::MAX, &[5; 32]).unwrap());
        assert_eq!(rows(), (3, 3));
        assert_eq!(mesh.redeemed(1).unwrap(), None);
        assert_eq!(mesh.redeemed(2).unwrap(), Some(Redeemed::Withdrawn));
        assert_eq!(mesh.redeemed(3).unwrap(), Some(Redeemed::By([3; 32])));
    }

    #[test]
    fn time_never_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().time_floor(0).unwrap(), BUILT);
        let later = BUILT + 100;
        assert_eq!(store.mesh().time_floor(later).unwrap(), later);
        assert_eq!(store.mesh().time_floor(5).unwrap(), later);
        // One that has read the floor before it was raised.
        assert_eq!(store.mesh().raise(later - 50).unwrap(), later);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().time_floor(0).unwrap(), later);
    }

    #[test]
    fn a_time_that_was_set_back_makes_no_invitation_good_that_may_be_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (mesh, kept) = (store.mesh(), Mesh::REDEEMED_KEPT.as_secs());
        let now = BUILT + 10 * kept;
        mesh.time_floor(now).unwrap();
        for (invitation, expires) in [(1, now + kept), (2, now + 2 * kept)] {
            assert!(mesh.redeem(invitation, expires, &[1; 32]).unwrap());
        }
        // A clock that is ahead, and somebody who comes meanwhile.
        mesh.time_floor(now + 2 * kept + 1).unwrap();
        assert!(mesh.redeem(3, u64::MAX, &[3; 32]).unwrap());
        assert_eq!(mesh.redeemed(1).unwrap(), None);
        assert_eq!(mesh.set_back(now).unwrap(), now);
        assert_eq!(mesh.time_floor(0).unwrap(), now);
        assert_eq!(mesh.set_back(now + 5).unwrap(), now);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        let mesh = store.mesh();
        for node in [[1; 32], [2; 32]] {
            assert!(!mesh.redeem(1, now + kept, &node).unwrap());
        }
        assert!(mesh.redeem(2, now + 2 * kept, &[1; 32]).unwrap());
        assert!(!mesh.redeem(2, now + 2 * kept, &[2; 32]).unwrap());
        assert!(mesh.redeem(4, now + 2 * kept, &[4; 32]).unwrap());
        // Nothing that ends after what was forgotten is doubtful, however far ahead the clock was.
        assert!(mesh.redeem(5, now + kept + 1, &[5; 32]).unwrap());
        assert_eq!(mesh.set_back(0).unwrap(), BUILT);
    }

    #[test]
    fn records_are_kept_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.mesh().put("membership", &vec![1u8, 2]).unwrap();
        assert_eq!(
            store.mesh().get::<Vec<u8>>("membership").unwrap(),
            Some(vec![1, 2])
        );
        store.mesh().put("members/b", &1u8).unwrap();
        store.mesh().put("members/a", &2u8).unwrap();
        store.mesh().put("members0", &3u8).unwrap();
        assert_eq!(
            store.mesh().names("members/").unwrap(),
            ["members/a", "members/b"]
        );
        let records: Vec<(String, u8)> = store.mesh().records("members/").unwrap();
        assert_eq!(records, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        store.mesh().remove(&["membership"]).unwrap();
        assert_eq!(store.mesh().get::<Vec<u8>>("membership").unwrap(), None);
    }
}
