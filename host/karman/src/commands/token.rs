use crate::app::App;
use crate::held::clock;
use crate::input::Input;
use clap::{Args, Subcommand};
use karman_gateway::{AccessTerms, AccessToken, CallerLimits, Revoked, Right, TokenError};
use karman_package::PublicKey;
use karman_types::{ByteSize, TaskError, parse_duration};
use serde_json::json;
use std::time::Duration;

/// `karman token`
#[derive(Args, Debug)]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Verb,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a token, signed by the key of this node
    #[command(
        after_help = "Examples:\n  karman token issue sensor-7 --right infer:digits-* --expires 30d\n  karman token issue app --right infer:* --right call:* --rate 100 --body 8MiB"
    )]
    Issue(Issue),
    /// Show what a token gives
    #[command(after_help = "Examples:\n  karman token inspect En0KEw…\n  karman token inspect - < token.txt")]
    Inspect(Inspect),
    /// Take a token back: the gateway of this node's folder heeds it within a second; others that take it by `token-keys` do not
    #[command(
        after_help = "Examples:\n  karman token revoke 4f2a6c1e9b07d35882e1a0c4d6f7b910\n  karman token revoke 4f2a6c1e9b07d35882e1a0c4d6f7b910 --json"
    )]
    Revoke(Revoke),
}

/// `karman token issue`
#[derive(Args, Debug)]
struct Issue {
    /// Who it is for, as logs write it
    name: String,
    /// What the holder may do: infer:PATTERN, call:PATTERN, http:PATTERN, flow:PATTERN, metrics, admin or manage; may be given again
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    rights: Vec<Right>,
    /// How long it lasts
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
    expires: Duration,
    /// Requests a second, in the mean
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// The longest body of a request
    #[arg(long, value_name = "SIZE")]
    body: Option<ByteSize>,
    /// Requests at once
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
}

/// `karman token inspect`
#[derive(Args, Debug)]
struct Inspect {
    /// The token; - for standard input
    token: String,
    /// The key that signed it, where that is not this node's
    #[arg(long, value_name = "KEY")]
    key: Option<PublicKey>,
}

/// `karman token revoke`
#[derive(Args, Debug)]
struct Revoke {
    /// Its id, as `karman token inspect` shows it
    id: String,
}

impl Token {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Issue(verb) => verb.run(app),
            Verb::Inspect(verb) => verb.run(app),
            Verb::Revoke(verb) => verb.run(app),
        }
    }
}

fn refused(error: TokenError) -> TaskError {
    TaskError::new(error.kind(), error.to_string())
}

impl Issue {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let keys = app.keys()?;
        let terms = AccessTerms {
            name: self.name.clone(),
            rights: self.rights.clone(),
            not_after: clock().after(self.expires),
            limits: CallerLimits {
                rate: self.rate,
                body: self.body,
                at_once: self.at_once,
            },
        };
        let text = AccessToken::issue(keys.node().seed(), &terms, clock()).map_err(refused)?;
        let key = PublicKey::from_bytes(keys.node().public());
        let token = AccessToken::read(&text, &[key]).map_err(refused)?;
        app.output.result(
            || text.clone(),
            || json!({ "token": text, "id": token.id, "terms": terms }),
        )?;
        app.output.note(format!(
            "id {}, until {}; callers send it as `authorization: Bearer TOKEN`",
            token.id, terms.not_after
        ));
        Ok(())
    }
}

impl Inspect {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let text = match self.token.as_str() {
            "-" => {
                let input = Input::read(Some("-"), None, ByteSize::kib(64))?.body;
                String::from_utf8_lossy(&input).trim().to_owned()
            }
            text => text.to_owned(),
        };
        let key = match self.key {
            Some(key) => key,
            None => PublicKey::from_bytes(app.keys()?.node().public()),
        };
        let token = AccessToken::read(&text, &[key]).map_err(refused)?;
        let ended = token.check(clock()).is_err();
        app.output.result(
            || shown(&token, ended),
            || json!({ "token": token, "ended": ended }),
        )
    }
}

fn shown(token: &AccessToken, ended: bool) -> String {
    let terms = &token.terms;
    let rights: Vec<String> = terms.rights.iter().map(ToString::to_string).collect();
    let limit = |value: Option<String>| value.unwrap_or_else(|| "not limited".into());
    let limits = &terms.limits;
    format!(
        "{}   {}\nrights   {}\nends     {}{}\nrate     {}\nbody     {}\nat once  {}",
        terms.name,
        token.id,
        rights.join(" "),
        terms.not_after,
        if ended { " (is over)" } else { "" },
        limit(limits.rate.map(|rate| format!("{rate} a second"))),
        limit(limits.body.map(|size| size.to_string())),
        limit(limits.at_once.map(|most| most.to_string())),
    )
}

impl Revoke {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let id = self.id.as_str();
        if id.len() != 32
            || !id
                .bytes()
                .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
        {
            return Err(
                TaskError::invalid(format!("`{id}` is no token's id: 32 hexadecimal digits"))
                    .with_field("id")
                    .with_hint("`karman token inspect TOKEN` shows it"),
            );
        }
        // The folder is made if need be, as for every key.
        app.keys()?;
        Revoked::of(&app.places.state).add(id)?;
        app.output
            .note("gateways of this folder take it no more; one that has this machine's key in `token-keys` has a list of its own");
        app.output
            .result(|| format!("{id}   revoked"), || json!({ "revoked": id }))
    }
}
