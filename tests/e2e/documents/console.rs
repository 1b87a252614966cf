//! What a document has people type, and what it shows of the answers: its blocks of the language `console`.

/// A line that is typed, and what the document shows after it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Command {
    /// On whose machine: `pi` of `pi$`, nothing of a mere `$`.
    pub(super) machine: String,
    /// What is typed, in one line.
    pub(super) line: String,
    /// The lines below it.
    pub(super) shown: Vec<String>,
}

/// Each block of a document, in order.
pub(super) fn blocks(text: &str) -> Vec<Vec<Command>> {
    let mut blocks: Vec<Vec<Command>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```console") => {
                inside = true;
                blocks.push(Vec::new());
            }
            (true, "```") => inside = false,
            (true, line) => take(blocks.last_mut().unwrap(), line),
            (false, _) => {}
        }
    }
    blocks
}

/// The machine and what is typed there, of a line that begins with a prompt.
pub(super) fn typed(line: &str) -> Option<(&str, &str)> {
    let (machine, typed) = line.split_once("$ ")?;
    let is_name = machine.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then(|| (machine, typed.trim()))
}

fn take(block: &mut Vec<Command>, line: &str) {
    if let Some((machine, typed)) = typed(line) {
        return block.push(Command {
            machine: machine.into(),
            line: typed.into(),
            shown: Vec::new(),
        });
    }
    let command = block.last_mut().expect("a block begins with a prompt");
    match command.line.strip_suffix('\\') {
        Some(begun) if command.shown.is_empty() => command.line = format!("{begun}{}", line.trim()),
        _ => command.shown.push(line.into()),
    }
}

#[test]
fn a_block_is_what_is_typed_and_what_is_shown() {
    let text = "```console\npi$    karman up &\nnode 1\n\n$ curl a \\\n    b\n```\n```toml\n$ no\n```\n```console\n$ ls\n```\n";
    let command = |machine: &str, line: &str, shown: &[&str]| Command {
        machine: machine.into(),
        line: line.into(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    let first = vec![
        command("pi", "karman up &", &["node 1", ""]),
        command("", "curl a b", &[]),
    ];
    assert_eq!(blocks(text), [first, vec![command("", "ls", &[])]]);
}
