//! The published interfaces: a change of their text is a new version, not an edit.

use crate::support::root;
use std::fs;

/// `karman:task@0.1.0` as published. What the comments say may be made better; what the interfaces are may not change
/// under this version.
#[test]
fn the_published_text_of_karman_task_holds() {
    let published = fs::read_to_string(root().join("tests/e2e/karman-task-0.1.0.wit")).unwrap();
    let now = fs::read_to_string(root().join("wit/task/task.wit")).unwrap();
    assert_eq!(
        bare(&published),
        bare(&now),
        "change the version in wit/task/task.wit and publish a new text beside the old"
    );
}

/// Without comments and layout.
fn bare(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(str::split_whitespace).map(str::to_owned).collect()
}
