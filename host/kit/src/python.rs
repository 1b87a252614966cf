use crate::js::wasi_imports;
use crate::tools::{first_line, run};
use crate::{KitError, Project, Tools};
use karman_types::{Grant, Language, World};
use std::path::PathBuf;
use std::process::Command;

/// The module that the component starts from when it is a task.
const ENTRY: &str = include_str!("python/entry.py");
/// The same for a policy.
const POLICY_ENTRY: &str = include_str!("python/policy_entry.py");

/// The toolchain in one line.
pub(crate) fn found(tools: &Tools) -> Result<String, KitError> {
    let tool = componentize(tools)?;
    first_line(&tool, ["--version"])
        .map(|version| format!("{version} ({})", tool.display()))
        .ok_or_else(|| missing(format!("{} does not run", tool.display())))
}

/// Builds the sources into a component, without the manifest.
pub(crate) fn compile(
    project: &Project,
    tools: &Tools,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, KitError> {
    if !project.dir.join("app.py").is_file() {
        return Err(KitError::WrongLayout {
            path: project.dir.clone(),
            problem: "has no app.py, which a plugin in Python starts from".into(),
        });
    }
    let tool = componentize(tools)?;
    let build = project.build_dir()?;
    let output = build.join("python.wasm");
    let mut command = Command::new(tool);
    command
        .current_dir(&project.dir)
        .env("RUST_BACKTRACE", "0")
        .args([
            "--quiet",
            "--wit-path",
            "wit",
            "componentize",
            "--python-path",
            ".",
            "--output",
        ])
        .arg(&output);
    if !needs_wasi(project)? {
        command.arg("--stub-wasi");
    }
    let entry_text = match project.manifest.world {
        World::Task => Some(ENTRY),
        World::PolicySelect => Some(POLICY_ENTRY),
        _ => None,
    };
    if let Some(text) = entry_text {
        let folder = build.join("python");
        let entry = folder.join("karman_entry.py");
        std::fs::create_dir_all(&folder).map_err(KitError::io(&folder))?;
        std::fs::write(&entry, text).map_err(KitError::io(&entry))?;
        command.arg("--python-path").arg(&folder).arg("karman_entry");
    } else {
        command.arg("app");
    }
    progress("componentize-py (some 20 s)");
    run(Language::Python, &mut command).map_err(plain)?;
    let component = std::fs::read(&output).map_err(KitError::io(&output))?;
    std::fs::remove_file(&output).map_err(KitError::io(&output))?;
    Ok(component)
}

/// Leaves of the tool's output what Python said of the plugin: the tool wraps it in a traceback of its own.
fn plain(error: KitError) -> KitError {
    match error {
        KitError::Compile { lang, output } => {
            let inner = output
                .split_once("AssertionError: ")
                .map_or(&*output, |(_, inner)| inner);
            let inner = inner
                .split_once("\n\nCaused by:")
                .map_or(inner, |(inner, _)| inner);
            let output = inner.trim().to_owned();
            KitError::Compile { lang, output }
        }
        error => error,
    }
}

/// Whether the component keeps the WASI imports of CPython: all of them or none, there is no choosing.
fn needs_wasi(project: &Project) -> Result<bool, KitError> {
    let asks = |grant: &Grant| {
        matches!(
            grant,
            Grant::FineClock | Grant::Env(_) | Grant::Folder(..) | Grant::Http(_) | Grant::HttpPrivate(_)
        )
    };
    let of_system = |package: &str| {
        matches!(
            package,
            "cli" | "clocks" | "filesystem" | "http" | "io" | "random" | "sockets"
        )
    };
    let world = project.manifest.world;
    let ours = world.decides() || matches!(world, World::Task | World::TaskStream | World::Client);
    Ok(!ours
        || project.manifest.permissions().any(asks)
        || wasi_imports(project)?.iter().any(|package| of_system(package)))
}

fn componentize(tools: &Tools) -> Result<PathBuf, KitError> {
    tools
        .program("componentize-py")
        .ok_or_else(|| missing("not on PATH".into()))
}

fn missing(why: String) -> KitError {
    KitError::MissingTool {
        tool: "componentize-py",
        why,
        hint: "run `pip install 'componentize-py==0.25.*'` in a virtual environment (`python3 -m venv`)"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wasi_comes_only_with_a_permission_that_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        crate::create(dir.path(), "hello", Language::Python, World::Task).unwrap();
        let mut project = Project::open(dir.path()).unwrap();
        assert!(!needs_wasi(&project).unwrap());
        project.manifest.asks.push("nn:digits-*".parse().unwrap());
        assert!(!needs_wasi(&project).unwrap());
        project.manifest.asks.push("env:TZ".parse().unwrap());
        assert!(needs_wasi(&project).unwrap());
    }

    #[test]
    fn of_a_compile_error_what_python_said_is_left() {
        let output = "Traceback (most recent call last):\n  File \"bin/componentize-py\"\nAssertionError: \
                      ModuleNotFoundError: No module named 'x'\n\n\nCaused by:\n    the same";
        let lang = Language::Python;
        let error = plain(KitError::Compile {
            lang,
            output: output.into(),
        });
        assert!(
            error
                .to_string()
                .ends_with(":\nModuleNotFoundError: No module named 'x'"),
            "{error}"
        );
    }

    #[test]
    fn a_project_without_app_py_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        crate::create(dir.path(), "hello", Language::Python, World::Task).unwrap();
        std::fs::remove_file(dir.path().join("app.py")).unwrap();
        let project = Project::open(dir.path()).unwrap();
        let error = compile(&project, &Tools::find(None), &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("has no app.py"), "{error}");
    }
}
