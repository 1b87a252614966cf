use crate::app::App;
use crate::error::Worded;
use clap::{Args, ValueEnum};
use karman_types::{Language, TaskError, World};
use serde_json::json;
use std::path::Path;

/// `karman new`
#[derive(Args, Debug)]
pub(crate) struct New {
    /// Its name, and the folder to write: lower-case letters, digits and hyphens
    name: String,
    /// What to write it in
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    lang: Lang,
    /// What it is to be: a task, a policy that selects models (Rust and Python), puts nodes in order or places tasks (Rust), or a
    /// strategy of federated runs (Rust)
    #[arg(long, value_name = "WORLD", default_value = "task")]
    world: Template,
}

/// Each also goes by the name that a manifest has for it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Template {
    #[value(alias = "karman:task/task")]
    Task,
    #[value(hide = true, alias = "karman:task/warm-task")]
    WarmTask,
    #[value(hide = true, alias = "karman:task/task-stream")]
    TaskStream,
    #[value(alias = "karman:policy/select")]
    PolicySelect,
    #[value(alias = "karman:policy/route")]
    PolicyRoute,
    #[value(alias = "karman:policy/place")]
    PolicyPlace,
    #[value(alias = "karman:federated/strategy")]
    Strategy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lang {
    Rust,
    C,
    Python,
    Js,
}

impl New {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let lang = match self.lang {
            Lang::Rust => Language::Rust,
            Lang::C => Language::C,
            Lang::Python => Language::Python,
            Lang::Js => Language::Js,
        };
        let world = match self.world {
            Template::Task => World::Task,
            Template::WarmTask => return Err(from_task("warm-task", "say `warm = true`")),
            Template::TaskStream => return Err(from_task("task-stream", "name it as `world`")),
            Template::PolicySelect => World::PolicySelect,
            Template::PolicyRoute => World::PolicyRoute,
            Template::PolicyPlace => World::PolicyPlace,
            Template::Strategy => World::Strategy,
        };
        let files =
            karman_kit::create(Path::new(&self.name), &self.name, lang, world).map_err(Worded::worded)?;
        let name = &self.name;
        app.output.result(
            || {
                let own = files.iter().filter(|path| !path.starts_with("wit/deps"));
                let own: Vec<String> = own.map(|path| path.display().to_string()).collect();
                format!("{name}/   {}", own.join("   "))
            },
            || json!({ "name": name, "lang": lang, "world": world, "dir": name, "files": files }),
        )?;
        app.output.note(format!("next: cd {name} && karman build"));
        Ok(())
    }
}

/// What has no template begins as a task.
fn from_task(world: &str, says: &str) -> TaskError {
    let error = TaskError::invalid(format!("there is no template of karman:task/{world}"));
    error.with_field("world").with_hint(format!(
        "begin with `--world task`, include `karman:task/{world}@0.1.0` in wit/plugin.wit and {says} in karman.toml"
    ))
}
