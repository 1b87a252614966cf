use crate::app::App;
use crate::commands;
use crate::output::Output;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use karman_types::TaskError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One host runtime for Wasm plugins, from a Raspberry Pi to a satellite.
#[derive(Debug, Parser)]
#[command(name = "karman", version, max_term_width = 110)]
#[command(
    after_help = "Examples:\n  karman new hello --lang rust && cd hello && karman build\n  echo '{\"name\":\"Ada\"}' | karman run . -\n\nExit codes: 0 done, 1 the task failed, 2 wrong usage or input, 3 denied, 4 unavailable, 5 deadline or limit, 6 internal error"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Results and errors as JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more: -v what happens, -vv details
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The node's folder [default: $KARMAN_STATE, $XDG_DATA_HOME/karman or ~/.local/share/karman]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// The node's configuration [default: $KARMAN_CONFIG, $XDG_CONFIG_HOME/karman/node.toml or /etc/karman/node.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The verbs. Each is described when somebody asks for it: all of them together take a millisecond.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Write a new plugin project
    #[command(
        after_help = "Examples:\n  karman new hello --lang rust\n  karman new cheapest --lang python --world policy-select\n  karman new mean --world strategy"
    )]
    New(commands::new::New),
    /// Compile a project into one file, build/NAME.wasm
    #[command(after_help = "Examples:\n  karman build\n  karman build plugins/classify --json")]
    Build(commands::build::Build),
    /// Rebuild and run again whenever a source changes; an HTTP plugin is served
    #[command(after_help = "Examples:\n  karman dev . input.json\n  karman dev web --listen 127.0.0.1:8081")]
    Dev(commands::dev::Dev),
    /// Run a task or a command once
    #[command(
        after_help = "Examples:\n  echo '{\"name\":\"Ada\"}' | karman run . -\n  karman run classify.wasm seven.png --within 200ms\n  karman run ghcr.io/acme/count:0.1.0 -- --words report.txt"
    )]
    Run(commands::run::Run),
    /// Serve an HTTP plugin
    #[command(
        after_help = "Examples:\n  karman serve hello.wasm\n  karman serve . --listen 0.0.0.0:8080 --grant http:api.example.org"
    )]
    Serve(commands::serve::Serve),
    /// Show what a plugin is, asks for and holds
    #[command(
        after_help = "Examples:\n  karman inspect classify.wasm\n  karman inspect ghcr.io/acme/classify:0.1.0 --long"
    )]
    Inspect(commands::inspect::Inspect),
    /// Sign a plugin, or make a key to sign with
    #[command(
        after_help = "Examples:\n  karman sign --new-key publisher.pem\n  karman sign build/hello.wasm --key publisher.pem"
    )]
    Sign(commands::sign::Sign),
    /// Check who signed a plugin and that it is unchanged
    #[command(
        after_help = "Examples:\n  karman verify build/hello.wasm\n  karman verify build/hello.wasm --key publisher.pem.pub"
    )]
    Verify(commands::verify::Verify),
    /// Push a plugin to a registry
    #[command(
        after_help = "Examples:\n  karman push build/hello.wasm ghcr.io/acme/hello:0.1.0\n  karman push . localhost:5000/hello"
    )]
    Push(commands::push::Push),
    /// Pull a plugin from a registry
    #[command(
        after_help = "Examples:\n  karman pull ghcr.io/acme/hello:0.1.0\n  karman pull localhost:5000/hello -o hello.wasm"
    )]
    Pull(commands::pull::Pull),
    /// Put a plugin into service on the running node
    #[command(
        after_help = "Examples:\n  karman deploy build/hello.wasm\n  karman deploy ghcr.io/acme/classify:0.2.0 --grant-asked\n  karman deploy screen.wasm --on 9c01d2e7 --wait 2d"
    )]
    Deploy(commands::deploy::Deploy),
    /// Take a plugin out of service
    #[command(after_help = "Examples:\n  karman undeploy hello\n  karman undeploy hello --on tier=edge")]
    Undeploy(commands::undeploy::Undeploy),
    /// Call a task of the running node
    #[command(
        after_help = "Examples:\n  echo '{\"name\":\"Ada\"}' | karman call hello -\n  karman call classify seven.png --within 200ms\n  karman call report data.csv --accept kept --key 2026-11-21"
    )]
    Call(commands::call::Call),
    /// The tasks that the running node has accepted
    #[command(
        after_help = "Examples:\n  karman task list\n  karman task result 01JD7W2Z0Q8V5M3N9K4T6B1XAC --wait 30s"
    )]
    Task(commands::task::Task),
    /// Explain a decision: why this model or node served a run, a task or a call, and why a run failed
    #[command(
        after_help = "Examples:\n  karman why 01JD7W2Z0Q8V5M3N9K4T6B1XAC\n  karman why 01JD7W2Z0Q8V5M3N9K4T6B1XAC --json"
    )]
    Why(commands::why::Why),
    /// Make every logged decision again and compare the results
    #[command(
        after_help = "Examples:\n  karman replay --save decisions.cbor\n  karman replay decisions.cbor"
    )]
    Replay(commands::replay::Replay),
    /// Show the running node's plugins and their counters, once
    #[command(after_help = "Examples:\n  karman top\n  karman top --json")]
    Top(commands::top::Top),
    /// See the whole continuum at work on this machine
    #[command(after_help = "Examples:\n  karman demo flood\n  karman demo flood --keep")]
    Demo(commands::demo::Demo),
    /// Say what would not work on this machine, and how to fix it
    #[command(
        after_help = "Examples:\n  karman doctor\n  karman doctor --json\n\nMarks: `ok` works; `--` does not, and the hint says how to get it, should you need it\nExit code: 0, 2 when node.toml is refused, or 4 when no plugin can run on this machine"
    )]
    Doctor(commands::doctor::Doctor),
    /// Run a node and speak to it
    #[command(after_help = "Examples:\n  karman node up\n  karman node logs --follow")]
    Node(commands::node::Node),
    /// Make a mesh, invite and remove nodes, and list them
    #[command(
        after_help = "Examples:\n  karman mesh init --backup mesh-root.txt\n  karman mesh invite --tier edge --expires 7d"
    )]
    Mesh(commands::mesh::Mesh),
    /// The models that this node holds
    #[command(after_help = "Examples:\n  karman model add digits-m digits-m.onnx\n  karman model list")]
    Model(commands::model::Model),
    /// Workflows of tasks
    #[command(
        after_help = "Examples:\n  karman flow run flood.toml --input tiles.json\n  karman flow graph flood.toml --svg flood.svg"
    )]
    Flow(commands::flow::Flow),
    /// List, check and measure the GPUs and the processor
    #[command(after_help = "Examples:\n  karman gpu list\n  karman gpu check --device vulkan-0")]
    Gpu(commands::gpu::Gpu),
    /// Run a node as a gateway for callers with a token; other machines reach it with --listen 0.0.0.0:8080
    #[command(
        after_help = "Examples:\n  karman gateway --open infer:*\n  karman gateway --listen 0.0.0.0:8080 --tls-certificate gateway.pem --tls-key gateway.key"
    )]
    Gateway(commands::gateway::Gateway),
    /// Tokens for those who call the gateway
    #[command(
        after_help = "Examples:\n  karman token issue sensor-7 --right infer:digits-* --expires 30d\n  karman token revoke 4f2a6c1e9b07d35882e1a0c4d6f7b910"
    )]
    Token(commands::token::Token),
    /// Federated runs: nodes train a model together and keep their data
    #[command(
        after_help = "Examples:\n  karman fed run digits.toml\n  karman fed report digits -o digits.html"
    )]
    Fed(commands::fed::Fed),
    /// Simulate nodes, links and workloads
    #[command(
        after_help = "Examples:\n  karman sim run scenario.toml\n  karman sim run scenario.toml --seed 7 --out results"
    )]
    Sim(commands::sim::Sim),
    /// Secrets for plugins
    #[command(after_help = "Examples:\n  karman secret set api-token < token.txt\n  karman secret list")]
    Secret(commands::secret::Secret),
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  karman completions bash > ~/.local/share/bash-completion/completions/karman\n  karman completions fish > ~/.config/fish/completions/karman.fish"
    )]
    Completions(commands::completions::Completions),
    /// Load an ONNX Runtime and print its version: run as a child of our own
    #[command(hide = true)]
    ProbeOnnxruntime(commands::probe::ProbeOnnxruntime),
    /// Try a model from standard input: run as a child of our own
    #[command(hide = true)]
    ProbeModel,
    /// Ask every GPU driver what it has: run as a child of our own
    #[command(hide = true)]
    ProbeGpu,
    /// Hold a GPU and do what standard input asks: run as a child of our own
    #[command(hide = true)]
    ServeGpu(commands::gpu::ServeGpu),
}

/// Reads the arguments, runs the command and answers the exit code.
pub(crate) fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(cli.global.json, cli.global.quiet);
    let app = App::new(cli.global, output);
    commands::run(cli.command, &app).unwrap_or_else(|error| {
        app.output.error(&error);
        error.kind.exit_code()
    })
}

/// Help and version go to standard output, wrong usage to standard error.
fn usage(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        let output = Output::new(false, false);
        let text = error.render();
        let shown = match output.colour_out() {
            true => output.bytes(text.ansi().to_string().as_bytes()),
            false => output.bytes(text.to_string().as_bytes()),
        };
        return shown.map_or(6, |()| 0);
    }
    let as_json = std::env::args_os()
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json");
    if !as_json {
        // Nobody is left to tell when standard error is closed.
        let _ = error.print();
        return 2;
    }
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what
        .strip_prefix("error: ")
        .unwrap_or(what)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let mut wrong = TaskError::invalid(what).with_hint(see_help());
    wrong.field = field_of(error);
    Output::new(true, false).error(&wrong);
    2
}

/// Where to read what this very command takes.
pub(crate) fn see_help() -> String {
    let words = std::env::args_os().filter_map(|word| word.into_string().ok());
    format!("`{} --help` shows what it takes", called(words.skip(1)))
}

/// The command that these words call, as far as there is one: `karman mesh invite`.
fn called(words: impl Iterator<Item = String>) -> String {
    let mut grammar = Cli::command();
    // Also what is described only when it is asked for.
    grammar.build();
    let (mut path, mut command) = (String::from("karman"), &grammar);
    for word in words.take_while(|word| word != "--") {
        if let Some(verb) = command
            .find_subcommand(&word)
            .filter(|verb| verb.get_name() != "help")
        {
            path.push(' ');
            path.push_str(verb.get_name());
            command = verb;
        }
    }
    path
}

/// The argument that is wrong: `within` of `--within <TIME>`, `plugin` of `<PLUGIN>`.
fn field_of(error: &clap::Error) -> Option<String> {
    let argument = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(argument) => argument,
        ContextValue::Strings(arguments) => arguments.first()?,
        _ => return None,
    };
    let name = argument.split([' ', '=']).next()?.trim_start_matches('-');
    Some(name.trim_matches(['<', '>', '[', ']', '.']).to_lowercase())
}

/// Reads an address to listen on: `127.0.0.1:8080`, `localhost:8080` or `:8080`, which is this machine only.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':'));
    let address = local.map_or_else(
        || text.parse().ok(),
        |port| port.parse().ok().map(|port: u16| ([127, 0, 0, 1], port).into()),
    );
    address.ok_or_else(|| "an address is written `127.0.0.1:8080`; `0.0.0.0:8080` listens to all".into())
}

/// Reads `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("it is written `KEY=VALUE`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grammar() -> clap::Command {
        let mut command = Cli::command();
        // Also what is described only when it is asked for.
        command.build();
        command
    }

    fn walk(command: &clap::Command, path: &str, see: &mut impl FnMut(&clap::Command, &str)) {
        see(command, path);
        let is_ours = |child: &&clap::Command| !child.is_hide_set() && child.get_name() != "help";
        for child in command.get_subcommands().filter(is_ours) {
            walk(child, &format!("{path} {}", child.get_name()), see);
        }
    }

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_two_examples_of_itself() {
        walk(&grammar(), "karman", &mut |command, path| {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let examples = help
                .lines()
                .filter(|line| line.starts_with("  ") && line.contains(path))
                .count();
            assert!(examples >= 2, "`{path}` has {examples} examples");
        });
    }

    #[test]
    fn the_examples_are_understood() {
        walk(&grammar(), "karman", &mut |command, path| {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in help.lines().filter_map(|line| line.strip_prefix("  ")) {
                let words = line
                    .split(['|', '<', '>'])
                    .find(|part| part.trim_start().starts_with("karman"));
                let words = words
                    .unwrap_or_default()
                    .split(" && ")
                    .next()
                    .unwrap_or_default()
                    .split_whitespace();
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("`{path}`: {line}: {error}");
                }
            }
        });
    }

    #[test]
    fn a_command_of_the_plugin_keeps_its_own_flags() {
        let cli = Cli::try_parse_from(["karman", "run", "count.wasm", "-", "--", "--json", "-v"]).unwrap();
        let Command::Run(run) = cli.command else {
            panic!("not run")
        };
        assert_eq!(
            (run.input.as_deref(), run.args.join(" ").as_str()),
            (Some("-"), "--json -v")
        );
        assert!(!cli.global.json && cli.global.verbose == 0);
    }

    #[test]
    fn wrong_values_are_refused() {
        for words in [
            &["karman", "run", "a.wasm", "--grant", "vk:road"][..],
            &["karman", "run", "a.wasm", "--within", "200"],
            &["karman", "run", "a.wasm", "--meta", "novalue"],
            &["karman", "serve", "a.wasm", "--listen", "8080"],
            &["karman", "new", "hello", "--lang", "cobol"],
            &["karman", "sign"],
            &["karman", "top", "-q", "-v"],
        ] {
            assert!(Cli::try_parse_from(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn wrong_usage_names_the_command_and_the_argument() {
        for (line, of, field) in [
            ("karman run a.wasm --within 200", "karman run", Some("within")),
            ("karman run", "karman run", Some("plugin")),
            (
                "karman --json mesh invite --tier sea",
                "karman mesh invite",
                Some("tier"),
            ),
            ("karman mesh revoke", "karman mesh revoke", Some("node")),
            ("karman top --lang", "karman top", Some("lang")),
            ("karman mesh rob", "karman mesh", None),
        ] {
            let words = || line.split_whitespace().map(str::to_owned);
            let error = Cli::try_parse_from(words()).unwrap_err();
            assert_eq!(called(words().skip(1)), of, "{line}");
            assert_eq!(field_of(&error).as_deref(), field, "{line}");
        }
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(listen(":0"), Ok(([127, 0, 0, 1], 0).into()));
        assert_eq!(listen("localhost:80"), listen("127.0.0.1:80"));
        assert!(listen("[::1]:80").is_ok() && listen(":99999").is_err() && listen("example.org:80").is_err());
    }

    #[test]
    fn pairs_are_read() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
