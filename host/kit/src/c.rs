use crate::tools::{first_line, run};
use crate::{KitError, Project, Tools};
use karman_types::Language;
use std::path::{Path, PathBuf};
use std::process::Command;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_bindgen_core::Files;
use wit_component::ComponentEncoder;

/// The toolchain in one line.
pub(crate) fn found(tools: &Tools) -> Result<String, KitError> {
    Compiler::find(tools).map(|compiler| compiler.what)
}

/// Builds the sources into a component, without the manifest: `src/*.c` and the bindings made from `wit/` become a core
/// module, and that a component.
pub(crate) fn compile(
    project: &Project,
    tools: &Tools,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, KitError> {
    let compiler = Compiler::find(tools)?;
    let sources = sources(&project.dir.join("src"))?;
    let build = project.build_dir()?;
    progress("bindings from wit/");
    let bindings = bindings(project, &build.join("bindings"))?;
    progress("clang -Os");
    let core = build.join("core.wasm");
    let mut clang = compiler.command();
    clang
        .current_dir(&project.dir)
        .args([
            "--target=wasm32-wasi",
            "-mexec-model=reactor",
            "-Os",
            // As Rust has it; the compiler's own default alone is more than a small plugin's memory.
            "-Wl,-z,stack-size=1048576",
            "-std=c17",
            "-Wall",
            "-Wextra",
        ])
        .args(["-Wl,--strip-all", "-I"])
        .arg(build.join("bindings"))
        .arg("-o")
        .arg(&core)
        .args(&sources)
        .args(["-w"])
        .args(&bindings);
    run(Language::C, &mut clang)?;
    progress("component");
    encode(&std::fs::read(&core).map_err(KitError::io(&core))?)
}

/// The `.c` files of a folder, sorted.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, KitError> {
    let wrong = || KitError::WrongLayout {
        path: folder.into(),
        problem: "has no .c files; the sources of a plugin in C stand there".into(),
    };
    let entries = std::fs::read_dir(folder).map_err(|_| wrong())?;
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    if files.is_empty() { Err(wrong()) } else { Ok(files) }
}

/// Writes the C side of the project's world; gives what has to be compiled and linked.
fn bindings(project: &Project, folder: &Path) -> Result<Vec<PathBuf>, KitError> {
    let (mut resolve, world) = project.world()?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default()
        .build()
        .generate(&mut resolve, world, &mut files)
        .map_err(|error| KitError::WrongLayout {
            path: project.wit_dir(),
            problem: format!("has no C bindings: {error:#}"),
        })?;
    std::fs::create_dir_all(folder).map_err(KitError::io(folder))?;
    let mut linked = Vec::new();
    for (name, bytes) in files.iter() {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(KitError::io(&path))?;
        if !name.ends_with(".h") {
            linked.push(path);
        }
    }
    Ok(linked)
}

/// Makes a component of a core module. One that prints or reads files goes through the adapter for WASI 0.1.
fn encode(core: &[u8]) -> Result<Vec<u8>, KitError> {
    let encoder = ComponentEncoder::default().validate(true).module(core);
    let adapted = encoder.and_then(|encoder| match imports_wasi_0_1(core) {
        true => encoder.adapter(
            WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
            WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
        ),
        false => Ok(encoder),
    });
    let component = adapted.and_then(|mut encoder| encoder.encode());
    component.map_err(|error| KitError::Compile {
        lang: Language::C,
        output: format!("the module does not fit its world: {error:#}"),
    })
}

fn imports_wasi_0_1(core: &[u8]) -> bool {
    wasmparser::Parser::new(0).parse_all(core).any(|payload| {
        let Ok(wasmparser::Payload::ImportSection(imports)) = payload else {
            return false;
        };
        imports
            .into_imports()
            .flatten()
            .any(|import| import.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME)
    })
}

/// A C compiler for WebAssembly with its library.
struct Compiler {
    program: PathBuf,
    arguments: &'static [&'static str],
    what: String,
}

impl Compiler {
    /// Zig (its own program or the Python package), else a clang that finds wasi-libc.
    fn find(tools: &Tools) -> Result<Self, KitError> {
        let zig = tools.program("zig").and_then(|program| Self::zig(program, &[]));
        let zig = zig.or_else(|| {
            let mut pythons = ["python3", "python"]
                .iter()
                .filter_map(|name| tools.program(name));
            let of_tools = tools.extra().map(|extra| extra.join("venv/bin/python"));
            let of_tools = of_tools.filter(|python| python.is_file());
            pythons
                .find_map(|python| Self::zig(python, &["-m", "ziglang"]))
                .or_else(|| Self::zig(of_tools?, &["-m", "ziglang"]))
        });
        zig.or_else(|| Self::clang(tools)).ok_or_else(|| KitError::MissingTool {
            tool: "zig",
            why: "neither `zig`, the Python package `ziglang`, nor a clang with wasi-libc is here".into(),
            hint: "run `pip install ziglang` in a virtual environment (`python3 -m venv`), or `apt-get install clang lld wasi-libc libclang-rt-dev-wasm32`".into(),
        })
    }

    fn zig(program: PathBuf, module: &'static [&'static str]) -> Option<Self> {
        let version = first_line(&program, module.iter().chain(&["version"]))?;
        let what = format!(
            "zig {version} ({})",
            [&[&*program.to_string_lossy()], module].concat().join(" ")
        );
        let arguments: &'static [_] = if module.is_empty() {
            &["cc"]
        } else {
            &["-m", "ziglang", "cc"]
        };
        Some(Self {
            program,
            arguments,
            what,
        })
    }

    fn clang(tools: &Tools) -> Option<Self> {
        // Debian numbers its compilers; an unnumbered one may be too old to have the library for this target.
        let numbered = (14..=30).rev().map(|version| format!("clang-{version}"));
        let mut programs = numbered
            .chain(["clang".into()])
            .filter_map(|name| tools.program(&name));
        programs.find_map(|program| {
            let ask = ["--target=wasm32-wasi", "-print-file-name=libc.a"];
            let library = first_line(&program, ask)?;
            let found = Path::new(&library).is_absolute() && Path::new(&library).is_file();
            let version = first_line(&program, ["--version"]).filter(|_| found)?;
            let what = format!("{version} with {library}");
            Some(Self {
                program,
                arguments: &[],
                what,
            })
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments);
        command
    }
}
