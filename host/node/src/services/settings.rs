use crate::home::Home;
use karman_engine::capability::config::Settings;
use karman_types::TaskError;
use std::collections::BTreeMap;

/// Configuration from `node.toml`, secrets from the store.
pub(crate) struct NodeSettings {
    pub(crate) home: Home,
    pub(crate) values: BTreeMap<String, String>,
}

impl Settings for NodeSettings {
    fn config(&self, key: &str) -> Result<Option<String>, TaskError> {
        Ok(self.values.get(key).cloned())
    }

    fn keys(&self) -> Result<Vec<String>, TaskError> {
        Ok(self.values.keys().cloned().collect())
    }

    fn secret(&self, name: &str) -> Result<Option<String>, TaskError> {
        let store = self.home.store()?;
        let value = store.secrets().get(name)?;
        value
            .map(|value| {
                let text = value.expose_str().map(str::to_owned);
                text.ok_or_else(|| TaskError::invalid(format!("secret `{name}` is not text")))
            })
            .transpose()
    }
}
