use crate::{Reference, ReferenceError, RegistryError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where packages by name lie, by the file that `wkg` keeps: `$XDG_CONFIG_HOME/wasm-pkg/config.toml`.
///
/// Read are `default_registry`, `namespace_registries` and `package_registry_overrides`, with the `metadata` that stands
/// in the file. Metadata that a registry serves under `/.well-known/wasm-pkg` is not fetched.
///
/// ```
/// use karman_registry::WkgConfig;
///
/// let config = WkgConfig::from_toml(r#"
///     default_registry = "registry.example.org"
///     [namespace_registries]
///     acme = { registry = "acme.example", metadata = { oci = { registry = "ghcr.io", namespacePrefix = "plugins/" } } }
/// "#).unwrap();
/// assert_eq!(config.resolve("acme:foo@0.1.0")?.to_string(), "ghcr.io/plugins/acme/foo:0.1.0");
/// assert_eq!(config.resolve("other:foo@0.1.0")?.to_string(), "registry.example.org/other/foo:0.1.0");
/// assert_eq!(config.resolve("quay.io/a/b:1")?.to_string(), "quay.io/a/b:1");
/// # Ok::<(), karman_registry::ReferenceError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WkgConfig {
    default_registry: Option<String>,
    namespace_registries: BTreeMap<String, Mapping>,
    package_registry_overrides: BTreeMap<String, Mapping>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Mapping {
    Registry(String),
    Custom {
        registry: String,
        #[serde(default)]
        metadata: Metadata,
    },
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    oci: Oci,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Oci {
    registry: Option<String>,
    namespace_prefix: String,
}

impl WkgConfig {
    /// Reads the user's file; empty where there is none.
    ///
    /// # Errors
    /// [`RegistryError::Config`] when there is a file and it cannot be read.
    pub fn load() -> Result<Self, RegistryError> {
        let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
        match folder {
            Some(folder) => Self::read(&folder.join("wasm-pkg/config.toml")),
            None => Ok(Self::default()),
        }
    }

    /// Reads this file; empty where there is none.
    ///
    /// # Errors
    /// [`RegistryError::Config`] when there is a file and it cannot be read.
    pub fn read(path: &Path) -> Result<Self, RegistryError> {
        let error = |problem: String| RegistryError::Config {
            path: path.into(),
            problem,
        };
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_toml(&text).map_err(error),
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(other) => Err(error(other.to_string())),
        }
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// What is wrong with it, where it is no such file.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    /// The reference that this text is, or the one that it names as a package: `acme:foo@0.1.0`.
    ///
    /// # Errors
    /// The text is neither, the package has no version, or no registry is configured for it.
    pub fn resolve(&self, text: &str) -> Result<Reference, ReferenceError> {
        let error = |field, problem: &str| ReferenceError::new(text, field, problem);
        let Some((namespace, rest)) = text.split_once(':').filter(|_| !text.contains('/')) else {
            return text.parse();
        };
        let (name, version) = rest
            .split_once('@')
            .ok_or_else(|| error("version", "is missing; write it out, as in `acme:foo@0.1.0`"))?;
        let is_name = |name: &str| {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            !name.is_empty() && name.bytes().all(plain)
        };
        if !is_name(namespace) || !is_name(name) {
            return Err(error(
                "package",
                "is not lower-case letters, digits and hyphens, as in `acme:foo`",
            ));
        }
        let mapping = self
            .package_registry_overrides
            .get(&format!("{namespace}:{name}"))
            .or_else(|| self.namespace_registries.get(namespace));
        let oci = match mapping {
            Some(Mapping::Registry(registry)) => Oci::plain(registry),
            Some(Mapping::Custom { registry, metadata }) => metadata.oci.clone().or_registry(registry),
            None => match &self.default_registry {
                Some(registry) => Oci::plain(registry),
                None => {
                    return Err(error(
                        "registry",
                        "is not configured; add the namespace to wasm-pkg/config.toml with `wkg config`, or write a \
                         reference such as `ghcr.io/acme/foo:0.1.0`",
                    ));
                }
            },
        };
        let registry = oci.registry.unwrap_or_default();
        format!("{registry}/{}{namespace}/{name}:{version}", oci.namespace_prefix).parse()
    }
}

impl Oci {
    fn plain(registry: &str) -> Self {
        Self::default().or_registry(registry)
    }

    fn or_registry(mut self, registry: &str) -> Self {
        self.registry.get_or_insert_with(|| registry.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_nearer_than_a_namespace() {
        let config = WkgConfig::from_toml(
            r#"
            [namespace_registries]
            acme = "acme.example"
            [package_registry_overrides]
            "acme:bar" = "bar.example:5000"
            [registry."acme.example"]
            type = "oci"
        "#,
        )
        .unwrap();
        let resolve = |text| config.resolve(text).map(|reference| reference.to_string());
        assert_eq!(resolve("acme:foo@1.0.0").unwrap(), "acme.example/acme/foo:1.0.0");
        assert_eq!(
            resolve("acme:bar@1.0.0").unwrap(),
            "bar.example:5000/acme/bar:1.0.0"
        );
        for (text, field) in [
            ("acme:foo", "version"),
            ("Acme:foo@1.0.0", "package"),
            ("other:foo@1.0.0", "registry"),
            ("acme:foo@a b", "tag"),
            ("foo", "registry"),
        ] {
            assert_eq!(config.resolve(text).unwrap_err().field, field, "{text}");
        }
    }

    #[test]
    fn a_damaged_file_names_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(WkgConfig::read(&path).is_ok());
        std::fs::write(&path, "default_registry = 1").unwrap();
        let error = WkgConfig::read(&path).unwrap_err().to_string();
        assert!(error.contains("config.toml"), "{error}");
    }
}
