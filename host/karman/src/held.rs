//! What a node holds (grants, models, secrets): asked of the running node, or read in its store when none runs.

mod fed;

use crate::app::App;
use crate::control::{Control, escape};
use crate::error::Worded;
use bytes::Bytes;
use http::Method;
use karman_mesh::membership::UnixTime;
use karman_mesh::{InvitationStatus, Invitations, wall_clock};
use karman_node::{HeldModel, NodeConfig, NodeStatus, remove_stored_model, unfit_for_gpu};
use karman_package::{Package, ReadLimits};
use karman_store::{ModelInfo, Store, StoreError};
use karman_types::{Grant, GrantSet, TaskError};

/// The node's belongings.
pub(crate) enum Held {
    /// Through the node that runs.
    Node(Control),
    /// In its store.
    Store(Store),
}

/// A plugin that is installed.
pub(crate) struct Installed {
    pub(crate) name: String,
    pub(crate) identity: String,
}

impl Held {
    /// # Errors
    /// `unavailable` when another process has the store, `internal` when it is damaged.
    pub(crate) fn open(app: &App) -> Result<Self, TaskError> {
        match Control::of_running(app)? {
            Some(control) => Ok(Self::Node(control)),
            None => app.home().store().map(Self::Store).map_err(Worded::worded),
        }
    }

    /// The same where a node ever kept anything; a question does not make a store.
    ///
    /// # Errors
    /// Those of [`Held::open`]; `denied` where another user's folder hides that.
    pub(crate) fn if_any(app: &App) -> Result<Option<Self>, TaskError> {
        let database = app.places.state.join("state.redb");
        match database.try_exists() {
            Ok(true) => Self::open(app).map(Some),
            Ok(false) => Ok(None),
            Err(source) => Err(StoreError::Io {
                path: database,
                source,
            }
            .worded()),
        }
    }

    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn installed(&self) -> Result<Vec<Installed>, TaskError> {
        Ok(match self {
            Self::Node(control) => {
                let status: NodeStatus = control.get("/status")?;
                let of = |plugin: karman_node::PluginStatus| Installed {
                    name: plugin.name,
                    identity: plugin.identity,
                };
                status.plugins.into_iter().map(of).collect()
            }
            Self::Store(store) => {
                let plugins = store.plugins().list().map_err(Worded::worded)?;
                let of = |plugin: karman_store::Plugin| Installed {
                    name: plugin.name,
                    identity: plugin.identity,
                };
                plugins.into_iter().map(of).collect()
            }
        })
    }

    /// What an installed plugin has a use for: of a running node only what of it is allowed.
    ///
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn used(&self, identity: &str) -> Result<Option<GrantSet>, TaskError> {
        match self {
            Self::Node(control) => {
                let status: NodeStatus = control.get("/status")?;
                let mut plugins = status.plugins.into_iter();
                let serving = plugins.find(|plugin| plugin.identity == identity);
                Ok(serving.map(|plugin| plugin.granted))
            }
            Self::Store(store) => {
                let file = store.plugins().component(identity).map_err(Worded::worded)?;
                let package = Package::read(&file, &ReadLimits::default()).map_err(Worded::worded)?;
                Ok(used_by(&package))
            }
        }
    }

    /// What the operator allows to this identity.
    ///
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn allowed(&self, identity: &str) -> Result<GrantSet, TaskError> {
        match self {
            Self::Node(control) => control.get(&format!("/grants?identity={}", escape(identity))),
            Self::Store(store) => store.grants().get(identity).map_err(Worded::worded),
        }
    }

    /// Allows or revokes; answers all that is allowed now.
    ///
    /// # Errors
    /// `invalid` when a wider grant still allows what is revoked; what the node or the disk says.
    pub(crate) fn allow(
        &self,
        identity: &str,
        grants: &[Grant],
        revoke: bool,
    ) -> Result<GrantSet, TaskError> {
        match self {
            Self::Node(control) => {
                let method = if revoke { Method::DELETE } else { Method::POST };
                let path = format!("/grants?identity={}", escape(identity));
                control
                    .order(method, &path, json(&grants)?)
                    .map_err(Worded::worded)
            }
            Self::Store(store) if revoke => store.grants().revoke(identity, grants).map_err(Worded::worded),
            Self::Store(store) => store.grants().allow(identity, grants).map_err(Worded::worded),
        }
    }

    /// The invitations that were made here, the last first.
    ///
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn invitations(&self) -> Result<Vec<InvitationStatus>, TaskError> {
        match self {
            Self::Node(control) => control.get("/mesh/invitations"),
            Self::Store(store) => Invitations::of(store).list(clock()).map_err(Worded::worded),
        }
    }

    /// Takes an invitation back.
    ///
    /// # Errors
    /// `unavailable` where none has this id, `invalid` where it cannot be taken back; what the node or the disk says.
    pub(crate) fn withdraw(&self, id: &str) -> Result<InvitationStatus, TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/mesh/invitations/{}", escape(id));
                control.order(Method::DELETE, &path, Bytes::new())
            }
            Self::Store(store) => Ok(Invitations::of(store).withdraw(id, clock())?),
        }
    }

    /// By this configuration those are noted that cannot run on its GPU, where no node runs that knows.
    ///
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn models(&self, config: &NodeConfig) -> Result<Vec<HeldModel>, TaskError> {
        match self {
            Self::Node(control) => control.get("/models"),
            Self::Store(store) => {
                let unfit = unfit_for_gpu(store, &config.gpu, &config.models)?;
                let models = store.models().list().map_err(Worded::worded)?;
                let of = |model: karman_store::Model| HeldModel {
                    refused: unfit.get(&(model.name.clone(), model.digest)).cloned(),
                    ..model.into()
                };
                Ok(models.into_iter().map(of).collect())
            }
        }
    }

    /// # Errors
    /// `invalid` for a name that is none, `limit` for too many bytes; what the node or the disk says.
    pub(crate) fn add_model(
        &self,
        name: &str,
        bytes: Vec<u8>,
        info: ModelInfo,
    ) -> Result<HeldModel, TaskError> {
        match self {
            Self::Node(control) => {
                let info = String::from_utf8_lossy(&json(&info)?).into_owned();
                let path = format!("/models/{}?info={}", escape(name), escape(&info));
                control
                    .order(Method::POST, &path, bytes.into())
                    .map_err(Worded::worded)
            }
            Self::Store(store) => {
                let model = store
                    .models()
                    .add(name, &bytes, None, info)
                    .map_err(Worded::worded)?;
                // The name is the record's key, not part of it.
                Ok(HeldModel {
                    name: name.to_owned(),
                    ..model.into()
                })
            }
        }
    }

    /// # Errors
    /// `unavailable` where there is none of this name; what the node or the disk says.
    pub(crate) fn remove_model(&self, name: &str) -> Result<HeldModel, TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/models/{}", escape(name));
                control.order(Method::DELETE, &path, Bytes::new())
            }
            Self::Store(store) => remove_stored_model(store, name).map(HeldModel::from),
        }
    }

    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn secrets(&self) -> Result<Vec<String>, TaskError> {
        match self {
            Self::Node(control) => control.get("/secrets"),
            Self::Store(store) => store.secrets().list().map_err(Worded::worded),
        }
    }

    /// # Errors
    /// `invalid` for a name that is none, `limit` for too many bytes; what the node or the disk says.
    pub(crate) fn set_secret(&self, name: &str, value: Vec<u8>) -> Result<(), TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/secrets/{}", escape(name));
                control
                    .order(Method::POST, &path, value.into())
                    .map_err(Worded::worded)
            }
            Self::Store(store) => store.secrets().set(name, &value).map_err(Worded::worded),
        }
    }

    /// Removes a secret, and says whether it was there.
    ///
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn remove_secret(&self, name: &str) -> Result<bool, TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/secrets/{}", escape(name));
                control.order(Method::DELETE, &path, Bytes::new())
            }
            Self::Store(store) => store.secrets().remove(name).map_err(Worded::worded),
        }
    }
}

/// What the manifest of a plugin asks for, needed or not.
pub(crate) fn used_by(package: &Package) -> Option<GrantSet> {
    let manifest = package.manifest.as_ref()?;
    Some(manifest.permissions().cloned().collect())
}

/// What the clock of this machine shows.
pub(crate) fn clock() -> UnixTime {
    UnixTime::from_seconds(wall_clock().as_secs())
}

fn json(value: &impl serde::Serialize) -> Result<Bytes, TaskError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| TaskError::internal(error.to_string()))
}
