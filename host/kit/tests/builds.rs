//! Builds new projects with the toolchains of this machine and looks at what came out; those in Python and JavaScript, which take long,
//! are built and run by `tests/e2e/start.rs`. A language whose toolchain is missing is said so and passed over.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something it needs is missing"
)]

use karman_kit::{KitError, Project, Tools, build, create};
use karman_types::{Language, Manifest, World};
use std::path::{Path, PathBuf};
use wit_component::DecodedWasm;

/// The plain parts of WASI, which the standard library of Rust brings with it.
const STANDARD: [&str; 5] = [
    "wasi:cli/",
    "wasi:io/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:random/",
];

fn tools() -> Tools {
    Tools::find(std::env::var_os("KARMAN_TOOLS").map(PathBuf::from).as_deref())
}

/// The component's bytes, unless there is no toolchain for it.
fn built(project: &Project) -> Option<Vec<u8>> {
    match build(project, &tools(), &mut |step| eprintln!("{step}")) {
        Ok(built) => {
            eprintln!(
                "{}: {} bytes in {:?}",
                built.manifest.name, built.bytes, built.took
            );
            assert_eq!(
                built.path,
                project.dir.join(format!("build/{}.wasm", built.manifest.name))
            );
            assert_eq!(
                built.manifest,
                Manifest {
                    build: None,
                    ..project.manifest.clone()
                }
            );
            let bytes = std::fs::read(built.path).unwrap();
            assert_eq!(bytes.len() as u64, built.bytes);
            Some(bytes)
        }
        Err(error @ KitError::MissingTool { .. }) => {
            eprintln!("passed over: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a component imports and exports, by name.
fn interfaces(component: &[u8]) -> (Vec<String>, Vec<String>) {
    wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::all())
        .validate_all(component)
        .unwrap();
    let DecodedWasm::Component(resolve, world) = wit_component::decode(component).unwrap() else {
        panic!("a WIT package, not a component");
    };
    let world = &resolve.worlds[world];
    let names =
        |items: Vec<&wit_parser::WorldKey>| items.iter().map(|key| resolve.name_world_key(key)).collect();
    (
        names(world.imports.keys().collect()),
        names(world.exports.keys().collect()),
    )
}

fn new_project(lang: Language) -> Option<(Vec<String>, Vec<u8>)> {
    new_project_of("hello-task", lang, World::Task, "karman:task/handler@0.1.0")
}

/// No two in Rust may have the same name: what is built of them lies in one folder.
fn new_project_of(name: &str, lang: Language, world: World, export: &str) -> Option<(Vec<String>, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), name, lang, world).unwrap();
    if lang == Language::Rust {
        builds_with_the_plugins(dir.path());
    }
    let component = built(&Project::open(dir.path()).unwrap())?;
    let (imports, exports) = interfaces(&component);
    // componentize-py exports an interface of its own besides.
    assert!(exports.contains(&export.into()), "{exports:?}");
    Some((imports, component))
}

/// Has a project built where the plugins are: what they depend on is compiled once for all.
fn builds_with_the_plugins(dir: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.canonicalize().unwrap().join("target/plugins");
    std::fs::create_dir(dir.join(".cargo")).unwrap();
    let config = format!("[build]\ntarget-dir = {target:?}\n");
    std::fs::write(dir.join(".cargo/config.toml"), config).unwrap();
}

#[test]
fn a_new_project_in_rust_builds() {
    new_project(Language::Rust);
}

#[test]
fn a_new_project_in_c_builds_small_and_needs_no_wasi() {
    if let Some((imports, component)) = new_project(Language::C) {
        assert!(
            imports.iter().all(|name| name.starts_with("karman:task/")),
            "{imports:?}"
        );
        assert!(component.len() < 32 << 10, "{} bytes", component.len());
    }
}

#[test]
fn a_new_policy_builds_in_rust_and_in_python_and_needs_nothing() {
    let export = "karman:policy/selector@0.1.0";
    let policy = |lang| new_project_of("hello-select", lang, World::PolicySelect, export);
    if let Some((imports, _)) = policy(Language::Rust) {
        // The standard library brings them with it; what does more than write text traps.
        let plain = |name: &String| STANDARD.iter().any(|start| name.starts_with(start));
        assert!(imports.iter().all(plain), "{imports:?}");
    }
    if let Some((imports, _)) = policy(Language::Python) {
        assert!(imports.is_empty(), "{imports:?}");
    }
}

#[test]
fn a_new_policy_that_routes_or_places_builds_and_needs_nothing() {
    for (name, world, export) in [
        ("hello-route", World::PolicyRoute, "karman:policy/router@0.1.0"),
        ("hello-place", World::PolicyPlace, "karman:policy/placer@0.1.0"),
    ] {
        if let Some((imports, _)) = new_project_of(name, Language::Rust, world, export) {
            let plain = |name: &String| STANDARD.iter().any(|start| name.starts_with(start));
            assert!(imports.iter().all(plain), "{imports:?}");
        }
    }
}

#[test]
fn a_new_strategy_builds_and_needs_nothing() {
    let export = "karman:federated/aggregator@0.1.0";
    if let Some((imports, _)) = new_project_of("hello-strategy", Language::Rust, World::Strategy, export) {
        let plain = |name: &String| {
            let types = "karman:federated/types@";
            STANDARD
                .iter()
                .chain([&types])
                .any(|start| name.starts_with(start))
        };
        assert!(imports.iter().all(plain), "{imports:?}");
    }
}

#[test]
fn the_plugins_of_this_repository_build_and_import_what_they_say() {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let model =
        ["errors", "graph", "inference", "tensor"].map(|name| format!("wasi:nn/{name}@0.2.0-rc-2024-10-28"));
    for (name, handler, allowed) in [
        ("classify", "handler", &model[..]),
        ("event-screen", "stream-handler", &[]),
    ] {
        let Some(component) = built(&Project::open(&plugins.join(name)).unwrap()) else {
            continue;
        };
        let (imports, exports) = interfaces(&component);
        assert_eq!(exports, [format!("karman:task/{handler}@0.1.0")]);
        let types = "karman:task/types";
        let beyond = |name: &&String| {
            !STANDARD
                .iter()
                .chain([&types])
                .any(|start| name.starts_with(start))
        };
        let other: Vec<_> = imports.iter().filter(beyond).collect();
        assert!(
            other.iter().all(|name| allowed.contains(name)),
            "{name} imports {imports:?}"
        );
        assert_eq!(other.len(), allowed.len(), "{name} imports {imports:?}");
    }
}

#[test]
fn c_that_prints_gets_the_adapter() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), "hello", Language::C, World::Task).unwrap();
    let file = dir.path().join("src/print.c");
    let text = "#include <stdio.h>\n__attribute__((constructor)) void greet(void) { puts(\"up\"); }\n";
    std::fs::write(file, text).unwrap();
    if let Some(component) = built(&Project::open(dir.path()).unwrap()) {
        let (imports, exports) = interfaces(&component);
        assert!(
            imports.iter().any(|name| name.starts_with("wasi:cli/stdout@0.2")),
            "{imports:?}"
        );
        assert_eq!(exports, ["karman:task/handler@0.1.0"]);
    }
}

#[test]
fn what_the_compiler_says_comes_out_and_the_old_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), "hello", Language::C, World::Task).unwrap();
    let project = Project::open(dir.path()).unwrap();
    let Some(before) = built(&project) else { return };
    std::fs::write(
        dir.path().join("src/plugin.c"),
        "int wrong(void) { return nothing; }\n",
    )
    .unwrap();
    let error = build(&project, &tools(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
    assert_eq!(
        std::fs::read(project.dir.join("build/hello.wasm")).unwrap(),
        before
    );
}

#[test]
fn layouts_and_missing_tools_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let error = Project::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("karman new"), "{error}");
    create(dir.path(), "hello", Language::C, World::Task).unwrap();
    std::fs::remove_dir_all(dir.path().join("src")).unwrap();
    let project = Project::open(dir.path()).unwrap();
    match build(&project, &tools(), &mut |_| {}).unwrap_err() {
        KitError::MissingTool { hint, .. } => assert!(hint.contains("pip install ziglang")),
        error => assert!(error.to_string().contains("no .c files"), "{error}"),
    }
    assert!(
        Project::open(Path::new("/nowhere/at/all"))
            .unwrap_err()
            .to_string()
            .contains("/nowhere/at/all")
    );
}

#[test]
fn the_report_names_every_language() {
    let report = tools().report();
    assert_eq!(report.len(), 4);
    for toolchain in report {
        match toolchain.found {
            Ok(line) => assert!(!line.trim().is_empty()),
            Err(KitError::MissingTool { why, hint, .. }) => assert!(!why.is_empty() && !hint.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }
}
