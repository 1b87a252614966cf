//! The first steps of a newcomer, run as `docs/start.md` has them: each prompt is a machine of its own.

use crate::mesh::home;
use crate::support::{Home, Ran, Server, root};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// What makes the tool and brings it to the second machine; the set-up has done that here.
const DONE: [&str; 3] = ["cargo", "rustup", "scp"];
/// What the document writes where an invitation goes.
const INVITATION: &str = "kmn1…";

struct Machine {
    home: Home,
    server: Option<Server>,
}

impl Machine {
    fn new(home: Home) -> Self {
        Self { home, server: None }
    }

    /// The line in a shell that finds the tool.
    fn shell(&self, line: &str) -> Command {
        let tool = std::path::Path::new(env!("CARGO_BIN_EXE_karman"));
        let path = std::env::var("PATH").unwrap();
        let mut command = self.home.command([""; 0]);
        let mut shell = Command::new("bash");
        shell.args(["-c", line]).current_dir(self.home.path());
        for (name, value) in command.stdin(Stdio::null()).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        // The bindings generator was compiled with the guests; a user's first build takes longer by that.
        shell.env("CARGO_TARGET_DIR", root().join("target/plugins"));
        shell.env("PATH", format!("{}:{path}", tool.parent().unwrap().display()));
        shell
    }
}

#[test]
fn ten_commands_lead_to_a_plugin_on_a_second_node() {
    let text = std::fs::read_to_string(root().join("docs/start.md")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut machines: BTreeMap<&str, Machine> = BTreeMap::new();
    let (mut commands, mut checked, mut invitation) = (0, 0, String::new());
    for (at, line) in lines.iter().enumerate() {
        let Some((machine, command)) = line.split_once("$ ") else {
            continue;
        };
        if !["laptop", "board"].contains(&machine) {
            continue;
        }
        commands += 1;
        if DONE.iter().any(|tool| command.starts_with(tool)) {
            continue;
        }
        let machine = machines
            .entry(machine)
            .or_insert_with(|| Machine::new(home("cloud")));
        let command = command.replace(INVITATION, &invitation);
        if let Some(server) = command.strip_suffix(" &") {
            // As on a machine of its own, whose ports nobody else has.
            let shell = machine.shell(&format!("exec {server} --listen 127.0.0.1:0"));
            machine.server = Some(machine.home.started(shell));
            continue;
        }
        let ran = Ran::of(machine.shell(&command).output().unwrap()).ok();
        match lines[at + 1] {
            INVITATION => invitation = ran.out(),
            "```" => continue,
            shown if shown.contains("$ ") => continue,
            shown => assert_eq!(ran.out(), shown, "{command}"),
        }
        checked += 1;
    }
    assert_eq!((commands, checked), (10, 2));
    assert!(machines.values().all(|machine| machine.server.is_some()));
}

#[test]
fn a_first_plugin_in_each_language_builds_and_answers() {
    let text = std::fs::read_to_string(root().join("docs/first-plugin.md")).unwrap();
    // What follows does not end by itself, or needs a node.
    let (text, _) = text.split_once("## Change it").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let machine = Machine::new(Home::new());
    let (mut languages, mut answers) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        let Some(command) = line.strip_prefix("$ ") else {
            continue;
        };
        if !command.contains("karman ") {
            continue; // The set-up has installed the compilers.
        }
        languages += usize::from(command.contains("--lang"));
        // The packages that stand beside the compilers are not those of the plugin.
        let mut shell = machine.shell(command);
        let ran = Ran::of(shell.env_remove("VIRTUAL_ENV").output().unwrap()).ok();
        if lines[at + 1].starts_with('{') {
            assert_eq!(ran.out(), lines[at + 1], "{command}");
            answers += 1;
        }
    }
    assert_eq!((languages, answers), (4, 4));
}
