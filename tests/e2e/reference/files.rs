//! The files that users write, table by table.

use super::source::{Table, table, variants};
use karman_fed::select::SelectionChoice;
use karman_fed::strategy::StrategyChoice;
use karman_fed::{Pace, Run, SecureSum, Swarm};
use karman_gateway::GatewayConfig;
use karman_node::{BatchConfig, Foreign, NodeConfig};
use karman_types::Limits;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A file that users write.
pub(super) struct Document {
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) sections: Vec<Section>,
}

/// A table of it.
pub(super) struct Section {
    /// As it is written; empty for the keys that stand in no table.
    pub(super) heading: &'static str,
    /// Where the table has other keys for each value of one: that.
    pub(super) choice: Option<String>,
    /// The name of that one.
    pub(super) tag: Option<String>,
    pub(super) file: String,
    pub(super) table: Table,
    /// What is read where nothing is written; null where that is not known outside its crate.
    pub(super) defaults: Value,
}

impl Section {
    fn new(heading: &'static str, file: &str, name: &str, defaults: Value) -> Self {
        Self {
            heading,
            choice: None,
            tag: None,
            file: file.to_owned(),
            table: table(file, name),
            defaults,
        }
    }

    /// The tables that one enum reads.
    fn each<T: DeserializeOwned + Serialize>(heading: &'static str, file: &str, name: &str) -> Vec<Self> {
        let (tag, tables) = variants(file, name);
        let section = |(value, table): (String, Table)| {
            let written = std::iter::once((tag.clone(), Value::String(value.clone()))).collect();
            Self {
                heading,
                choice: Some(format!("{tag} = \"{value}\"")),
                tag: Some(tag.clone()),
                file: file.to_owned(),
                table,
                // Those that have keys without a default read nothing from their name alone.
                defaults: serde_json::from_value::<T>(Value::Object(written))
                    .map_or(Value::Null, |read| written_out(&read)),
            }
        };
        tables.into_iter().map(section).collect()
    }

    /// `mesh.orbits` of `[mesh.orbits]`.
    pub(super) fn path(&self) -> &'static str {
        self.heading.trim_matches(['[', ']'])
    }
}

/// As a file would have it. By way of a text, so that 0.01 stays that.
fn written_out(value: &impl Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

pub(super) fn documents() -> Vec<Document> {
    vec![
        manifest(),
        node(),
        contacts(),
        links(),
        replay(),
        workflow(),
        run(),
        scenario(),
    ]
}

fn manifest() -> Document {
    let at = "host/types/src";
    let file = |name: &str| format!("{at}/{name}.rs");
    Document {
        title: "`karman.toml`: a plugin",
        about: "Stands in the folder of a plugin; `karman build` puts it into the component. See [Writing a plugin](plugins.md).",
        sections: vec![
            Section::new("", &file("manifest"), "Manifest", Value::Null),
            Section::new(
                "[limits]",
                &file("limits"),
                "Limits",
                written_out(&Limits::default()),
            ),
            Section::new("[task]", &file("contract"), "TaskContract", Value::Null),
            Section::new("[[task.inputs]]", &file("data"), "DataField", Value::Null),
            Section::new("[build]", &file("manifest"), "Build", Value::Null),
        ],
    }
}

fn node() -> Document {
    let defaults = written_out(&NodeConfig::default());
    let gateway = written_out(&GatewayConfig::default());
    let config = "host/node/src/config.rs";
    let part = |heading, file: &str, name| {
        let file = format!("host/node/src/config/{file}.rs");
        let key = Section::new(heading, &file, name, Value::Null);
        let defaults = defaults[key.path()].clone();
        Section { defaults, ..key }
    };
    let in_config = |heading, name, key: &str| Section::new(heading, config, name, defaults[key].clone());
    let gate = "host/gateway/src/config.rs";
    let acme = "host/gateway/src/config/acme.rs";
    let routes = "host/gateway/src/config/routes.rs";
    Document {
        title: "`node.toml`: a node",
        about: "Found at `--config`, `KARMAN_CONFIG`, `$XDG_CONFIG_HOME/karman/node.toml` or `/etc/karman/node.toml`; each key can also be \
                given as a variable, `KARMAN_KEY`, or `KARMAN_TABLE__KEY` for a key of a table. See [Running a node](node.md).",
        sections: vec![
            Section::new("", config, "NodeConfig", defaults.clone()),
            in_config("[ceiling]", "Ceiling", "ceiling"),
            Section::new(
                "[foreign.NAME]",
                config,
                "Foreign",
                written_out(&Foreign::default()),
            ),
            part("[endpoints.NAME]", "endpoint", "EndpointConfig"),
            Section::new(
                "[models]",
                "host/infer/src/limits.rs",
                "ModelLimits",
                defaults["models"].clone(),
            ),
            Section::new(
                "[batches.NAME]",
                "host/node/src/config/batches.rs",
                "BatchConfig",
                written_out(&BatchConfig::default()),
            ),
            part("[compute]", "compute", "ComputeProfile"),
            part("[power]", "power", "StatedPower"),
            part("[gpu]", "gpu", "GpuConfig"),
            in_config("[mesh]", "MeshConfig", "mesh"),
            part("[mesh.orbits]", "orbits", "Orbits"),
            part("[[mesh.orbits.stations]]", "orbits", "GroundStation"),
            Section::new(
                "[tasks]",
                "host/tasks/src/limits.rs",
                "Limits",
                defaults["tasks"].clone(),
            ),
            part("[policies]", "policies", "PoliciesConfig"),
            Section::new(
                "[store]",
                "host/store/src/limits.rs",
                "StoreLimits",
                defaults["store"].clone(),
            ),
            Section::new(
                "[keepers]",
                "host/node/src/drive/keepers/limits.rs",
                "KeepersConfig",
                defaults["keepers"].clone(),
            ),
            part("[federated]", "federated", "FederatedConfig"),
            part("[telemetry]", "telemetry", "TelemetryConfig"),
            Section::new("[gateway]", gate, "GatewayConfig", gateway.clone()),
            Section::new("[gateway.tls]", gate, "TlsConfig", Value::Null),
            Section::new("[gateway.acme]", acme, "AcmeConfig", Value::Null),
            Section::new(
                "[gateway.acme.external-account]",
                acme,
                "ExternalAccount",
                Value::Null,
            ),
            Section::new("[[gateway.routes]]", routes, "RouteConfig", Value::Null),
            Section::new(
                "[gateway.open-limits]",
                "host/gateway/src/access/token.rs",
                "CallerLimits",
                gateway["open-limits"].clone(),
            ),
            Section::new(
                "[gateway.limits]",
                gate,
                "GatewayLimits",
                gateway["limits"].clone(),
            ),
        ],
    }
}

fn contacts() -> Document {
    Document {
        title: "A contact plan",
        about: "The file that `contacts` of `[mesh]` names. See [Links that come and go](links.md#the-contact-plan).",
        sections: vec![Section::new(
            "[[contact]]",
            "host/space/src/plan.rs",
            "Entry",
            Value::Null,
        )],
    }
}

fn links() -> Document {
    let file = "host/space/src/link.rs";
    Document {
        title: "A link profile",
        about: "For rehearsals: how links behave that leave a node. See [The mesh](mesh.md).",
        sections: vec![
            Section::new("[[link]]", file, "Entry", Value::Null),
            Section::new("[[link.outages]]", file, "Outage", Value::Null),
        ],
    }
}

fn replay() -> Document {
    Document {
        title: "A replay of orbits",
        about: "The file that `replay` of `[mesh.orbits]` names. See [Links that come and go](links.md#the-contact-plan).",
        sections: vec![Section::new(
            "[[moment]]",
            "host/space/src/replay.rs",
            "Moment",
            Value::Null,
        )],
    }
}

fn workflow() -> Document {
    let file = "host/types/src/workflow/file.rs";
    Document {
        title: "A workflow",
        about: "What `karman flow run` takes. See [Workflows](workflows.md).",
        sections: vec![
            Section::new("", file, "File", Value::Null),
            Section::new("[slo]", "host/types/src/slo.rs", "Slo", Value::Null),
            Section::new("[task.NAME]", file, "TaskTable", Value::Null),
            Section::new("[[edge]]", file, "EdgeTable", Value::Null),
            Section::new(
                "[edge.when]",
                "host/types/src/workflow/predicate/table.rs",
                "Table",
                Value::Null,
            ),
        ],
    }
}

fn run() -> Document {
    let least = Run::from_toml("name = 'least'\nrounds = 1").unwrap();
    let defaults = written_out(&least);
    let at = "host/fed/src/description";
    let part = |heading, file: &str, name, key: &str| {
        Section::new(heading, &format!("{at}/{file}.rs"), name, defaults[key].clone())
    };
    let mut sections = vec![
        Section::new("", "host/fed/src/description.rs", "Run", defaults.clone()),
        part("[clients]", "clients", "Clients", "clients"),
    ];
    sections.extend(Section::each::<Pace>("[pace]", &format!("{at}/pace.rs"), "Pace"));
    sections.extend(Section::each::<StrategyChoice>(
        "[strategy]",
        "host/fed/src/strategy/choice.rs",
        "StrategyChoice",
    ));
    sections.extend(Section::each::<SelectionChoice>(
        "[selection]",
        "host/fed/src/select/mod.rs",
        "SelectionChoice",
    ));
    sections.push(Section::new(
        "[eligibility]",
        "host/fed/src/select/eligibility.rs",
        "Eligibility",
        defaults["eligibility"].clone(),
    ));
    sections.push(part("[training]", "parts", "Training", "training"));
    sections.push(Section::new(
        "[low-rank]",
        &format!("{at}/low_rank.rs"),
        "LowRank",
        Value::Null,
    ));
    sections.push(part("[privacy]", "privacy", "Privacy", "privacy"));
    sections.extend(Section::each::<karman_fed::privacy::Clipping>(
        "[privacy.clipping]",
        "host/fed/src/privacy/central.rs",
        "Clipping",
    ));
    sections.push(Section::new(
        "[local-privacy]",
        &format!("{at}/local_privacy.rs"),
        "LocalPrivacy",
        Value::Null,
    ));
    let alone = |heading, file: &str, name, defaults| {
        Section::new(heading, &format!("{at}/{file}.rs"), name, defaults)
    };
    sections.push(alone(
        "[secure-sum]",
        "secure_sum",
        "SecureSum",
        written_out(&SecureSum::default()),
    ));
    sections.push(alone("[swarm]", "swarm", "Swarm", written_out(&Swarm::default())));
    sections.push(part("[evaluation]", "parts", "Evaluation", "evaluation"));
    sections.push(part("[limits]", "parts", "Limits", "limits"));
    Document {
        title: "A federated run",
        about: "What `karman fed run` takes. See [Federated learning](federated.md).",
        sections,
    }
}

fn scenario() -> Document {
    let part = |heading, name| Section::new(heading, "host/sim/src/scenario/describe.rs", name, Value::Null);
    Document {
        title: "A scenario",
        about: "What `karman sim run` takes. Times are virtual. See [The simulator](simulator.md).",
        sections: vec![
            part("", "Scenario"),
            part("[telemetry]", "TelemetryEntry"),
            part("[[model]]", "ModelEntry"),
            part("[[model.exit]]", "ExitEntry"),
            part("[[node]]", "NodeGroup"),
            part("[node.failures]", "FailureEntry"),
            part("[[contact]]", "ContactEntry"),
            part("[[workload]]", "Workload"),
            part("[[workload.steps]]", "RateStep"),
        ],
    }
}
