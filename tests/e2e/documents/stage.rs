//! Where the commands of a document are typed: each prompt is the shell of a machine of its own, with a folder of its own and one node.

use super::console::Command;
use super::shown::Names;
use crate::choose::tract;
use crate::support::{Home, Server, guest, root};
use std::any::Any;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// What makes the tool and compilers for it, or brings it elsewhere: the set-up of the tests has done that.
const DONE: [&str; 6] = ["cargo", "npm", "pip", "python3 -m venv", "rustup", "scp"];
/// What goes on until it is stopped.
const SERVERS: [&str; 3] = ["karman node up", "karman gateway", "karman serve"];
/// Where documents have a node listen. Here no two may have the same port, so each takes one that is free.
const ADDRESS: &str = "127.0.0.1:8080";
/// What a shell says after each command, before its exit code.
const END: &str = "=== exit code ";

/// The machines of one document, and what it calls things by.
pub(super) struct Stage {
    document: &'static str,
    machines: BTreeMap<String, Machine>,
    names: Names,
    kept: Vec<Box<dyn Any>>,
}

struct Machine {
    server: Option<Server>,
    shell: Shell,
    /// Goes last: the others are at work in it.
    home: Home,
}

impl Stage {
    pub(super) fn new(document: &'static str) -> Self {
        Self {
            document,
            machines: BTreeMap::new(),
            names: Names::default(),
            kept: Vec::new(),
        }
    }

    /// Types each command of a block. What is shown after them has to be printed where this `compares`.
    pub(super) fn play(&mut self, block: &[Command], compares: bool) {
        for machine in self.machines.values_mut() {
            let home = machine.home.path().display().to_string();
            machine.shell.run(&format!("cd '{home}'"));
        }
        for command in block {
            if DONE.iter().any(|tool| command.line.starts_with(tool)) {
                continue;
            }
            let (code, printed) = self.types(&command.machine, &command.line);
            let place = format!("{}: `{}`", self.document, command.line);
            let fails = command.shown.iter().any(|line| line.starts_with("error: "));
            assert_eq!(code != 0, fails, "{place} ended with {code}:\n{printed}");
            if let Err(shown) = self.names.learn(&command.shown, &printed) {
                assert!(
                    !compares,
                    "{place}: `{shown}` is shown, but printed was\n{printed}"
                );
            }
        }
    }

    /// Types a line on a machine; the exit code and what was printed, by a server what it said before it answered.
    fn types(&mut self, machine: &str, line: &str) -> (i32, String) {
        let begun = line.strip_suffix(" &").unwrap_or(line);
        let (before, last) = match begun.rsplit_once(" && ") {
            Some((before, last)) => (Some(before), last),
            None => (None, begun),
        };
        if !SERVERS.iter().any(|server| last.starts_with(server)) {
            let line = self.names.put_in(line);
            return self.machine(machine).run(&line);
        }
        if let Some(before) = before {
            self.run(machine, before);
        }
        let server = self.names.put_in(last);
        (0, self.machine(machine).serve(&server))
    }
}

/// What a document takes for granted, done before a block.
impl Stage {
    /// A machine whose node stands there, with more lines in its `node.toml`.
    pub(super) fn set_up(&mut self, machine: &str, tier: &str, more: &str) {
        let home = tract(tier);
        let file = home.path().join("config/karman/node.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{config}{more}")).unwrap();
        // Not on a terminal, curl would draw its progress among what it prints.
        std::fs::write(
            home.path().join(".curlrc"),
            "silent\nshow-error\nnoproxy = \"*\"\n",
        )
        .unwrap();
        let shell = Shell::new(&home);
        let made = Machine {
            server: None,
            shell,
            home,
        };
        self.machines.insert(machine.to_owned(), made);
    }

    /// What the document calls `name` is this.
    pub(super) fn call(&mut self, name: &str, is: &str) {
        self.names.call(name, is);
    }

    /// Lives as long as the machines.
    pub(super) fn keep(&mut self, thing: impl Any) {
        self.kept.push(Box::new(thing));
    }

    pub(super) fn home(&mut self, machine: &str) -> &Home {
        &self.machine(machine).home
    }

    /// The id of the machine's node, as people write it.
    pub(super) fn id(&mut self, machine: &str) -> String {
        let id = self.run(machine, "karman node id");
        id.split_whitespace().next().unwrap().to_owned()
    }

    /// Types a line that has to end well; what was printed.
    pub(super) fn run(&mut self, machine: &str, line: &str) -> String {
        let (code, printed) = self.types(machine, line);
        assert_eq!(code, 0, "{}: `{line}` beforehand:\n{printed}", self.document);
        printed
    }

    /// A node that makes a mesh.
    pub(super) fn first(&mut self, machine: &str) {
        self.run(machine, "karman mesh init && karman node up");
    }

    /// A node that comes into the mesh of the first one.
    pub(super) fn join(&mut self, first: &str, machine: &str, tier: &str) {
        let every = "--right 'deploy:*' --right 'bucket-read:*' --right 'bucket-write:*'";
        let invited = self.run(first, &format!("karman mesh invite --tier {tier} {every}"));
        let word = invited.lines().next().unwrap();
        self.run(machine, &format!("karman node up --join {word}"));
    }

    /// Ends the machine's node.
    pub(super) fn down(&mut self, machine: &str) {
        if let Some(server) = self.machine(machine).server.take() {
            server.stop();
        }
    }

    /// The process of the machine's node.
    pub(super) fn process(&mut self, machine: &str) -> u32 {
        self.machine(machine).server.as_ref().unwrap().pid()
    }

    /// A file on a machine, in the folder where its commands are typed.
    pub(super) fn write(&mut self, machine: &str, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.home(machine).path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// A file of the repository under this name.
    pub(super) fn copy(&mut self, machine: &str, name: &str, of: &str) {
        self.write(machine, name, std::fs::read(root().join(of)).unwrap());
    }

    /// A plugin that is built already under this name.
    pub(super) fn plugin(&mut self, machine: &str, name: &str, built: &str) {
        self.write(machine, name, std::fs::read(guest(built)).unwrap());
    }

    fn machine(&mut self, name: &str) -> &mut Machine {
        if !self.machines.contains_key(name) {
            self.set_up(name, "edge", "");
        }
        self.machines.get_mut(name).unwrap()
    }
}

impl Machine {
    /// The exit code, and what was printed.
    fn run(&mut self, line: &str) -> (i32, String) {
        let address = self
            .server
            .as_ref()
            .map_or(ADDRESS, |server| server.address.as_str());
        self.shell.run(&line.replace(ADDRESS, address))
    }

    /// Starts a server in the place of the one before; what it said until it answered.
    fn serve(&mut self, line: &str) -> String {
        if let Some(before) = self.server.take() {
            before.stop();
        }
        let mut bash = bash(&self.home);
        bash.args(["-c", &format!("exec {}", line.replace(ADDRESS, "127.0.0.1:0"))]);
        let server = self.server.insert(self.home.started(bash));
        server.said.clone()
    }
}

/// A shell that remembers its folder and its variables from one line to the next, as that of a person does.
struct Shell {
    child: Child,
    typed: ChildStdin,
    printed: BufReader<ChildStdout>,
}

impl Shell {
    fn new(home: &Home) -> Self {
        let mut bash = bash(home);
        let pipes = bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        Self {
            typed: child.stdin.take().unwrap(),
            printed: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The exit code, and what came on both streams.
    fn run(&mut self, line: &str) -> (i32, String) {
        writeln!(
            self.typed,
            "{{ {line}\n}} </dev/null 2>&1\nprintf '\\n{END}%s\\n' $?"
        )
        .unwrap();
        let mut printed = String::new();
        loop {
            let mut line_printed = String::new();
            let more = self.printed.read_line(&mut line_printed).unwrap() > 0;
            assert!(more, "the shell ended at `{line}`:\n{printed}");
            if let Some(code) = line_printed.strip_prefix(END) {
                return (code.trim().parse().unwrap(), printed);
            }
            printed.push_str(&line_printed);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell that finds the tool, in a home of its own.
fn bash(home: &Home) -> std::process::Command {
    let tool = std::path::Path::new(env!("CARGO_BIN_EXE_karman"));
    let (folder, own) = (tool.parent().unwrap().display(), home.path().join("bin"));
    let path = std::env::var("PATH").unwrap();
    let mut bash = std::process::Command::new("bash");
    for (name, value) in home.command([""; 0]).get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    bash.current_dir(home.path())
        .env("PATH", format!("{}:{folder}:{path}", own.display()))
        .env("CURL_HOME", home.path())
        // The bindings generator was compiled with the guests; a user's first build takes longer by that.
        .env("CARGO_TARGET_DIR", root().join("target/plugins"))
        // The packages that stand beside the compilers are not those of a plugin.
        .env_remove("VIRTUAL_ENV");
    bash
}
