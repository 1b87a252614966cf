//! The plugins that a node holds: what is in its store, loaded and ready under its name.

mod kept;
mod succession;
#[cfg(test)]
mod tests;

use crate::runtime::Runtime;
use crate::services::{blocking, to_the_end};
use bytes::Bytes;
use karman_engine::{Plugin, Slot, StateMoved};
use karman_package::{Package, ReadLimits};
use karman_store::Store;
use karman_types::{ErrorKind, Grant, GrantSet, TaskError};
use parking_lot::RwLock;
use semver::Version;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A plugin's file may have this many bytes.
pub const MOST_PLUGIN_BYTES: usize = 64 << 20;

/// The plugins of a node by name.
pub struct Plugins {
    runtime: OnceLock<Runtime>,
    slots: RwLock<BTreeMap<String, Arc<Slot>>>,
    changing: tokio::sync::Mutex<()>,
}

/// What a deployment may replace and grant.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct DeployOptions {
    /// Grants what the plugin newly asks for instead of waiting for the operator.
    pub grant_asked: bool,
    /// Lets an older version replace a newer one.
    pub downgrade: bool,
    /// Lets a plugin of another identity take over the name.
    pub replace: bool,
}

/// The result of a deployment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Deployed {
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The digest of its file.
    pub id: String,
    /// The version that it replaced.
    pub replaced: Option<Version>,
    /// What it asks for and holds.
    pub granted: GrantSet,
    /// What it asks for and does not hold.
    pub refused: GrantSet,
    /// Bytes of state that moved over from the version before, for a warm plugin.
    pub state_moved: Option<usize>,
    /// Whether state of the version before was dropped.
    pub state_dropped: bool,
}

/// One plugin as `karman top`, `/plugins` and `inspect` list it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PluginStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The digest of its file.
    pub id: String,
    /// What its grants belong to.
    pub identity: String,
    /// The interface that it exports.
    pub world: String,
    /// What it holds.
    pub granted: GrantSet,
    /// Calls that ended.
    pub calls: u64,
    /// Calls under way.
    pub running: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// The most bytes of memory that one instance used.
    pub memory_peak: u64,
}

impl Plugins {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            runtime: OnceLock::new(),
            slots: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// Gives the table its runtime, whose `invoke` already points here, and loads what the store holds. A plugin that no
    /// longer loads is logged and left out; the node runs without it.
    pub(crate) async fn start(&self, runtime: Runtime) -> Result<(), TaskError> {
        let _ = self.runtime.set(runtime);
        let held = self.stored(|store| store.plugins().list()).await?;
        for record in held {
            let loaded = match self.component(record.identity).await {
                Ok(bytes) => self.load(bytes, record.name.clone(), record.granted).await,
                Err(error) => Err(error),
            };
            let started = match loaded {
                Ok(plugin) => self.put(&record.name, plugin).await.map(|_| ()),
                Err(error) => Err(error),
            };
            if let Err(error) = started {
                tracing::error!(plugin = record.name, %error, "a plugin of this node does not start");
            }
        }
        Ok(())
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime
            .get()
            .expect("start is called before the table is shared")
    }

    /// The plugin that serves under this name, or the first that does what is named so.
    ///
    /// # Errors
    /// `unavailable` when there is none.
    pub fn find(&self, name: &str) -> Result<Arc<Slot>, TaskError> {
        let slots = self.slots.read();
        let does = |slot: &&Arc<Slot>| {
            let known = slot.current().manifest().capability_name();
            let rest = known.as_deref().and_then(|known| known.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // No plugin has a name with a slash in it.
        let by_capability = || name.contains('/').then(|| slots.values().find(does))?;
        slots.get(name).or_else(by_capability).cloned().ok_or_else(|| {
            TaskError::unavailable(format!("this node has no task `{name}`"))
                .with_field("task")
                .with_hint("karman deploy FILE")
        })
    }

    /// The plugin of just this name: who changes one does not mean another that does the same.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<Slot>, TaskError> {
        self.slots.read().get(name).cloned().ok_or_else(|| {
            TaskError::unavailable(format!("this node has no plugin `{name}`"))
                .with_field("name")
                .with_hint("`karman top` shows those that it has")
        })
    }

    /// Every plugin with what it did.
    pub fn list(&self) -> Vec<PluginStatus> {
        self.slots
            .read()
            .values()
            .map(|slot| status(&slot.current()))
            .collect()
    }

    /// Every plugin that serves now.
    pub fn all(&self) -> Vec<Arc<Plugin>> {
        self.slots.read().values().map(|slot| slot.current()).collect()
    }

    /// Calls of them that are under way.
    pub(crate) fn running(&self) -> u32 {
        let running = self.all().into_iter().map(|plugin| plugin.stats().running());
        running.sum::<u64>().min(u32::MAX.into()) as u32
    }

    /// The name under which this component would serve: its own, or `name` where it brings no manifest.
    ///
    /// # Errors
    /// Those of [`karman_engine::LoadError`] for what is no component, or has a manifest that does not read.
    pub fn name_of(&self, component: &[u8], name: &str) -> Result<String, TaskError> {
        let package =
            Package::read(component, &ReadLimits::default()).map_err(karman_engine::LoadError::from)?;
        let foreign = || self.runtime().config().foreign(name, package.world);
        Ok(package.manifest.unwrap_or_else(foreign).name)
    }

    /// Puts a plugin into service: verified, checked and, once it serves, kept across restarts. What it newly asks for waits
    /// for the operator's word; an older version, or another publisher under the same name, needs the option that says so. What
    /// has begun goes on to its end, also where nobody waits for it any more.
    ///
    /// # Errors
    /// `denied` for what needs the operator's word, those of [`karman_engine::LoadError`] for what does not load; the version
    /// before goes on serving.
    pub async fn deploy(
        self: &Arc<Self>,
        bytes: Vec<u8>,
        name: &str,
        options: DeployOptions,
    ) -> Result<Deployed, TaskError> {
        let (plugins, name) = (self.clone(), name.to_owned());
        to_the_end(async move { plugins.deploy_now(bytes.into(), &name, options).await }).await
    }

    async fn deploy_now(
        &self,
        bytes: Bytes,
        name: &str,
        options: DeployOptions,
    ) -> Result<Deployed, TaskError> {
        let _one_at_a_time = self.changing.lock().await;
        let package =
            Package::read(&bytes, &ReadLimits::default()).map_err(karman_engine::LoadError::from)?;
        let foreign = || self.runtime().config().foreign(name, package.world);
        let manifest = package.manifest.clone().unwrap_or_else(foreign);
        let (name, identity) = (manifest.name.clone(), package.identity());
        let before = self.slots.read().get(&name).map(|slot| slot.current());
        let key = identity.to_string();
        let of_plugin = key.clone();
        let allowed = self.stored(move |store| store.grants().get(&of_plugin)).await?;
        let asked: GrantSet = manifest.asks.iter().cloned().collect();
        let held = self.runtime().allowed(&name, &allowed);
        let missing: Vec<Grant> = asked.beyond(&held).cloned().collect();
        let served = before
            .as_ref()
            .map(|before| (before.identity(), before.manifest().version.clone()));
        let served = served.as_ref().map(|(identity, version)| (identity, version));
        succession::check(&name, served, (&identity, &manifest.version), &missing, options)?;
        self.may_be_granted(missing.clone()).await?;
        let plugin = self.load(bytes.clone(), name.clone(), allowed).await?;
        let plugin = match missing.is_empty() {
            true => plugin,
            false => {
                let of_plugin = key.clone();
                let allowed = self.stored(move |store| store.grants().allow(&of_plugin, &missing));
                self.load(bytes.clone(), name.clone(), allowed.await?).await?
            }
        };
        let moved = self.put(&name, plugin.clone()).await?;
        let other = before.as_ref().map(|before| before.identity());
        let other = other.filter(|other| *other != identity);
        let kept = self.keep(&name, &manifest.version, package, bytes, other).await;
        if let Err(error) = kept {
            self.take_back(&name, before).await;
            return Err(error);
        }
        tracing::info!(plugin = name, version = %manifest.version, "deployed");
        Ok(Deployed {
            id: plugin.package().id.to_string(),
            version: manifest.version,
            replaced: before.map(|before| before.manifest().version.clone()),
            granted: plugin.grants().clone(),
            refused: asked.beyond(plugin.grants()).cloned().collect(),
            state_moved: if let StateMoved::Moved(bytes) = moved {
                Some(bytes)
            } else {
                None
            },
            state_dropped: moved == StateMoved::Dropped,
            name,
        })
    }

    /// Takes a plugin out of service; calls in flight finish.
    ///
    /// # Errors
    /// `unavailable` when there is none of that name.
    pub async fn undeploy(self: &Arc<Self>, name: &str) -> Result<(), TaskError> {
        let (plugins, name) = (self.clone(), name.to_owned());
        to_the_end(async move {
            let _one_at_a_time = plugins.changing.lock().await;
            let identity = plugins.named(&name)?.current().identity().to_string();
            plugins
                .stored(move |store| store.plugins().remove(&identity))
                .await?;
            plugins.slots.write().remove(&name);
            Ok(())
        })
        .await
    }

    /// Allows or revokes grants of a plugin. They bind from its next call on; what is revoked, whatever the plugin says to that.
    ///
    /// # Errors
    /// `unavailable` when there is no such plugin, `invalid` when a wider grant still allows what is revoked, `denied` for what no plugin
    /// may hold.
    pub async fn grant(
        self: &Arc<Self>,
        name: &str,
        grants: &[Grant],
        revoke: bool,
    ) -> Result<GrantSet, TaskError> {
        let (plugins, name, grants) = (self.clone(), name.to_owned(), grants.to_vec());
        to_the_end(async move {
            let _one_at_a_time = plugins.changing.lock().await;
            let identity = plugins.named(&name)?.current().identity().to_string();
            if !revoke {
                plugins.may_be_granted(grants.clone()).await?;
            }
            let of_plugin = identity.clone();
            let change = move |store: &Store| match revoke {
                true => store.grants().revoke(&of_plugin, &grants),
                false => store.grants().allow(&of_plugin, &grants),
            };
            let allowed = plugins.stored(change).await?;
            let loading = async {
                let bytes = plugins.component(identity).await?;
                plugins.load(bytes, name.clone(), allowed).await
            };
            let loaded = loading.await;
            let plugin = match revoke {
                true => plugins.narrow(&name, loaded).await?,
                false => {
                    let plugin = loaded?;
                    plugins.put(&name, plugin.clone()).await?;
                    plugin
                }
            };
            Ok(plugin.grants().clone())
        })
        .await
    }

    /// Asked before they are written down: what is on the disk is granted.
    pub(crate) async fn may_be_granted(&self, grants: Vec<Grant>) -> Result<(), TaskError> {
        let home = self.runtime().home().clone();
        blocking(move || home.must_not_be_granted(&grants)).await
    }

    /// Lets a plugin serve that may do less than the one before. One that cannot be loaded so does not serve at all.
    async fn narrow(
        &self,
        name: &str,
        loaded: Result<Arc<Plugin>, TaskError>,
    ) -> Result<Arc<Plugin>, TaskError> {
        match loaded {
            Ok(plugin) => {
                let context = self.runtime().context(None);
                self.named(name)?.narrow(plugin.clone(), context).await;
                Ok(plugin)
            }
            Err(error) => {
                self.slots.write().remove(name);
                Err(error.with_hint("it serves no more until it is deployed again"))
            }
        }
    }

    async fn load(&self, bytes: Bytes, name: String, allowed: GrantSet) -> Result<Arc<Plugin>, TaskError> {
        let runtime = self.runtime().clone();
        blocking(move || runtime.load(&bytes, &name, &allowed)).await
    }

    /// Lets this version serve; a check that fails leaves the one before in place.
    async fn put(&self, name: &str, plugin: Arc<Plugin>) -> Result<StateMoved, TaskError> {
        let context = self.runtime().context(None);
        let slot = self.slots.read().get(name).cloned();
        if let Some(slot) = slot {
            return Ok(slot.upgrade(plugin, context).await?);
        }
        let slot = Arc::new(Slot::new(plugin, context).await?);
        self.slots.write().insert(name.to_owned(), slot);
        Ok(StateMoved::None)
    }

    /// A version that cannot be kept does not serve either: after the next start it would be gone.
    async fn take_back(&self, name: &str, before: Option<Arc<Plugin>>) {
        let Some(before) = before else {
            self.slots.write().remove(name);
            return;
        };
        if let Err(error) = self.put(name, before).await {
            tracing::error!(plugin = name, %error, "the version before does not take over again: the new one serves until the node stops");
        }
    }
}

fn status(plugin: &Plugin) -> PluginStatus {
    let stats = plugin.stats();
    PluginStatus {
        name: plugin.manifest().name.clone(),
        version: plugin.manifest().version.clone(),
        id: plugin.package().id.to_string(),
        identity: plugin.identity().to_string(),
        world: plugin.package().world.to_string(),
        granted: plugin.grants().clone(),
        calls: stats.calls(),
        running: stats.running(),
        errors: ErrorKind::ALL.iter().map(|kind| stats.errors(*kind)).sum(),
        memory_peak: stats.memory_peak(),
    }
}
