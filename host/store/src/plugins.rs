use crate::tables::{GRANTS, PLUGINS, get, list, put};
use crate::{Store, StoreError, limits};
use bytes::Bytes;
use karman_types::{Digest, GrantSet, World};
use redb::ReadableTable;
use semver::Version;
use serde::{Deserialize, Serialize};

/// A plugin that this node holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Plugin {
    /// What grants, state and upgrades belong to: the publisher's key with the name, or the digest when unsigned.
    #[serde(skip)]
    pub identity: String,
    /// The name by which it is called.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The digest of its file, under which [`Blobs`](crate::Blobs) has it.
    pub digest: Digest,
    /// The interface that it exports.
    pub world: World,
    /// The key that signed it.
    pub publisher: Option<String>,
    /// The version before, whose file is kept so that it can be gone back to.
    pub previous: Option<Previous>,
    /// What the operator allowed, from [`Grants`](crate::Grants).
    #[serde(skip)]
    pub granted: GrantSet,
}

/// The version that an upgrade replaced.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Previous {
    /// Its version.
    pub version: Version,
    /// The digest of its file.
    pub digest: Digest,
}

/// A plugin to install, as the node verified it.
#[derive(Clone, Debug)]
pub struct NewPlugin<'a> {
    /// See [`Plugin::identity`]; 1 to 256 bytes.
    pub identity: &'a str,
    /// The name by which it is called; 1 to 64 bytes.
    pub name: &'a str,
    /// Its version.
    pub version: Version,
    /// The interface that it exports.
    pub world: World,
    /// The key that signed it.
    pub publisher: Option<&'a str>,
    /// The component, one file.
    pub component: &'a [u8],
}

/// Whether an older version may replace a newer one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Downgrade {
    /// It may not.
    #[default]
    Refuse,
    /// The operator asked for it.
    Allow,
}

/// The result of an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Installed {
    /// What there is now.
    pub plugin: Plugin,
    /// What there was before, under the same identity.
    pub replaced: Option<Plugin>,
}

/// The plugins that a node holds, by identity.
#[derive(Clone, Copy, Debug)]
pub struct Plugins<'a>(pub(crate) &'a Store);

impl Plugins<'_> {
    /// Installs a plugin, or upgrades the one of the same identity: file, record and the way back change together.
    /// Grants stay as they are, and a disabled plugin stays disabled. The same file again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Older`] for an older version, unless downgrades are allowed; [`StoreError::Name`] and
    /// [`StoreError::Limit`] when something is too long.
    pub fn install(&self, new: &NewPlugin<'_>, downgrade: Downgrade) -> Result<Installed, StoreError> {
        limits::name("plugin identity", new.identity, 256)?;
        limits::name("plugin", new.name, 64)?;
        self.0.blobs().add(new.component, |txn, digest| {
            let mut table = txn.open_table(PLUGINS)?;
            let grants = txn.open_table(GRANTS)?;
            let replaced = get::<Plugin>(&table, PLUGINS, new.identity)?
                .map(|plugin| complete(new.identity, plugin, &grants))
                .transpose()?;
            if let Some(old) = &replaced
                && new.version < old.version
                && downgrade == Downgrade::Refuse
            {
                return Err(StoreError::Older {
                    identity: new.identity.into(),
                    installed: old.version.clone(),
                    offered: new.version.clone(),
                });
            }
            let (previous, dropped) = succession(replaced.as_ref(), digest);
            let plugin = Plugin {
                identity: new.identity.into(),
                name: new.name.into(),
                version: new.version.clone(),
                digest,
                world: new.world,
                publisher: new.publisher.map(Into::into),
                previous,
                granted: GrantSet::default(),
            };
            put(&mut table, PLUGINS, new.identity, &plugin)?;
            let plugin = complete(new.identity, plugin, &grants)?;
            Ok((Installed { plugin, replaced }, dropped))
        })
    }

    /// The plugin of this identity.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn get(&self, identity: &str) -> Result<Option<Plugin>, StoreError> {
        let txn = self.0.tables().read()?;
        let grants = txn.open_table(GRANTS)?;
        get::<Plugin>(&txn.open_table(PLUGINS)?, PLUGINS, identity)?
            .map(|plugin| complete(identity, plugin, &grants))
            .transpose()
    }

    /// All plugins, by identity.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<Plugin>, StoreError> {
        let txn = self.0.tables().read()?;
        let grants = txn.open_table(GRANTS)?;
        list::<Plugin>(&txn.open_table(PLUGINS)?, PLUGINS)?
            .into_iter()
            .map(|(identity, plugin)| complete(&identity, plugin, &grants))
            .collect()
    }

    /// The component of this identity, checked against its digest.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when it is not installed, [`StoreError::MissingBlob`] and [`StoreError::CorruptBlob`].
    pub fn component(&self, identity: &str) -> Result<Bytes, StoreError> {
        let plugin = self.get(identity)?.ok_or_else(|| unknown(identity))?;
        self.0.blobs().read(&plugin.digest)
    }

    /// Removes it with its files. Its grants stay until they are revoked.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when it is not installed.
    pub fn remove(&self, identity: &str) -> Result<Plugin, StoreError> {
        self.0.blobs().release(|txn| {
            let mut table = txn.open_table(PLUGINS)?;
            let plugin: Plugin = get(&table, PLUGINS, identity)?.ok_or_else(|| unknown(identity))?;
            table.remove(identity)?;
            let plugin = complete(identity, plugin, &txn.open_table(GRANTS)?)?;
            let files = [plugin.digest]
                .into_iter()
                .chain(plugin.previous.as_ref().map(|previous| previous.digest));
            let files = files.collect();
            Ok((plugin, files))
        })
    }
}

/// The way back after `digest` takes over, and the file that is not needed any more.
fn succession(old: Option<&Plugin>, digest: Digest) -> (Option<Previous>, Vec<Digest>) {
    let Some(old) = old else {
        return (None, Vec::new());
    };
    if old.digest == digest {
        return (old.previous.clone(), Vec::new());
    }
    let previous = Previous {
        version: old.version.clone(),
        digest: old.digest,
    };
    (
        Some(previous),
        old.previous.iter().map(|previous| previous.digest).collect(),
    )
}

/// A record with what stands elsewhere: its key and its grants.
fn complete(
    identity: &str,
    plugin: Plugin,
    grants: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Plugin, StoreError> {
    Ok(Plugin {
        identity: identity.into(),
        granted: get(grants, GRANTS, identity)?.unwrap_or_default(),
        ..plugin
    })
}

fn unknown(identity: &str) -> StoreError {
    StoreError::Unknown {
        what: "plugin",
        name: identity.into(),
    }
}
