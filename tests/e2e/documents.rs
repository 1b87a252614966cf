//! What the documents say holds: their commands are commands of this tool, their links lead somewhere.

mod before;
mod console;
mod played;
mod shown;
mod stage;

use crate::support::{Home, root};
use std::path::PathBuf;

/// README, the guides and the readme of each plugin.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SPECIFICATION.md"]
        .map(|name| root.join(name))
        .into();
    let entries = |folder: &str| {
        std::fs::read_dir(root.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    files.extend(entries("docs").filter(|path| path.extension().is_some_and(|end| end == "md")));
    files.extend(
        entries("plugins")
            .map(|path| path.join("README.md"))
            .filter(|path| path.exists()),
    );
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// The words after `karman` in a line of a console: `cloud$ karman call classify - < photo.jpg   # a comment`.
fn command(line: &str) -> Option<Vec<String>> {
    let (_, typed) = console::typed(line.trim_start())?;
    let mut words = shlex::split(typed)?
        .into_iter()
        .skip_while(|word| word.contains('='));
    let ends = |word: &String| ["|", "&", "&&", ";", ">", "<", "#", "2>"].contains(&word.as_str());
    (words.next()? == "karman").then(|| words.take_while(|word| !ends(word)).collect())
}

#[test]
fn each_command_in_the_documents_is_one_of_the_tool() {
    let home = Home::new();
    let mut seen = 0;
    for (path, text) in documents() {
        for line in text.lines() {
            let Some(words) = command(line) else { continue };
            // Everything before `--help` has to be understood first: commands, options, their values.
            let ran = home.run(words.iter().map(String::as_str).chain(["--help"]));
            assert_eq!(ran.code, 0, "{}: `{line}`: {}", path.display(), ran.stderr);
            seen += 1;
        }
    }
    assert!(
        seen > 50,
        "only {seen} commands were found: are documents read as they are written?"
    );
}

#[test]
fn each_link_between_documents_leads_to_a_file() {
    for (path, text) in documents() {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            let target = path.parent().unwrap().join(link);
            assert!(target.exists(), "{}: {}", path.display(), target.display());
        }
    }
}

#[test]
fn the_index_leads_to_each_document() {
    let folder = root().join("docs");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    let left_out: Vec<String> = names
        .filter(|name| name.ends_with(".md") && name != "README.md" && !index.contains(&format!("({name})")))
        .collect();
    assert!(left_out.is_empty(), "docs/README.md does not name {left_out:?}");
}

#[test]
fn each_study_that_holds_a_promise_stands_among_the_results() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (promises, results) = (read("SPECIFICATION.md"), read("docs/results.md"));
    let studies: Vec<&str> = promises
        .split("study `")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    assert!(studies.len() > 20, "only {studies:?} were found");
    for study in studies {
        assert!(
            results.contains(&format!("\n| `{study}` |")),
            "docs/results.md does not have `{study}`"
        );
    }
}
