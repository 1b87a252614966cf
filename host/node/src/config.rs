mod batches;
mod compute;
mod endpoint;
mod federated;
mod gpu;
mod host_name;
mod orbits;
mod policies;
mod power;
mod telemetry;
mod variables;

pub use batches::BatchConfig;
pub(crate) use batches::batch_of;
pub use compute::ComputeProfile;
pub use endpoint::{EndpointConfig, EndpointUrl, EndpointUrlError};
pub use federated::FederatedConfig;
pub use gpu::{GpuChoice, GpuConfig, ModelDevice};
pub use host_name::{HostName, HostNameError};
pub use orbits::{GroundStation, Orbits};
pub(crate) use policies::AS_CALLS;
pub use policies::PoliciesConfig;
pub use power::StatedPower;
pub use telemetry::TelemetryConfig;

use crate::drive::KeepersConfig;
use karman_infer::{BackendName, BackendOptions, SearchPlaces, UseOnnxRuntime};
use karman_package::PublicKey;
use karman_types::{
    ByteSize, Grant, GrantSet, KeyError, Limits, Manifest, Tier, World, from_toml, serde_duration,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node's configuration: `node.toml`, each key of which can also be given as `KARMAN_KEY` (`KARMAN_CEILING__MEMORY` for
/// a key of a table).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NodeConfig {
    /// Where the node stands, until an invitation says so; the node with the root key stands here whatever it was before. Default: where
    /// it stood before, `edge` at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Where it answers HTTP: tasks and HTTP plugins. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Names that lead here, besides those of this machine: `node.example`. Where one is named, and where it listens for this machine
    /// alone, callers have to ask for one of them, or for an address. A gateway goes by `hosts` of `[gateway]`. Default: none.
    pub hosts: Vec<HostName>,
    /// Takes only plugins signed by one of `trusted-keys`. Default false.
    pub signed_only: bool,
    /// Publishers that the operator trusts.
    pub trusted_keys: Vec<PublicKey>,
    /// The ONNX Runtime library; searched in the usual places when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onnxruntime: Option<PathBuf>,
    /// The back-end for models: `auto`, `onnxruntime` or `tract`. Default `auto`: ONNX Runtime where it is found.
    pub backend: BackendChoice,
    /// What every plugin may have if it asks. Default: the models of this node, `nn:*`.
    pub default_grants: Vec<Grant>,
    /// The most that a plugin may ask for.
    pub ceiling: Ceiling,
    /// Values for `wasi:config`.
    pub config: BTreeMap<String, String>,
    /// Manifests of foreign components, by the name under which they are deployed.
    pub foreign: BTreeMap<String, Foreign>,
    /// Models on servers of others that may do tasks of this node, by the names under which they are measured and chosen.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// What a model of its own may ask of this machine. One that a plugin brings along is held to the defaults.
    pub models: karman_infer::ModelLimits,
    /// The models of its own whose requests are run together, by name or by pattern (`flood-*`). Default: none.
    pub batches: BTreeMap<String, BatchConfig>,
    /// How fast its models run, for rehearsals.
    pub compute: ComputeProfile,
    /// What it draws, where no counter of the kernel says so.
    pub power: StatedPower,
    /// The GPU that plugins get.
    pub gpu: GpuConfig,
    /// How it takes part in its mesh.
    pub mesh: MeshConfig,
    /// What it holds of accepted tasks, and how long.
    pub tasks: karman_tasks::Limits,
    /// Entries of the log of decisions that it holds, by which `karman why` and `karman replay` go. Default 20,000.
    pub decisions: usize,
    /// By which policies it decides.
    pub policies: PoliciesConfig,
    /// How much its folder takes.
    pub store: karman_store::StoreLimits,
    /// How it deals with the keepers of kept tasks, and what it keeps where it is one.
    pub keepers: KeepersConfig,
    /// What it gives to federated runs.
    pub federated: FederatedConfig,
    /// Where its traces and logs go.
    pub telemetry: TelemetryConfig,
    /// What its gateway lets in, where it is one. The gateway reads it.
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    pub gateway: toml::Table,
}

/// How a node takes part in its mesh.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MeshConfig {
    /// Where it listens for other nodes, UDP and TCP. Default `0.0.0.0:7117`.
    pub listen: SocketAddr,
    /// Addresses of nodes by which it comes into the mesh, besides those of its invitation.
    pub entrances: Vec<karman_mesh::Multiaddr>,
    /// Whether it looks for members on its own network (mDNS). Default true.
    pub find_neighbours: bool,
    /// A file that says when which nodes can reach each other; read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contacts: Option<PathBuf>,
    /// Orbits that contacts are computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orbits: Option<Orbits>,
}

impl MeshConfig {
    /// Whether it says when others are in reach.
    pub(crate) const fn plans_contacts(&self) -> bool {
        self.contacts.is_some() || self.orbits.is_some()
    }
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7117)),
            entrances: Vec::new(),
            find_neighbours: true,
            contacts: None,
            orbits: None,
        }
    }
}

/// Which back-end runs models.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// ONNX Runtime where its library is found, else tract.
    #[default]
    Auto,
    /// ONNX Runtime or nothing.
    OnnxRuntime,
    /// The built-in one.
    Tract,
}

impl BackendChoice {
    /// What is looked for, with the library that the operator named, if any; `program` tries it in a child first.
    pub fn options(self, onnxruntime: Option<&Path>, program: Option<PathBuf>) -> BackendOptions {
        let onnxruntime = match (self, onnxruntime) {
            (Self::Tract, _) => UseOnnxRuntime::Off,
            (_, Some(path)) => UseOnnxRuntime::At(path.to_owned()),
            (_, None) => UseOnnxRuntime::Find(SearchPlaces::from_env()),
        };
        BackendOptions {
            onnxruntime,
            probe: program,
            ..BackendOptions::default()
        }
    }

    /// The one that models are loaded with; nothing: the fastest that is there.
    pub const fn name(self) -> Option<BackendName> {
        match self {
            Self::Auto => None,
            Self::OnnxRuntime => Some(BackendName::OnnxRuntime),
            Self::Tract => Some(BackendName::Tract),
        }
    }
}

/// The most that a plugin may ask for; what is left out stays as it is here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Ceiling {
    /// The most for `memory` of `[limits]`. Default 1 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// The most for `time`. Default 300 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The most for `concurrency`. Default 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The most for `input`. Default 256 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<ByteSize>,
    /// The most for `output`. Default 256 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ByteSize>,
}

/// A duration in a configuration, written `200 ms`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Time(#[serde(with = "serde_duration")] pub Duration);

/// What a foreign component may do: it has no manifest to ask with.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Foreign {
    /// Its grants; what stands here is also allowed.
    pub grants: Vec<Grant>,
    /// What it may use.
    pub limits: Limits,
    /// Whether instances stay between calls.
    pub warm: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            tier: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            hosts: Vec::new(),
            signed_only: false,
            trusted_keys: Vec::new(),
            onnxruntime: None,
            backend: BackendChoice::default(),
            default_grants: vec![Grant::Model("*".into())],
            ceiling: Ceiling::default(),
            config: BTreeMap::new(),
            foreign: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            models: karman_infer::ModelLimits::default(),
            batches: BTreeMap::new(),
            compute: ComputeProfile::default(),
            power: StatedPower::default(),
            gpu: GpuConfig::default(),
            mesh: MeshConfig::default(),
            tasks: karman_tasks::Limits::default(),
            decisions: 20_000,
            policies: PoliciesConfig::default(),
            store: karman_store::StoreLimits::default(),
            keepers: KeepersConfig::default(),
            federated: FederatedConfig::default(),
            telemetry: TelemetryConfig::default(),
            gateway: toml::Table::new(),
        }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not say what it should.
    #[error("{path}: {source}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeyError,
    },
    /// A variable of the environment does not say what it should.
    #[error("{name}: {problem}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

impl NodeConfig {
    /// The file's configuration, or the default where there is no file, overlaid with variables of the environment.
    ///
    /// # Errors
    /// When the file cannot be read, or a key is unknown or has a wrong value.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = match file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
                path: path.into(),
                source,
            })?,
        };
        let key_error = |source| ConfigError::Key {
            path: file.unwrap_or_else(|| Path::new("node.toml")).into(),
            source,
        };
        let config: Self = from_toml(&text).map_err(key_error)?;
        let overrides = variables::overrides(environment)?;
        if overrides.is_empty() {
            return Ok(config);
        }
        let mut table: toml::Table = from_toml(&text).map_err(key_error)?;
        variables::overlay(&mut table, &overrides);
        let text = toml::to_string(&table).expect("a table that was read can be written");
        from_toml(&text).map_err(|error| variables::blame(&overrides, &error))
    }

    /// The most that a plugin may ask for on this node.
    pub fn ceiling(&self) -> Limits {
        let most = Limits::ceiling();
        let given = &self.ceiling;
        Limits {
            memory: given.memory.unwrap_or(most.memory),
            time: given.time.map_or(most.time, |time| time.0),
            concurrency: given.concurrency.unwrap_or(most.concurrency),
            input: given.input.unwrap_or(most.input),
            output: given.output.unwrap_or(most.output),
            ..most
        }
    }

    /// What every plugin may have if it asks.
    pub fn default_grants(&self) -> GrantSet {
        self.default_grants.iter().cloned().collect()
    }

    /// What stands here for the foreign component of this name.
    pub(crate) fn foreign_entry(&self, name: &str) -> Option<&Foreign> {
        self.foreign.get(&Manifest::foreign(name, World::Task).name)
    }

    /// The manifest for a component of this name that brings none.
    pub fn foreign(&self, name: &str, world: World) -> Manifest {
        let mut manifest = Manifest::foreign(name, world);
        if let Some(foreign) = self.foreign_entry(name) {
            manifest.asks = foreign.grants.clone();
            manifest.limits = foreign.limits.clone();
            manifest.warm = foreign.warm;
        }
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, variables: &[(&str, &str)]) -> Result<NodeConfig, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        NodeConfig::load(
            Some(&path),
            variables
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
        )
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(load("", &[]).unwrap().listen.port(), 8080);
    }

    #[test]
    fn variables_win_over_the_file() {
        let config = load(
            "tier = \"fog\"\nsigned-only = true\n[ceiling]\nmemory = \"1 MiB\"",
            &[
                ("KARMAN_TIER", "space"),
                ("KARMAN_CEILING__MEMORY", "2 MiB"),
                ("KARMAN_TOOLS", "/x"),
            ],
        )
        .unwrap();
        assert_eq!((config.tier, config.signed_only), (Some(Tier::Space), true));
        assert_eq!(config.ceiling().memory, ByteSize::mib(2));
    }

    #[test]
    fn what_the_store_takes_is_a_number_of_the_operator() {
        let text = "[store]\nbundles = \"16 KiB\"\nquotas = { frames = \"1 GiB\" }";
        let config = load(text, &[("KARMAN_STORE__BLOB", "3 MiB")]).unwrap();
        assert_eq!(config.store.bundles, ByteSize::kib(16));
        assert_eq!(config.store.blob, ByteSize::mib(3));
        assert_eq!(config.store.quota("frames"), ByteSize::gib(1));
        assert_eq!(config.store.quota("others"), ByteSize::mib(64));
    }

    #[test]
    fn what_rounds_take_is_a_number_of_the_operator() {
        let text = "[federated]\nround-disk = \"1 GiB\"\nkept = \"2 GiB\"\nneglect = \"20 s\"\n\
                    most-epsilon = 4.5\nrequire-local-privacy = true";
        let config = load(text, &[("KARMAN_FEDERATED__MEMORY", "3 MiB")]).unwrap();
        let federated = config.federated;
        assert_eq!(federated.round_disk, ByteSize::gib(1));
        assert_eq!(federated.kept, ByteSize::gib(2));
        assert_eq!(federated.neglect, Duration::from_secs(20));
        assert_eq!(federated.memory, ByteSize::mib(3));
        assert_eq!(federated.disk, FederatedConfig::default().disk);
        assert_eq!(
            (federated.most_epsilon, federated.require_local_privacy),
            (Some(4.5), true)
        );
    }

    #[test]
    fn a_misspelt_key_names_the_nearest() {
        let error = load("lisen = \"127.0.0.1:1\"", &[]).unwrap_err().to_string();
        assert!(error.contains("did you mean `listen`?"), "{error}");
    }
}
