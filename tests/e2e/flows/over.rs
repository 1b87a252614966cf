//! Runs whose time is over though their workflow sets none.

use super::{begin, counted, until};
use crate::mesh::{home, path, up};

#[test]
fn a_run_without_a_deadline_ends_with_what_is_accepted_and_says_so() {
    let home = home("edge");
    home.configure("[tasks]\nlifetime = \"20 s\"\n");
    let node = up(home, &[]);
    node.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let text = r#"
        name = "endless"

        [task.count]
        run = "tally"
        undo = "tally"

        [task.wait]
        run = "nowhere"
        after = ["count"]
    "#;
    let run = begin(&node, text, "road");
    let ended = until(&node, &run, |status| status["state"] == "failed");
    assert_eq!(ended["error"]["kind"], "deadline", "{ended}");
    assert_eq!(ended["error"]["field"], "tasks.lifetime", "{ended}");
    assert_eq!(counted(&node, r#"{"input":"road","output":"1"}"#), "1", "{ended}");
    let told = node.server.get(&format!("/flows/{run}/events")).text();
    assert!(told.contains("event: undoing\n"), "{told}");
    let said = node.home.said("a run has failed");
    assert!(said.contains(&run) && said.contains("20 s"), "{said}");
    // The caller that waits is told as well.
    node.run(&["flow", "status", &run]).ok();
    node.run(&["task", "result", &run])
        .fails(1, "has not ended in time");
}
