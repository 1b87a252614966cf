//! `wasi:config/store`: configuration under `config:KEY`, secrets under `secret:NAME`.

use super::bindings::host::wasi::config::store::{Error, Host as Store};
use crate::host::Host;
use karman_types::{Grant, TaskError};

/// The source of configuration and secrets.
pub trait Settings: Send + Sync {
    /// The value of a configuration key.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn config(&self, key: &str) -> Result<Option<String>, TaskError>;

    /// Every configuration key.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn keys(&self) -> Result<Vec<String>, TaskError>;

    /// The value of a secret.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn secret(&self, name: &str) -> Result<Option<String>, TaskError>;
}

impl Store for Host {
    /// `secret:NAME` names a secret, anything else a configuration key. What is not granted looks as if it were not
    /// there.
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        let Some(settings) = &self.services.settings else {
            return Ok(Ok(None));
        };
        let value = match key.strip_prefix("secret:") {
            Some(name) if self.plugin.grants.allows(&Grant::Secret(name.into())) => settings.secret(name),
            None if self.plugin.grants.allows(&Grant::Config(key.clone())) => settings.config(&key),
            _ => Ok(None),
        };
        Ok(value.map_err(|error| Error::Upstream(error.message)))
    }

    async fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, Error>> {
        let Some(settings) = &self.services.settings else {
            return Ok(Ok(Vec::new()));
        };
        let granted = |key: &String| self.plugin.grants.allows(&Grant::Config(key.clone()));
        let pairs = settings.keys().and_then(|keys| {
            keys.into_iter()
                .filter(granted)
                .filter_map(|key| settings.config(&key).map(|value| Some((key, value?))).transpose())
                .collect()
        });
        Ok(pairs.map_err(|error| Error::Upstream(error.message)))
    }
}
