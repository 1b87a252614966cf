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
    /// first time and whenever the same holder comes again, false for anyone else.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when too many are remembered, else what the disk refused.
    pub fn redeem(&self, invitation: u128, holder: &[u8; 32]) -> Result<bool, StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(REDEEMED)?;
            if let Some(before) = table.get(invitation)? {
                return Ok(before.value() == holder);
            }
            if table.len()? >= MOST_REDEEMED {
                return Err(StoreError::Limit {
                    field: "redeemed invitations",
                    value: MOST_REDEEMED + 1,
                    most: MOST_REDEEMED,
                });
            }
            table.insert(invitation, holder)?;
            Ok(true)
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

#[cfg(test)]
mod tests {
    use super::BUILT;
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
        store.mesh().remove(&["membership"]).unwrap();
        assert_eq!(store.mesh().get::<Vec<u8>>("membership").unwrap(), None);
    }
}
