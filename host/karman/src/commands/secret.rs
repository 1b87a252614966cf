use crate::app::App;
use crate::held::Held;
use clap::{Args, Subcommand};
use karman_types::TaskError;
use serde_json::json;
use std::io::{IsTerminal, Read};

/// The most that is read; how much a node's store takes of it is for `[store] secret` to say.
const MOST_BYTES: u64 = 1 << 20;

/// `karman secret`
#[derive(Args, Debug)]
pub(crate) struct Secret {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set a secret; its value comes from standard input, without the last line break, or is asked for and not shown
    #[command(
        after_help = "Examples:\n  karman secret set api-token < token.txt\n  pass show tiles | karman secret set tiles-token"
    )]
    Set(Named),
    /// List the names of secrets
    #[command(after_help = "Examples:\n  karman secret list\n  karman secret list --json")]
    List,
    /// Remove a secret: plugins that read it find none from then on
    #[command(
        after_help = "Examples:\n  karman secret remove api-token\n  karman secret remove api-token --json"
    )]
    Remove(Named),
}

#[derive(Args, Debug)]
struct Named {
    /// The name by which plugins read it
    name: String,
}

impl Secret {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Set(Named { name }) => set(app, name),
            Verb::Remove(Named { name }) => remove(app, name),
            Verb::List => {
                let names = Held::if_any(app)?
                    .map(|held| held.secrets())
                    .transpose()?
                    .unwrap_or_default();
                names
                    .iter()
                    .try_for_each(|name| app.output.result(|| name.clone(), || json!({ "name": name })))
            }
        }
    }
}

fn set(app: &App, name: &str) -> Result<(), TaskError> {
    let value = read(name)?;
    if value.is_empty() {
        return Err(TaskError::invalid(format!("the value of `{name}` is empty"))
            .with_field("value")
            .with_hint(format!(
                "give it on standard input: karman secret set {name} < FILE"
            )));
    }
    Held::open(app)?.set_secret(name, value)?;
    app.output
        .result(|| format!("{name} is set"), || json!({ "name": name }))
}

fn remove(app: &App, name: &str) -> Result<(), TaskError> {
    let held = Held::if_any(app)?;
    let removed = held.map(|held| held.remove_secret(name)).transpose()?;
    if removed != Some(true) {
        return Err(
            TaskError::unavailable(format!("there is no secret `{name}` here"))
                .with_field("name")
                .with_hint("`karman secret list` shows the names of those that there are"),
        );
    }
    app.output
        .result(|| format!("{name} is removed"), || json!({ "name": name }))
}

/// The value of a secret: a line that is typed, or all that standard input brings.
fn read(name: &str) -> Result<Vec<u8>, TaskError> {
    let unread =
        |error: std::io::Error| TaskError::unavailable(format!("standard input cannot be read: {error}"));
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let typed = rpassword::prompt_password(format!("the value of `{name}`: ")).map_err(unread)?;
        return Ok(typed.into_bytes());
    }
    let mut value = Vec::new();
    stdin
        .lock()
        .take(MOST_BYTES + 1)
        .read_to_end(&mut value)
        .map_err(unread)?;
    if value.len() as u64 > MOST_BYTES {
        return Err(
            TaskError::limit(format!("the value of `{name}` is longer than {MOST_BYTES} bytes"))
                .with_field("value"),
        );
    }
    if value.ends_with(b"\n") {
        value.pop();
    }
    Ok(value)
}
