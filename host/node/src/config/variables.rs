//! Keys that are set by variables of the environment: `KARMAN_CEILING__MEMORY` is `memory` in `[ceiling]`.

use super::{ConfigError, NodeConfig};
use karman_types::{KeyError, from_toml, nearest};

/// All that `node.toml` may begin with.
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

/// What is no configuration of a node, but of the tool around it or of tests.
const OTHERS: [&str; 6] = ["state", "cache", "tools", "passphrase", "data", "key"];

/// A key that a variable sets.
pub(super) struct Override {
    variable: String,
    /// The tables that it stands in, and the key itself.
    path: Vec<String>,
    value: String,
}

/// What of the environment is configuration. Variables of the same prefix may be anybody's (Kubernetes makes some for a service of this name), so
/// of those that are none only what looks misspelt is refused.
pub(super) fn overrides(
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Vec<Override>, ConfigError> {
    let mut overrides = Vec::new();
    for (variable, value) in environment {
        let Some(name) = variable.strip_prefix("KARMAN_") else {
            continue;
        };
        let parts = name.split("__").map(|part| part.to_lowercase().replace('_', "-"));
        let path: Vec<String> = parts.collect();
        let first = path[0].as_str();
        if KEYS.contains(&first) {
            overrides.push(Override {
                variable,
                path,
                value,
            });
        } else if !OTHERS.contains(&first)
            && let Some(meant) = key_of_table(first).or_else(|| nearest(first, KEYS.into_iter()))
        {
            let rest = path[1..].iter().map(|part| format!("__{part}"));
            let meant = format!("{meant}{}", rest.collect::<String>()).replace('-', "_");
            return Err(ConfigError::Variable {
                problem: format!(
                    "no key of node.toml has this name; did you mean `KARMAN_{}`?",
                    meant.to_uppercase()
                ),
                name: variable,
            });
        }
    }
    Ok(overrides)
}

/// `mesh__listen` where a name with one underscore (`mesh-listen`) is that of a key in a table, or nearly.
fn key_of_table(name: &str) -> Option<String> {
    KEYS.into_iter().find_map(|table| {
        let key = name.strip_prefix(table)?.strip_prefix('-')?;
        Some(format!("{table}__{}", key_in(table, key)?))
    })
}

/// The key of this table that the text is, or nearly is. Nothing where it is like none, or where the names in the table are for the operator
/// to choose.
fn key_in(table: &str, key: &str) -> Option<String> {
    let read = |key: &str| {
        let keys = toml::Table::from_iter([(key.to_owned(), true.into())]);
        let tables = toml::Table::from_iter([(table.to_owned(), keys.into())]);
        let text = toml::to_string(&tables).expect("a table can be written");
        from_toml::<NodeConfig>(&text)
    };
    let Err(KeyError::Unknown { .. }) = read("?") else {
        return None;
    };
    match read(key) {
        Err(KeyError::Unknown { nearest, .. }) => nearest,
        _ => Some(key.to_owned()),
    }
}

pub(super) fn overlay(table: &mut toml::Table, overrides: &[Override]) {
    for Override { path, value, .. } in overrides {
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
        table.insert(last.clone(), read_value(value.clone()));
    }
}

/// The variable for which this error came: without them all is as it should be.
pub(super) fn blame(overrides: &[Override], error: &KeyError) -> ConfigError {
    let key = error.key().unwrap_or_default();
    let sets = |set: &&Override| {
        let path = set.path.join(".");
        // Of an unknown key its last part is told; of a value within an array, where that is.
        path == key || set.path.last().is_some_and(|last| last == key) || key.starts_with(&format!("{path}["))
    };
    let problem = match error {
        KeyError::Invalid { message, .. } => message.clone(),
        KeyError::Unknown {
            nearest: Some(nearest),
            ..
        } => format!("there is no such key; did you mean `{nearest}`?"),
        _ => "there is no such key".into(),
    };
    ConfigError::Variable {
        name: match overrides.iter().find(sets) {
            Some(set) => set.variable.clone(),
            None => "a variable KARMAN_…".into(),
        },
        problem,
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

    fn wrong(variable: &str, value: &str) -> (String, String) {
        let variables = [(variable.to_owned(), value.to_owned())];
        match NodeConfig::load(None, variables.into_iter()) {
            Err(ConfigError::Variable { name, problem }) => (name, problem),
            other => panic!("{variable}: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_value_is_told_with_its_variable() {
        for (variable, value, says) in [
            ("KARMAN_TIER", "fgo", "unknown variant `fgo`"),
            ("KARMAN_MESH__LISTEN", "abc", "invalid socket address"),
            ("KARMAN_MESH__LISTN", "127.0.0.1:0", "did you mean `listen`?"),
            ("KARMAN_TRUSTED_KEYS", "[1]", "invalid type"),
        ] {
            let (name, problem) = wrong(variable, value);
            assert_eq!(name, variable, "{problem}");
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn a_misspelt_variable_is_not_passed_over() {
        let (name, problem) = wrong("KARMAN_SIGNEDONLY", "true");
        assert_eq!(name, "KARMAN_SIGNEDONLY");
        assert!(
            problem.contains("did you mean `KARMAN_SIGNED_ONLY`?"),
            "{problem}"
        );
        let (_, problem) = wrong("KARMAN_CIELING__MEMORY", "1 MiB");
        assert!(
            problem.contains("did you mean `KARMAN_CEILING__MEMORY`?"),
            "{problem}"
        );
        for (variable, meant) in [
            ("KARMAN_MESH_LISTEN", "KARMAN_MESH__LISTEN"),
            ("KARMAN_MESH_FIND_NEIGHBOURS", "KARMAN_MESH__FIND_NEIGHBOURS"),
            ("KARMAN_CEILING_MEMRY", "KARMAN_CEILING__MEMORY"),
            ("KARMAN_TASKS_QUEUE", "KARMAN_TASKS__QUEUE"),
            ("KARMAN_STORE_QUOTAS__FRAMES", "KARMAN_STORE__QUOTAS__FRAMES"),
        ] {
            let (_, problem) = wrong(variable, "x");
            assert!(problem.contains(&format!("did you mean `{meant}`?")), "{problem}");
        }
        for others in OTHERS.map(str::to_uppercase).iter().map(String::as_str).chain([
            "SERVICE_HOST",
            "SERVICE_PORT",
            "PORT",
            "PORT_8080_TCP_ADDR",
        ]) {
            let variables = [(format!("KARMAN_{others}"), "x".to_owned())];
            assert!(NodeConfig::load(None, variables.into_iter()).is_ok(), "{others}");
        }
    }

    #[test]
    fn what_others_say_of_a_service_named_like_a_table_is_passed_over() {
        for table in KEYS {
            for service in ["SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_8080_TCP_ADDR"] {
                let name = format!("KARMAN_{}_{service}", table.replace('-', "_").to_uppercase());
                let variables = [(name.clone(), "x".to_owned())];
                let read = NodeConfig::load(None, variables.into_iter());
                assert!(read.is_ok(), "{name}");
            }
        }
    }
}
