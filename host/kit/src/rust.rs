use crate::tools::{first_line, run};
use crate::{KitError, Project, Tools};
use karman_types::Language;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";
const LINKER: &str = "wasm-component-ld";

/// The toolchain in one line.
pub(crate) fn found(tools: &Tools) -> Result<String, KitError> {
    let rust = Rust::find(tools, Path::new("."))?;
    let rustc = rust.fallback.as_ref().map_or(&rust.rustc, |other| &other.rustc);
    let version = first_line(rustc, ["--version"]).unwrap_or_default();
    Ok(format!("{version} for {TARGET} ({})", rustc.display()))
}

/// Builds the sources into a component, without the manifest. The target's own linker already makes a component.
pub(crate) fn compile(
    project: &Project,
    tools: &Tools,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, KitError> {
    if !project.dir.join("Cargo.toml").is_file() {
        return Err(KitError::WrongLayout {
            path: project.dir.clone(),
            problem: "has no Cargo.toml, which a plugin in Rust needs beside karman.toml".into(),
        });
    }
    let rust = Rust::find(tools, &project.dir)?;
    progress("cargo build --release");
    let mut cargo = rust.cargo();
    cargo
        .current_dir(&project.dir)
        .args(["build", "--release", "--target", TARGET])
        .arg("--message-format=json-render-diagnostics");
    let messages = run(Language::Rust, &mut cargo)?;
    let file = artifact(&messages, &project.dir).ok_or_else(|| KitError::WrongLayout {
        path: project.dir.join("Cargo.toml"),
        problem: "built no .wasm file; a plugin is a library with `crate-type = [\"cdylib\"]` or a binary"
            .into(),
    })?;
    std::fs::read(&file).map_err(KitError::io(&file))
}

/// The last `.wasm` file that cargo says it made from this very package.
fn artifact(messages: &[u8], dir: &Path) -> Option<PathBuf> {
    let manifest = dir.join("Cargo.toml");
    messages
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["manifest_path"].as_str().map(Path::new) == Some(&manifest))
        .filter_map(|message| {
            let files = message["filenames"]
                .as_array()?
                .iter()
                .filter_map(|file| file.as_str());
            files
                .map(PathBuf::from)
                .find(|file| file.extension().is_some_and(|e| e == "wasm"))
        })
        .next_back()
}

/// A Rust toolchain that can build for the target.
struct Rust {
    cargo: PathBuf,
    rustc: PathBuf,
    /// For machines where rustup can fetch no target.
    fallback: Option<Fallback>,
}

/// Another compiler that brings the target, with the linker of the user's own toolchain.
struct Fallback {
    rustc: PathBuf,
    /// The folder of `wasm-component-ld`; `wasm-ld`, which it calls, is in `gcc-ld` below.
    linkers: PathBuf,
}

impl Rust {
    fn find(tools: &Tools, dir: &Path) -> Result<Self, KitError> {
        let missing = |tool, why: String, hint: &str| KitError::MissingTool {
            tool,
            why,
            hint: hint.into(),
        };
        let program = |name| {
            tools
                .program(name)
                .ok_or_else(|| missing(name, "not on PATH".into(), "install Rust from https://rustup.rs"))
        };
        let (cargo, rustc) = (program("cargo")?, program("rustc")?);
        // Asked in the project's folder, whose rust-toolchain.toml may choose another toolchain.
        let mut ask = Command::new(&rustc);
        ask.current_dir(dir).args(["--target", TARGET]);
        // Where rustup has no compiler, it would say that at length.
        ask.env("RUST_BACKTRACE", "0");
        ask.args([
            "--print",
            "target-libdir",
            "--print",
            "sysroot",
            "--print",
            "host-tuple",
        ]);
        let said = ask.output().map_err(KitError::io(&rustc))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let [target, sysroot, host] = text.lines().collect::<Vec<_>>()[..] else {
            let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            let hint = match why.contains("rustup default stable") {
                true => "run `rustup default stable`",
                false => "update it with `rustup update` (1.84 or later)",
            };
            return Err(missing("rustc", why, hint));
        };
        if has_std(Path::new(target)) {
            let fallback = None;
            return Ok(Self {
                cargo,
                rustc,
                fallback,
            });
        }
        let fallback = tools.extra().map(|extra| Fallback {
            rustc: extra.join("wasm-std/rustc"),
            linkers: Path::new(sysroot).join(format!("lib/rustlib/{host}/bin")),
        });
        let usable = |found: &Fallback| found.rustc.is_file() && found.linkers.join(LINKER).is_file();
        match fallback.filter(usable) {
            Some(fallback) => Ok(Self {
                cargo,
                rustc,
                fallback: Some(fallback),
            }),
            None => Err(missing(
                "rustup",
                format!("the toolchain in {sysroot} has no target {TARGET}"),
                "run `rustup target add wasm32-wasip2`",
            )),
        }
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(&self.cargo);
        // Flags and compilers meant for the host's own build are not the guest's.
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "CARGO_BUILD_TARGET",
        ] {
            cargo.env_remove(name);
        }
        if let Some(Fallback { rustc, linkers }) = &self.fallback {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = std::iter::once(linkers.join("gcc-ld")).chain(std::env::split_paths(&path));
            cargo
                .env("RUSTC", rustc)
                .env("CARGO_TARGET_WASM32_WASIP2_LINKER", linkers.join(LINKER))
                .envs(std::env::join_paths(path).map(|path| ("PATH", path)));
        }
        cargo
    }
}

/// Whether the target's library lies there.
fn has_std(libdir: &Path) -> bool {
    std::fs::read_dir(libdir).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}
