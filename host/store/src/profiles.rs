use crate::tables::{PROFILES, get, put};
use crate::{Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What was measured of models on this node, by a name that says of what and how.
#[derive(Clone, Copy, Debug)]
pub struct Profiles<'a>(pub(crate) &'a Store);

impl Profiles<'_> {
    /// The profile of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        get(&self.0.tables().read()?.open_table(PROFILES)?, PROFILES, name)
    }

    /// Writes the profile of this name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, profile: &impl Serialize) -> Result<(), StoreError> {
        self.0
            .tables()
            .write(|txn| put(&mut txn.open_table(PROFILES)?, PROFILES, name, profile))
    }
}
