//! Keys that are set by variables of the environment: `KARMAN_CEILING__MEMORY` is `memory` in `[ceiling]`.

/// All that `node.toml` may begin with; other variables of the same prefix are not configuration.
const KEYS: [&str; 26] = [
    "tier",
    "listen",
    "hosts",
    "signed-only",
    "trusted-keys",
    "onnxruntime",
    "backend",
    "default-grants",
    "ceiling",
    "config",
    "foreign",
    "models",
    "endpoints",
    "batches",
    "compute",
    "power",
    "gpu",
    "mesh",
    "tasks",
    "decisions",
    "policies",
    "store",
    "keepers",
    "federated",
    "telemetry",
    "gateway",
];

pub(super) fn overrides(environment: impl Iterator<Item = (String, String)>) -> Vec<(Vec<String>, String)> {
    environment
        .filter_map(|(name, value)| {
            let path = name
                .strip_prefix("KARMAN_")?
                .split("__")
                .map(|part| part.to_lowercase().replace('_', "-"));
            let path: Vec<String> = path.collect();
            KEYS.contains(&path[0].as_str()).then_some((path, value))
        })
        .collect()
}

pub(super) fn overlay(table: &mut toml::Table, overrides: Vec<(Vec<String>, String)>) {
    for (path, value) in overrides {
        let (last, parents) = path.split_last().expect("a name has at least one part");
        let mut table = &mut *table;
        for parent in parents {
            let entry = table
                .entry(parent.clone())
                .or_insert_with(|| toml::Table::new().into());
            if !entry.is_table() {
                *entry = toml::Table::new().into();
            }
            table = entry.as_table_mut().expect("made a table above");
        }
        table.insert(last.clone(), read_value(value));
    }
}

/// `true`, `3`, `["a"]` as TOML has them; anything else is a text.
fn read_value(text: String) -> toml::Value {
    toml::from_str::<toml::Table>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or(toml::Value::String(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    #[test]
    fn every_key_of_the_file_has_a_variable() {
        let all = serde_json::to_value(NodeConfig::default()).unwrap();
        let keys = all.as_object().unwrap().keys();
        let without: Vec<_> = keys.filter(|key| !KEYS.contains(&key.as_str())).collect();
        assert!(without.is_empty(), "{without:?}");
        let variables = [("KARMAN_POWER__IDLE".to_owned(), "2.5".to_owned())];
        let config = NodeConfig::load(None, variables.into_iter()).unwrap();
        assert_eq!(config.power.idle, Some(2.5));
    }
}
