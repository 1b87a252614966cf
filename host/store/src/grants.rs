use crate::tables::{GRANTS, get, list, put};
use crate::{Store, StoreError, limits};
use karman_types::{Grant, GrantSet};

/// What the operator allowed, by the identity of the plugin. A plugin need not be installed to be allowed something, and
/// what it was allowed survives upgrades.
#[derive(Clone, Copy, Debug)]
pub struct Grants<'a>(pub(crate) &'a Store);

impl Grants<'_> {
    /// Allows these in addition, and returns all that is allowed now.
    ///
    /// # Errors
    /// [`StoreError::Name`] when the text cannot be an identity (1 to 256 bytes).
    pub fn allow(&self, identity: &str, grants: &[Grant]) -> Result<GrantSet, StoreError> {
        limits::name("plugin identity", identity, 256)?;
        self.change(identity, |held| Ok(held.iter().chain(grants).cloned().collect()))
    }

    /// Takes back these and all that they cover, and returns what is still allowed.
    ///
    /// # Errors
    /// [`StoreError::StillGranted`] when a wider grant would still allow one of them; nothing is taken back then.
    pub fn revoke(&self, identity: &str, grants: &[Grant]) -> Result<GrantSet, StoreError> {
        self.change(identity, |held| {
            let left: GrantSet = held
                .iter()
                .filter(|held| !grants.iter().any(|revoked| revoked.covers(held)))
                .cloned()
                .collect();
            for asked in grants {
                if let Some(wider) = left.iter().find(|left| left.covers(asked)) {
                    return Err(StoreError::StillGranted {
                        identity: identity.into(),
                        asked: asked.clone(),
                        wider: wider.clone(),
                    });
                }
            }
            Ok(left)
        })
    }

    /// What is allowed; the empty set where nothing is.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn get(&self, identity: &str) -> Result<GrantSet, StoreError> {
        let table = self.0.tables().read()?.open_table(GRANTS)?;
        Ok(get(&table, GRANTS, identity)?.unwrap_or_default())
    }

    /// All that is allowed, by identity.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<(String, GrantSet)>, StoreError> {
        list(&self.0.tables().read()?.open_table(GRANTS)?, GRANTS)
    }

    fn change(
        &self,
        identity: &str,
        change: impl FnOnce(&GrantSet) -> Result<GrantSet, StoreError>,
    ) -> Result<GrantSet, StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(GRANTS)?;
            let held = get(&table, GRANTS, identity)?.unwrap_or_default();
            let now = change(&held)?;
            match now.is_empty() {
                true => drop(table.remove(identity)?),
                false => put(&mut table, GRANTS, identity, &now)?,
            }
            Ok(now)
        })
    }
}
