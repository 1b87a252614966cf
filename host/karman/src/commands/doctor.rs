use crate::app::App;
use crate::control::Control;
use crate::error::Worded;
use crate::held::Held;
use crate::output::table;
use clap::Args;
use karman_engine::{Engine, EngineOptions, Machine};
use karman_infer::Backends;
use karman_mesh::SOCKET_BUFFER;
use karman_node::{Diagnosis, HeldModel, ModelDevice, NodeConfig, NodeStatus, check_gpu, no_gpu_for};
use karman_types::{ErrorKind, Language, TaskError, format_bytes};
use rustix::fs::{Access, access, statvfs};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// Less room than this on the disk of the state is soon none.
const LITTLE: u64 = 64 << 20;

/// `karman doctor`
#[derive(Args, Debug)]
pub(crate) struct Doctor {}

/// One thing that was looked at.
struct Finding {
    what: Cow<'static, str>,
    /// Whether it works; a lack need not be a fault.
    works: bool,
    found: String,
    hint: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            works: true,
            found: found.into(),
            hint: None,
        }
    }

    fn bad(what: &'static str, error: &TaskError) -> Self {
        let error = error.clone().worded();
        Self {
            what: what.into(),
            works: false,
            found: error.message,
            hint: error.hint,
        }
    }
}

impl From<Diagnosis> for Finding {
    fn from(diagnosis: Diagnosis) -> Self {
        Self {
            what: diagnosis.check.into(),
            works: diagnosis.works,
            found: diagnosis.found,
            hint: diagnosis.hint,
        }
    }
}

impl Doctor {
    /// Looks at everything; the exit code is 0 unless no plugin can run here, or no node for what its configuration says.
    pub(crate) fn run(&self, app: &App) -> Result<u8, TaskError> {
        let progress = app.progress("looking around");
        let engine = engine();
        let runs = engine.works;
        let mut findings = vec![engine, processor(), memory()];
        findings.extend(packets());
        let (config, configured) = config(app);
        let reads = configured.works;
        findings.push(configured);
        progress.step("looking for guest toolchains");
        findings.extend(toolchains(app));
        progress.step("looking for ONNX Runtime");
        findings.extend(backends(&config));
        findings.push(state(&app.places.state));
        findings.push(folder(
            "cache",
            &app.places.cache,
            "name another with KARMAN_CACHE",
        ));
        findings.extend(node(app));
        findings.extend(models(app, &config));
        findings.push(Finding::good("interfaces", interfaces()));
        drop(progress);
        show(app, &findings)?;
        Ok(match (runs, reads) {
            (true, true) => 0,
            (true, false) => ErrorKind::Invalid.exit_code(),
            (false, _) => ErrorKind::Unavailable.exit_code(),
        })
    }
}

fn show(app: &App, findings: &[Finding]) -> Result<(), TaskError> {
    if app.output.json {
        return findings.iter().try_for_each(|finding| {
            let Finding {
                what,
                works,
                found,
                hint,
            } = finding;
            app.output
                .line(json!({ "check": what, "ok": works, "found": found, "hint": hint }))
        });
    }
    let mut rows = Vec::new();
    for Finding {
        what,
        works,
        found,
        hint,
    } in findings
    {
        let mark = if *works { "ok" } else { "--" };
        let mut lines = found.lines();
        rows.push(vec![
            mark.into(),
            what.clone().into_owned(),
            lines.next().unwrap_or_default().into(),
        ]);
        rows.extend(lines.map(|line| vec![String::new(), String::new(), line.into()]));
        rows.extend(
            hint.iter()
                .map(|hint| vec![String::new(), String::new(), format!("hint: {hint}")]),
        );
    }
    app.output.line(table(&rows))
}

fn engine() -> Finding {
    match Engine::new(EngineOptions {
        workers: Some(1),
        ..EngineOptions::default()
    }) {
        Ok(engine) => Finding::good("engine", format!("wasmtime, Cranelift; {}", engine.allocation())),
        Err(error) => Finding {
            what: "engine".into(),
            works: false,
            found: error.to_string(),
            hint: Some("raise the limits on address space and memory: `ulimit -v unlimited`".into()),
        },
    }
}

fn memory() -> Finding {
    let machine = Machine::probe();
    let limit = machine
        .address_limit
        .map(|limit| format!(", {} of it allowed", format_bytes(limit)))
        .unwrap_or_default();
    Finding::good(
        "memory",
        format!(
            "{}; {} address bits{limit}",
            format_bytes(machine.memory),
            machine.address_bits
        ),
    )
}

/// How many bytes of packets the system lets wait for a socket, where it says so and they are few.
fn packets() -> Option<Finding> {
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    let most: usize = most.trim().parse().ok()?;
    let little = || Finding {
        what: "packets".into(),
        works: false,
        found: format!(
            "{} of them may wait for a socket: of large tensors from other nodes some are lost, and sent again",
            format_bytes(most as u64)
        ),
        hint: Some(format!(
            "sysctl -w net.core.rmem_max={SOCKET_BUFFER} net.core.wmem_max={SOCKET_BUFFER}"
        )),
    };
    (most < SOCKET_BUFFER).then(little)
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::good(
        "processor",
        format!(
            "{} cores, {}; {}",
            cores,
            std::env::consts::ARCH,
            features().join(" ")
        ),
    )
}

/// What compiled code and models can use.
fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let all = [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("popcnt", std::is_x86_feature_detected!("popcnt")),
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(target_arch = "aarch64")]
    let all = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("lse", std::arch::is_aarch64_feature_detected!("lse")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(&str, bool); 0] = [];
    all.into_iter()
        .filter_map(|(name, there)| there.then_some(name))
        .collect()
}

/// The configuration, or the defaults beside what is wrong with it.
fn config(app: &App) -> (NodeConfig, Finding) {
    match (app.config(), &app.places.config) {
        (Ok(config), Some(path)) => (config, Finding::good("config", path.display().to_string())),
        (Ok(config), None) => (config, Finding::good("config", "no node.toml; defaults")),
        (Err(error), _) => (NodeConfig::default(), Finding::bad("config", &error)),
    }
}

fn toolchains(app: &App) -> impl Iterator<Item = Finding> {
    app.tools().report().into_iter().map(|toolchain| {
        let what = match toolchain.lang {
            Language::Rust => "build rust",
            Language::C => "build c",
            Language::Python => "build python",
            Language::Js => "build js",
        };
        match toolchain.found {
            Ok(found) => Finding::good(what, found),
            Err(error) => Finding::bad(what, &error.worded()),
        }
    })
}

fn backends(config: &NodeConfig) -> Vec<Finding> {
    let (library, program) = (config.onnxruntime.as_deref(), std::env::current_exe().ok());
    let backends = Backends::detect(&config.backend.options(library, program));
    let found = backends.all().map(|(name, backend)| {
        let what = match name {
            karman_infer::BackendName::OnnxRuntime => "onnxruntime",
            karman_infer::BackendName::Tract => "tract",
        };
        match backend {
            Ok(backend) => Finding::good(what, format!("version {}", backend.version())),
            Err(error) => {
                let hint = "models run on tract; `pip install onnxruntime` in a virtual environment, or set `onnxruntime` in node.toml";
                Finding::bad(what, &error.worded().with_hint(hint))
            }
        }
    });
    found.into()
}

/// A folder that is there or can be made.
fn folder(what: &'static str, path: &Path, hint: &str) -> Finding {
    let there = path.ancestors().find(|folder| folder.exists());
    let writable = there.map(|folder| access(folder, Access::WRITE_OK | Access::EXEC_OK));
    match (writable, path.exists()) {
        (Some(Ok(())), true) => Finding::good(what, path.display().to_string()),
        (Some(Ok(())), false) | (None, _) => {
            Finding::good(what, format!("{} (not made yet)", path.display()))
        }
        (Some(Err(error)), _) => {
            let message = format!("{} cannot be written: {error}", path.display());
            Finding::bad(what, &TaskError::unavailable(message).with_hint(hint))
        }
    }
}

/// The folder of the state, and whether its disk has room.
fn state(path: &Path) -> Finding {
    let found = folder("state", path, "name another with --state or KARMAN_STATE");
    let there = path.ancestors().find(|folder| folder.exists());
    let Some(Ok(disk)) = there.map(statvfs).filter(|_| found.works) else {
        return found;
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match free < LITTLE {
        false => found,
        true => {
            let message = format!("{} has {} left", path.display(), format_bytes(free));
            let error = TaskError::unavailable(message).with_hint("free space on that disk");
            Finding::bad("state", &error)
        }
    }
}

/// The running node, and what it finds when it looks at its mesh.
fn node(app: &App) -> Vec<Finding> {
    let asked = Control::of_running(app).and_then(|control| {
        let Some(control) = control else { return Ok(None) };
        let status: NodeStatus = control.get("/status")?;
        let diagnoses: Vec<Diagnosis> = control.get("/mesh/diagnosis")?;
        Ok(Some((status, diagnoses)))
    });
    match asked {
        Ok(Some((status, diagnoses))) => {
            let id = status.node.get(..8).unwrap_or(&status.node);
            let plugins = status.plugins.len();
            let drained = if status.drained { ", drained" } else { "" };
            let runs = format!("{id} ({}) runs with {plugins} plugins{drained}", status.tier);
            let mesh = diagnoses.into_iter().map(Finding::from);
            let trouble = status.trouble.map(TaskError::unavailable);
            let trouble = trouble.map(|trouble| Finding::bad("disk", &trouble));
            let here = std::iter::once(Finding::good("node", runs));
            here.chain(trouble).chain(mesh).collect()
        }
        Ok(None) => {
            let none = Finding::good("node", "none runs; `karman node up` starts one");
            std::iter::once(none).chain(clock(app)).collect()
        }
        Err(error) => vec![Finding::bad("node", &error)],
    }
}

/// The clock, where a node has been and none runs that looks at it.
fn clock(app: &App) -> Option<Finding> {
    let looked = Held::if_any(app).and_then(|held| match held {
        Some(Held::Store(store)) => Diagnosis::of_clock(&store).map(Some),
        _ => Ok(None),
    });
    match looked {
        Ok(diagnosis) => diagnosis.map(Finding::from),
        Err(error) => Some(Finding::bad("clock", &error)),
    }
}

/// The models that are to run on the GPU and cannot, and those that are not there; without any for it nothing is asked.
fn models(app: &App, config: &NodeConfig) -> Vec<Finding> {
    if config.gpu.models.is_empty() {
        return Vec::new();
    }
    match held(app, config) {
        Ok(models) => {
            let unknown = config
                .gpu
                .of_no_model(models.iter().map(|model| model.name.as_str()));
            let unknown: Vec<Finding> = unknown.into_iter().map(of_no_model).collect();
            let refused = models
                .into_iter()
                .filter_map(|model| Some((model.name, model.refused?)));
            let of = |(name, error): (String, TaskError)| Finding {
                what: format!("model {name}").into(),
                ..Finding::bad("model", &error)
            };
            refused.map(of).chain(unknown).collect()
        }
        Err(error) => vec![Finding::bad("models", &error)],
    }
}

/// The models that this node holds. A node that runs knows whether there is a GPU for them; otherwise the drivers are asked now.
fn held(app: &App, config: &NodeConfig) -> Result<Vec<HeldModel>, TaskError> {
    let Some(held) = Held::if_any(app)? else {
        return Ok(Vec::new());
    };
    let mut models = held.models(config)?;
    if matches!(held, Held::Node(_)) {
        return Ok(models);
    }
    let mut for_gpu = models
        .iter_mut()
        .filter(|model| model.refused.is_none() && config.gpu.model(&model.name) == Some(ModelDevice::Gpu))
        .peekable();
    if for_gpu.peek().is_some()
        && let Ok(program) = std::env::current_exe()
        && let Err(error) = check_gpu(&config.gpu, &program)
    {
        for_gpu.for_each(|model| model.refused = Some(no_gpu_for(&model.name, &error)));
    }
    Ok(models)
}

fn of_no_model(name: &str) -> Finding {
    let says = "`[gpu.models]` of node.toml names it, and this node has no such model";
    let hint = format!("correct the name, or add it: karman model add {name} FILE.onnx");
    Finding {
        what: format!("model {name}").into(),
        ..Finding::bad("model", &TaskError::unavailable(says).with_hint(hint))
    }
}

/// `wasi:http 0.2 0.3`, one after the other.
fn interfaces() -> String {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, version) in karman_package::OFFERED {
        versions.entry(name).or_default().push(version);
    }
    let lines: Vec<String> = versions
        .iter()
        .map(|(name, versions)| format!("{name} {}", versions.join(" ")))
        .collect();
    lines.join("\n")
}
