use crate::tables::{MESH, META, REDEEMED, get, put};
use crate::{Store, StoreError};
use redb::{ReadableTable, ReadableTableMetadata};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Invitations that are remembered as used.
const MOST_REDEEMED: u64 = 100_000;
/// When this program was built, in seconds since 1970.
const BUILT: u64 = match u64::from_str_radix(env!("KARMAN_BUILT"), 10) {
    Ok(seconds) => seconds,
    Err(_) => panic!("SOURCE_DATE_EPOCH is no number of seconds"),
};

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

/// What a node must not forget of the mesh that it belongs to. The records are the mesh's own; here they are kept.
#[derive(Clone, Copy, Debug)]
pub struct Mesh<'a>(pub(crate) &'a Store);

impl Mesh<'_> {
    /// The record of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        get(&self.0.tables().read()?.open_table(MESH)?, MESH, name)
    }

    /// The names that begin so, in order.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn names(&self, begin: &str) -> Result<Vec<String>, StoreError> {
        let table = self.0.tables().read()?.open_table(MESH)?;
        let mut names = Vec::new();
        for record in table.range(begin..)? {
            let (name, _) = record?;
            if !name.value().starts_with(begin) {
                break;
            }
            names.push(name.value().to_owned());
        }
        Ok(names)
    }

    /// The records whose names begin so, in order, by what follows in their names.
    ///
    /// # Errors
    /// [`StoreError::Record`] when one is not what was asked for, else what the disk refused.
    pub fn records<R: DeserializeOwned>(&self, begin: &str) -> Result<Vec<(String, R)>, StoreError> {
        let table = self.0.tables().read()?.open_table(MESH)?;
        let mut records = Vec::new();
        for row in table.range(begin..)? {
            let (name, _) = row?;
            let Some(rest) = name.value().strip_prefix(begin) else {
                break;
            };
            if let Some(record) = get(&table, MESH, name.value())? {
                records.push((rest.to_owned(), record));
            }
        }
        Ok(records)
    }

    /// Writes the record of this name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.0
            .tables()
            .write(|txn| put(&mut txn.open_table(MESH)?, MESH, name, record))
    }

    /// Forgets the records of these names.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn remove(&self, names: &[&str]) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(MESH)?;
            for name in names {
                table.remove(*name)?;
            }
            Ok(())
        })
    }

    /// Remembers that an invitation was used by the holder of this public key. Whether it is (still) theirs: true at the
    /// first time and whenever the same holder comes again, false for anyone else, and for all once it is withdrawn.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when too many are remembered, else what the disk refused.
    pub fn redeem(&self, invitation: u128, holder: &[u8; 32]) -> Result<bool, StoreError> {
        Ok(*holder != NOBODY && self.spend(invitation, holder)? == *holder)
    }

    /// Remembers that an invitation may not be used, unless a node has used it. Returns its state now.
    ///
    /// # Errors
    /// As for [`Mesh::redeem`].
    pub fn withdraw(&self, invitation: u128) -> Result<Redeemed, StoreError> {
        Ok(became(self.spend(invitation, &NOBODY)?))
    }

    /// How an invitation was used up; nothing while it can be used.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn redeemed(&self, invitation: u128) -> Result<Option<Redeemed>, StoreError> {
        let table = self.0.tables().read()?.open_table(REDEEMED)?;
        Ok(table.get(invitation)?.map(|holder| became(*holder.value())))
    }

    /// Gives an invitation to this holder where none has it. Returns its holder now.
    fn spend(&self, invitation: u128, holder: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(REDEEMED)?;
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
            table.insert(invitation, holder)?;
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
            let meta = self.0.tables().read()?.open_table(META)?;
            meta.get("time-floor")?
                .map_or(BUILT, |floor| floor.value().max(BUILT))
        };
        if seen <= floor {
            return Ok(floor);
        }
        self.0.tables().write(|txn| {
            txn.open_table(META)?.insert("time-floor", seen)?;
            Ok(seen)
        })
    }
}

fn became(holder: [u8; 32]) -> Redeemed {
    match holder {
        NOBODY => Redeemed::Withdrawn,
        key => Redeemed::By(key),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUILT, NOBODY, Redeemed};
    use crate::Store;

    #[test]
    fn an_invitation_is_used_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.mesh().redeem(7, &[1; 32]).unwrap());
        assert!(store.mesh().redeem(7, &[1; 32]).unwrap());
        assert!(!store.mesh().redeem(7, &[2; 32]).unwrap());
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.mesh().redeem(7, &[2; 32]).unwrap());
    }

    #[test]
    fn an_invitation_that_was_withdrawn_is_used_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().redeemed(7).unwrap(), None);
        assert_eq!(store.mesh().withdraw(7).unwrap(), Redeemed::Withdrawn);
        assert_eq!(store.mesh().withdraw(7).unwrap(), Redeemed::Withdrawn);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.mesh().redeem(7, &[1; 32]).unwrap());
        assert!(!store.mesh().redeem(7, &NOBODY).unwrap(), "it is no node's key");
        assert_eq!(store.mesh().redeemed(7).unwrap(), Some(Redeemed::Withdrawn));
        // Who was faster has it.
        assert!(store.mesh().redeem(8, &[1; 32]).unwrap());
        assert_eq!(store.mesh().withdraw(8).unwrap(), Redeemed::By([1; 32]));
        assert!(store.mesh().redeem(8, &[1; 32]).unwrap());
    }

    #[test]
    fn time_never_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().time_floor(0).unwrap(), BUILT);
        let later = BUILT + 100;
        assert_eq!(store.mesh().time_floor(later).unwrap(), later);
        assert_eq!(store.mesh().time_floor(5).unwrap(), later);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.mesh().time_floor(0).unwrap(), later);
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
