//! Runs and tasks whose time is over: that which their workflow sets, and that which it does not.

use super::{alone, begin, counted, step, until, why};
use crate::mesh::{home, path, up};
use serde_json::json;

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
    let told = why(&node, &run);
    assert_eq!(
        (&told["cause"], &told["error"]["field"]),
        (&json!("outlived"), &json!("tasks.lifetime")),
        "{told}"
    );
    let told = node.run(&["why", &run]).ok().out();
    assert!(
        told.contains("how `endless` ended: it outlived its time because")
            && told.contains("`tasks.lifetime` (20 s)")
            && told.ends_with("; undone: `count`"),
        "{told}"
    );
}

#[test]
fn a_task_that_takes_too_long_is_tried_again_and_its_run_says_which_time_was_over() {
    let node = alone();
    let text = r#"
        name = "late"

        [task.wait]
        run = "tally"
        timeout = "1 s"
        retries = 1
        pause = "100 ms"
        with = { sleep = "9000" }
    "#;
    let run = begin(&node, text, "road");
    let ended = until(&node, &run, |status| {
        status["state"] == "failed" || status["state"] == "cancelled"
    });
    assert_eq!(
        (
            &ended["state"],
            &ended["error"]["kind"],
            &step(&ended, "wait")["attempts"]
        ),
        (&json!("failed"), &json!("deadline"), &json!(2)),
        "{ended}"
    );
    let told = why(&node, &run);
    assert_eq!(
        (&told["cause"], &told["error"]["field"], &told["failed"]),
        (&json!("failed"), &json!("timeout"), &json!("wait")),
        "{told}"
    );
}
