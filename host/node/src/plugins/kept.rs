//! What a node's disk holds of its plugins. A write waits until it is there, so none is done on a thread of the network.

use super::Plugins;
use bytes::Bytes;
use karman_package::{Identity, Package};
use karman_store::{Downgrade, NewPlugin, Store, StoreError};
use karman_types::TaskError;
use semver::Version;

impl Plugins {
    /// Does something with the store on a thread that may wait for the disk.
    pub(super) async fn stored<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, TaskError> {
        self.runtime().home().with(step).await
    }

    /// The file of the plugin of this identity.
    pub(super) async fn component(&self, identity: String) -> Result<Bytes, TaskError> {
        self.stored(move |store| store.plugins().component(&identity))
            .await
    }

    /// Keeps what serves now across restarts, and no longer the plugin of another identity whose name it has taken.
    pub(super) async fn keep(
        &self,
        name: &str,
        version: &Version,
        package: Package,
        component: Bytes,
        other: Option<Identity>,
    ) -> Result<(), TaskError> {
        let (name, version) = (name.to_owned(), version.clone());
        let keep = move |store: &Store| -> Result<(), StoreError> {
            let identity = package.identity().to_string();
            let publisher = package.publisher.map(|key| key.to_string());
            let new = NewPlugin {
                identity: &identity,
                name: &name,
                version,
                world: package.world,
                publisher: publisher.as_deref(),
                component: &component,
            };
            store.plugins().install(&new, Downgrade::Allow)?;
            if let Some(other) = other {
                match store.plugins().remove(&other.to_string()) {
                    Ok(_) | Err(StoreError::Unknown { .. }) => {}
                    Err(error) => {
                        tracing::error!(plugin = %other, %error, "the plugin that was replaced is still kept")
                    }
                }
            }
            Ok(())
        };
        self.stored(keep).await
    }
}
