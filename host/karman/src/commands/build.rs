use crate::app::App;
use crate::error::Worded;
use crate::source;
use clap::Args;
use karman_kit::{Built, Project};
use karman_types::{Grant, TaskError, format_bytes, format_duration};
use serde_json::json;
use std::path::PathBuf;

/// `karman build`
#[derive(Args, Debug)]
pub(crate) struct Build {
    /// The project's folder
    #[arg(default_value = ".")]
    dir: PathBuf,
}

impl Build {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let project = Project::open(&self.dir).map_err(Worded::worded)?;
        let built = source::build(app, &project)?;
        show(app, &built)
    }
}

/// `hello 0.1.0   world karman:task/task   108 KiB   asks: nothing`.
pub(crate) fn show(app: &App, built: &Built) -> Result<(), TaskError> {
    let Built {
        path,
        bytes,
        manifest,
        took,
    } = built;
    app.output.result(
        || {
            let (name, version, world, size) = (&manifest.name, &manifest.version, manifest.world, format_bytes(*bytes));
            format!("{name} {version}   world {world}   {size}   asks: {}", list(&manifest.asks))
        },
        || {
            json!({
                "name": manifest.name, "version": manifest.version, "world": manifest.world.as_str(), "bytes": bytes,
                "asks": manifest.asks, "path": path, "took_ms": crate::answer::millis(*took),
            })
        },
    )?;
    tracing::info!(path = %path.display(), took = format_duration(*took), "built");
    Ok(())
}

/// Grants as people read them; `nothing` where there is none.
pub(crate) fn list<'a>(grants: impl IntoIterator<Item = &'a Grant>) -> String {
    let names: Vec<String> = grants.into_iter().map(ToString::to_string).collect();
    match names.is_empty() {
        true => "nothing".into(),
        false => names.join(", "),
    }
}
