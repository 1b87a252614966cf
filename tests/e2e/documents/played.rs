//! The commands of the documents, run as they stand: each console block has an entry here, in the order of its document. A new document
//! is a few more lines of [`played`].

use super::before;
use super::console::{Command, blocks};
use super::stage::Stage;
use crate::support::root;

/// A block of a document.
#[derive(Clone, Copy)]
struct Entry {
    /// How its first command begins.
    begins: &'static str,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    /// It is run, once this was done. What it shows has to be printed, unless what is printed depends on what no document can know.
    Run {
        before: fn(&mut Stage),
        unlike: Option<&'static str>,
    },
    /// It is not run, and why.
    Left(&'static str),
}

const fn run(begins: &'static str, before: fn(&mut Stage)) -> Entry {
    let how = How::Run { before, unlike: None };
    Entry { begins, how }
}

/// Its commands have to end well, and may print other things than the document shows, for this reason.
const fn run_unlike(begins: &'static str, before: fn(&mut Stage), why: &'static str) -> Entry {
    let unlike = Some(why);
    let how = How::Run { before, unlike };
    Entry { begins, how }
}

const fn left(begins: &'static str, why: &'static str) -> Entry {
    let how = How::Left(why);
    Entry { begins, how }
}

/// The documents with their blocks; a test for each.
macro_rules! played {
    ($($test:ident: $document:literal [$($entry:expr),+ $(,)?])+) => {
        const PLAYED: &[(&str, &[Entry])] = &[$(($document, &[$($entry),+])),+];
        $(
            #[test]
            fn $test() {
                play($document);
            }
        )+
    };
}

const NOTHING: fn(&mut Stage) = |_| {};
const FASTER_OR_SLOWER: &str = "who serves depends on how fast models run here";

played! {
    readme: "README.md" [
        run("karman new hello", NOTHING),
        left("git clone", "it builds what the tests are of and runs all of them; demo.rs runs the demonstration"),
        run("karman serve fetch-hello.wasm", |stage| stage.plugin("", "fetch-hello.wasm", "fetch-hello")),
        run("karman inspect classify.wasm", |stage| stage.plugin("", "classify.wasm", "classify")),
        run("karman node up", before::a_digit),
        run("karman mesh init && karman node up", before::digits_elsewhere),
        run("karman flow run tally.toml", before::tally),
        run("karman model add digits-s", before::digits_by_the_protocol),
        run("karman fed run digits.toml", before::clients_in_one_process),
        run("karman sign --new-key", before::registry),
    ]
    start: "docs/start.md" [
        left("cargo install", "the set-up of the tests has built the tool and its compilers"),
        run("karman new hello", |stage| before::passphrase(stage, "laptop")),
        run("karman deploy hello", NOTHING),
        left("KARMAN_STATE=/tmp/board", "its folder and its ports may be somebody's"),
    ]
    first_plugin: "docs/first-plugin.md" [
        run("karman doctor", NOTHING),
        run("rustup target add", NOTHING),
        run("python3 -m venv", NOTHING),
        run("python3 -m venv", NOTHING),
        run("npm install", NOTHING),
        left("karman dev", "it does not end by itself"),
        run("karman inspect", NOTHING),
    ]
    two_pis: "docs/two-pis.md" [
        run("cargo install", NOTHING),
        run("karman mesh init", |stage| before::passphrase(stage, "pi1")),
        run("karman deploy hello-rust", before::plugin_for_the_other_board),
    ]
    node: "docs/node.md" [
        run("karman node up", |stage| stage.plugin("", "tally.wasm", "tally")),
        left("sudo install", "it takes root and systemd, and the machine is the tests' own"),
        left("sudo -u karman", "it takes root, and a user that the machine of the tests does not have"),
    ]
    tasks: "docs/tasks.md" [
        run("karman call tally", before::counting),
        run_unlike("karman mesh keepers", before::three_keepers, "the three agree on who leads"),
        run("karman node drain", before::a_service),
        left("karman mesh keepers", "it takes two disks away and carries one elsewhere; kept.rs does so with the same commands"),
    ]
    mesh: "docs/mesh.md" [
        run("karman mesh init", before::two_machines),
        run("karman mesh rotate", NOTHING),
        run_unlike("karman mesh ping", before::ping, "UDP passes between the nodes of a test; internet.rs has networks where it does not"),
        run_unlike("karman mesh ping 9c01d2e7 --rates", NOTHING, "how fast the links of a test are no document can know"),
        run_unlike("karman doctor", NOTHING, "the node of a test is behind no router"),
    ]
    gateway: "docs/gateway.md" [
        run("karman model add digits-s", before::gateway),
        run("curl -i", before::objectives),
        run("karman token issue sensor-7", NOTHING),
        run("TOKEN=$(karman token issue deployer", before::an_edge_node),
        left("sudo install", "it takes root and systemd, and the machine is the tests' own"),
    ]
    models: "docs/models.md" [
        run("karman model add flood-s", before::satellite),
        run("karman model plan flood-l", before::fog_and_cloud),
        left("karman deploy split-worker.wasm", "it takes a model of which no file is here; inside.rs splits one of ours so"),
    ]
    workflows: "docs/workflows.md" [
        run("karman deploy words.wasm", before::tally_with_plugins),
        run_unlike("karman flow run tally.toml", before::nobody_counts, "how far it is depends on when it is asked"),
        run("karman flow new", NOTHING),
        run("curl -N", before::a_run_of_tally),
        run("karman call model/digits-m", before::a_model_as_a_task),
        run("karman model add digits-s", before::examples),
        run_unlike("karman why", before::a_run_of_digits, FASTER_OR_SLOWER),
    ]
    policies: "docs/policies.md" [
        run_unlike("karman deploy plugins/prices", before::measured, FASTER_OR_SLOWER),
        run_unlike("karman call model/digits-m", before::two_have_the_model, "which of the two is asked first depends on how far they are"),
        left("karman flow status", "it takes three nodes, one of which has the model that is named; placed.rs has them"),
        run("karman new cheapest", NOTHING),
        run("karman new fastest", NOTHING),
        run("karman new first-free", NOTHING),
        run_unlike("karman why", NOTHING, "it shows a policy that fails; those of policies.rs do"),
        run_unlike("karman why", NOTHING, "it shows a policy that fails; those of policies.rs do"),
    ]
    simulator: "docs/simulator.md" [
        run("karman sim run", before::scenario),
    ]
    federated: "docs/federated.md" [
        run("karman fed run digits.toml", before::clients_in_one_process),
        run("karman deploy fed-digits.wasm", before::clients_on_nodes),
        run("karman model add flood-s", before::water),
        left("karman fed run digits.toml", "a round without a server takes more nodes than a test of documents has; fed_swarm.rs runs them"),
        run("karman new mine", before::a_strategy),
    ]
}

/// Documents of which nothing can be run in a test of documents.
const LEFT: &[(&str, &[Entry])] = &[
    (
        "docs/demo.md",
        &[
            left("cargo xtask demo", "demo.rs runs it"),
            left(
                "karman --state /tmp/karman-demo",
                "it needs a demonstration that was left running",
            ),
        ],
    ),
    (
        "docs/gpu.md",
        &[left(
            "karman gpu list",
            "it needs a GPU or a driver that plays one; gpu.rs runs the commands where there is one",
        )],
    ),
    (
        "docs/links.md",
        &[
            left(
                "karman mesh contacts",
                "it needs links that come and go; satellite.rs has them",
            ),
            left(
                "karman call tally",
                "it needs links that come and go; away.rs has them",
            ),
        ],
    ),
    (
        "docs/results.md",
        &[left(
            "cargo xtask bench",
            "studies measure a machine that does nothing else",
        )],
    ),
];

fn read(document: &str) -> Vec<Vec<Command>> {
    blocks(&std::fs::read_to_string(root().join(document)).unwrap())
}

fn entries(document: &str) -> &'static [Entry] {
    let mut all = PLAYED.iter().chain(LEFT);
    let found = all.find(|(of, _)| *of == document);
    found.map(|(_, entries)| *entries).unwrap_or_default()
}

/// Runs the blocks of a document in their order.
fn play(document: &'static str) {
    let mut stage = Stage::new(document);
    for (block, entry) in read(document).iter().zip(entries(document)) {
        assert_eq!(wrong(block, entry), None, "{document}");
        if let How::Run { before, unlike } = entry.how {
            before(&mut stage);
            stage.play(block, unlike.is_none());
        }
    }
}

/// What is wrong with the entry of a block.
fn wrong(block: &[Command], entry: &Entry) -> Option<String> {
    let first = block.first().map_or("", |command| &*command.line);
    let reason = match entry.how {
        How::Run { unlike, .. } => unlike,
        How::Left(why) => Some(why),
    };
    let is_right = first.starts_with(entry.begins) && reason != Some("");
    (!is_right).then(|| format!("the entry `{}` has the place of `{first}`", entry.begins))
}

#[test]
fn each_block_of_the_documents_is_run_or_has_a_reason_why_not() {
    let guides = std::fs::read_dir(root().join("docs")).unwrap();
    let guides = guides.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let guides = guides.filter(|name| name.ends_with(".md"));
    let guides = guides.map(|name| format!("docs/{name}"));
    let mut run = 0;
    for document in guides.chain(["README.md".to_owned()]) {
        let (blocks, entries) = (read(&document), entries(&document));
        for (block, entry) in blocks.iter().zip(entries) {
            assert_eq!(wrong(block, entry), None, "{document}");
            run += usize::from(matches!(entry.how, How::Run { .. }));
        }
        let (has, played) = (blocks.len(), entries.len());
        assert_eq!(
            has, played,
            "{document} has {has} blocks of commands, and played.rs {played}"
        );
    }
    assert!(run > 40, "only {run} blocks are run");
}

#[test]
fn the_first_steps_are_ten_commands() {
    let blocks = read("docs/start.md");
    let commands = blocks.iter().flatten();
    let named = commands.filter(|command| ["laptop", "board"].contains(&&*command.machine));
    assert_eq!(named.count(), 10);
}
