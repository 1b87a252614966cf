use crate::RegistryError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// By what right a registry is asked.
#[derive(Clone, Default, Eq, PartialEq)]
pub enum Auth {
    /// Without credentials.
    Anonymous,
    /// A name and a password or access token.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that the registry itself gave out.
    Bearer(String),
    /// What `docker login` or `podman login` left in `$DOCKER_CONFIG/config.json`, or else `~/.docker/config.json`;
    /// anonymous where that has nothing for the registry. Credential helpers are not run.
    #[default]
    Docker,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Basic { user, .. } => write!(f, "Basic({user})"),
            Self::Bearer(_) => f.write_str("Bearer"),
            Self::Docker => f.write_str("Docker"),
        }
    }
}

impl Auth {
    /// The credentials for one registry in this file of Docker's; anonymous where it has none.
    ///
    /// # Errors
    /// [`RegistryError::Config`] when there is a file and it cannot be read.
    pub fn from_docker_config(path: &Path, registry: &str) -> Result<Self, RegistryError> {
        let error = |problem: String| RegistryError::Config {
            path: path.into(),
            problem,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Anonymous),
            Err(other) => return Err(error(other.to_string())),
        };
        let config: DockerConfig = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
        let entry = config
            .auths
            .iter()
            .find(|(key, _)| host(key) == registry)
            .or_else(|| {
                let hub = registry == "docker.io";
                config
                    .auths
                    .iter()
                    .find(|(key, _)| hub && host(key) == "index.docker.io")
            });
        match entry {
            Some((_, entry)) if !entry.auth.is_empty() => entry.basic().ok_or_else(|| {
                error(format!(
                    "`auths.{registry}.auth` is not base64 of `user:password`"
                ))
            }),
            _ => {
                if config.helps(registry) {
                    tracing::warn!(
                        registry,
                        path = %path.display(),
                        "credential helpers are not run; going on without credentials"
                    );
                }
                Ok(Self::Anonymous)
            }
        }
    }

    /// What the client sends.
    pub(crate) fn resolve(&self, registry: &str) -> Result<RegistryAuth, RegistryError> {
        Ok(match self {
            Self::Anonymous => RegistryAuth::Anonymous,
            Self::Basic { user, password } => RegistryAuth::Basic(user.clone(), password.clone()),
            Self::Bearer(token) => RegistryAuth::Bearer(token.clone()),
            Self::Docker => match docker_config() {
                Some(path) => return Self::from_docker_config(&path, registry)?.resolve(registry),
                None => RegistryAuth::Anonymous,
            },
        })
    }
}

fn docker_config() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")));
    Some(folder?.join("config.json"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    creds_store: String,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

impl DockerConfig {
    fn helps(&self, registry: &str) -> bool {
        !self.creds_store.is_empty() || self.cred_helpers.contains_key(registry)
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
}

impl Entry {
    fn basic(&self) -> Option<Auth> {
        let text = String::from_utf8(STANDARD.decode(&self.auth).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(Auth::Basic {
            user: user.into(),
            password: password.into(),
        })
    }
}

/// `https://index.docker.io/v1/` is kept for `index.docker.io`.
fn host(key: &str) -> &str {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    key.split('/').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, registry: &str) -> Result<Auth, RegistryError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        Auth::from_docker_config(&path, registry)
    }

    #[test]
    fn dockers_file_is_read() {
        let text = r#"{"auths": {
            "localhost:5000": {"auth": "YWRhOnNlY3JldDox"},
            "https://index.docker.io/v1/": {"auth": "YWRhOnNlY3JldDox"},
            "ghcr.io": {}
        }, "credsStore": "desktop"}"#;
        let ada = Auth::Basic {
            user: "ada".into(),
            password: "secret:1".into(),
        };
        assert_eq!(read(text, "localhost:5000").unwrap(), ada);
        assert_eq!(read(text, "docker.io").unwrap(), ada);
        assert_eq!(read(text, "ghcr.io").unwrap(), Auth::Anonymous);
        assert_eq!(read(text, "quay.io").unwrap(), Auth::Anonymous);
        assert!(!format!("{ada:?}").contains("secret"));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_a_missing_one_is_not() {
        for text in [
            "{",
            r#"{"auths": {"a.b": {"auth": "@"}}}"#,
            r#"{"auths": {"a.b": {"auth": "YWRh"}}}"#,
        ] {
            assert!(
                matches!(read(text, "a.b"), Err(RegistryError::Config { .. })),
                "{text}"
            );
        }
        let missing = Auth::from_docker_config(Path::new("/no/such/file"), "a.b");
        assert_eq!(missing.unwrap(), Auth::Anonymous);
    }
}
