use crate::tools::{first_line, run};
use crate::{KitError, Project, Tools};
use karman_types::{Grant, Language, World};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use wit_parser::WorldItem;

/// The module that the component starts from when it is a task.
const ENTRY: &str = include_str!("js/entry.js");
/// The program that calls componentize-js; its own command line and `jco` fail on the Node 20 of Debian and Ubuntu.
const DRIVER: &str = include_str!("js/driver.mjs");
/// The interfaces of a fetch handler, for a project that brings no `wit/`.
const HTTP: &str = include_str!("js/http.wit");

const PACKAGE: &str = "node_modules/@bytecodealliance/componentize-js";

/// The toolchain in one line.
pub(crate) fn found(tools: &Tools) -> Result<String, KitError> {
    let js = Js::find(tools, None)?;
    let version = version(&js.package).unwrap_or_default();
    let node = first_line(&js.node, ["--version"]).unwrap_or_default();
    Ok(format!(
        "componentize-js {version} on node {node} ({})",
        js.package.display()
    ))
}

/// Builds the sources into a component, without the manifest. `app.js` may import other files by relative paths.
pub(crate) fn compile(
    project: &Project,
    tools: &Tools,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, KitError> {
    let app = project.dir.join("app.js");
    if !app.is_file() {
        return Err(KitError::WrongLayout {
            path: project.dir.clone(),
            problem: "has no app.js, which a plugin in JavaScript starts from".into(),
        });
    }
    let js = Js::find(tools, Some(&project.dir))?;
    let build = project.build_dir()?;
    let place = |name: &str, text: &str| {
        let path = build.join(name);
        std::fs::write(&path, text).map_err(KitError::io(&path))?;
        Ok::<_, KitError>(path)
    };
    let driver = place("driver.mjs", DRIVER)?;
    let source = match project.manifest.world {
        World::Task => place("entry.js", ENTRY)?,
        _ => app,
    };
    let plain_http = project.manifest.world == World::Http && !project.wit_dir().exists();
    let wit = if plain_http {
        place("http.wit", HTTP)?
    } else {
        project.wit_dir()
    };
    let disabled = if plain_http {
        String::new()
    } else {
        disabled(project)?.join(",")
    };
    let output = build.join("js.wasm");
    progress("componentize-js (some 15 s)");
    let mut command = Command::new(&js.node);
    // The engine sees the folder it runs in as its root.
    command
        .current_dir(&project.dir)
        .arg(driver)
        .arg(&js.package)
        .args([source, wit, output.clone()])
        .arg(disabled);
    run(Language::Js, &mut command)?;
    let component = std::fs::read(&output).map_err(KitError::io(&output))?;
    std::fs::remove_file(&output).map_err(KitError::io(&output))?;
    Ok(component)
}

/// The parts of the engine that are left out: all that neither the world imports nor the manifest asks for.
fn disabled(project: &Project) -> Result<Vec<&'static str>, KitError> {
    let http = project.manifest.world == World::Http;
    let asks = |grant: &Grant| matches!(grant, Grant::Http(_) | Grant::HttpPrivate(_));
    let fetches = http || project.manifest.permissions().any(asks);
    let fine = project
        .manifest
        .permissions()
        .any(|grant| *grant == Grant::FineClock);
    let imports = wasi_imports(project)?;
    let uses = |package: &str| imports.contains(package);
    let parts = [
        ("stdio", http || uses("cli")),
        ("random", fetches || uses("random")),
        ("clocks", fetches || fine || uses("clocks")),
        ("http", fetches || uses("http")),
        ("fetch-event", http),
    ];
    Ok(parts
        .into_iter()
        .filter_map(|(part, used)| (!used).then_some(part))
        .collect())
}

/// The packages of `wasi` that the project's world imports, as in `clocks`.
pub(crate) fn wasi_imports(project: &Project) -> Result<BTreeSet<String>, KitError> {
    let (resolve, world) = project.world()?;
    let interfaces = resolve.worlds[world]
        .imports
        .values()
        .filter_map(|item| match item {
            WorldItem::Interface { id, .. } => resolve.interfaces[*id].package,
            _ => None,
        });
    let names = interfaces.map(|package| &resolve.packages[package].name);
    Ok(names
        .filter(|name| name.namespace == "wasi")
        .map(|name| name.name.clone())
        .collect())
}

/// Node and componentize-js.
struct Js {
    node: PathBuf,
    package: PathBuf,
}

impl Js {
    fn find(tools: &Tools, dir: Option<&Path>) -> Result<Self, KitError> {
        let node = tools.program("node").ok_or_else(|| KitError::MissingTool {
            tool: "node",
            why: "not on PATH".into(),
            hint: "install Node 20 or later from https://nodejs.org".into(),
        })?;
        let global = || {
            let root = first_line(&tools.program("npm")?, ["root", "--global"])?;
            PathBuf::from(root).parent().map(Path::to_path_buf)
        };
        let near = dir.into_iter().chain(tools.extra()).map(Path::to_path_buf);
        let package = near
            .chain(std::iter::once_with(global).flatten())
            .map(|folder| folder.join(PACKAGE))
            .find(|package| package.join("src/componentize.js").is_file())
            .ok_or_else(|| KitError::MissingTool {
                tool: "componentize-js",
                why: "neither in the project's node_modules nor among npm's global packages".into(),
                hint: "run `npm install --global @bytecodealliance/componentize-js@0.23`".into(),
            })?;
        Ok(Self { node, package })
    }
}

fn version(package: &Path) -> Option<String> {
    let text = std::fs::read_to_string(package.join("package.json")).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    json["version"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_brings_only_the_parts_that_it_asks_for() {
        let dir = tempfile::tempdir().unwrap();
        crate::create(dir.path(), "hello", Language::Js, World::Task).unwrap();
        let mut project = Project::open(dir.path()).unwrap();
        assert_eq!(
            disabled(&project).unwrap(),
            ["stdio", "random", "clocks", "http", "fetch-event"]
        );
        project.manifest.asks.push("http:example.org".parse().unwrap());
        assert_eq!(disabled(&project).unwrap(), ["stdio", "fetch-event"]);
        project.manifest.world = World::Http;
        assert!(disabled(&project).unwrap().is_empty());
    }

    #[test]
    fn a_project_without_app_js_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        crate::create(dir.path(), "hello", Language::Js, World::Task).unwrap();
        std::fs::remove_file(dir.path().join("app.js")).unwrap();
        let project = Project::open(dir.path()).unwrap();
        let error = compile(&project, &Tools::find(None), &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("has no app.js"), "{error}");
    }
}
