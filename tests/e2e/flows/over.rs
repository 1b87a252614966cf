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

#[test]
fn what_nobody_undoes_keeps_no_run_from_its_end() {
    let node = alone();
    let text = r#"
        name = "trip"

        [task.book]
        run = "tally"
        undo = "tally"

        [task.pay]
        run = "tally"
        after = ["book"]
        undo = "nosuch"
        timeout = "10 s"

        [task.check]
        run = "tally"
        after = ["pay"]
        outputs = [{ name = "sum", type = "u8" }]
    "#;
    let run = begin(&node, text, "road");
    // What it waits for is told as long as it does.
    let waits = until(&node, &run, |status| status["undoing"]["waits"].is_string());
    let undoing = &waits["undoing"];
    assert_eq!(
        (
            &waits["state"],
            &undoing["task"],
            &undoing["by"],
            &undoing["attempt"]
        ),
        (&json!("undoing"), &json!("pay"), &json!("nosuch"), &json!(1)),
        "{waits}"
    );
    let told = node.run(&["why", &run]).ok().out();
    assert!(
        told.contains("; `nosuch` is to undo `pay`, attempt 1, and waits: "),
        "{told}"
    );
    let cancelled = node.run(&["flow", "cancel", &run]).ok();
    assert!(
        cancelled.stderr.contains("nothing more to cancel"),
        "{cancelled:?}"
    );
    let ended = until(&node, &run, |status| status["state"] == "failed");
    assert_eq!(step(&ended, "book")["undone"], 1, "{ended}");
    assert_eq!(counted(&node, r#"{"input":"road","output":"1"}"#), "1", "{ended}");
    let left = ended["not-undone"].as_array().unwrap();
    assert_eq!(
        (left.len(), &left[0]["task"], &left[0]["error"]["kind"]),
        (1, &json!("pay"), &json!("deadline")),
        "{ended}"
    );
    assert_eq!(ended.get("undoing"), None, "{ended}");
}

#[test]
fn a_step_that_nobody_can_do_says_what_it_waits_for() {
    let node = alone();
    let run = begin(&node, "name = 'ghost'\n[task.count]\nrun = 'tallly'\n", "road");
    let waits = until(&node, &run, |status| step(status, "count")["waits"].is_string());
    let count = step(&waits, "count");
    assert_eq!(count["state"], "waiting", "{waits}");
    let says = count["waits"].as_str().unwrap();
    assert!(
        says.ends_with("offers `tallly`; did you mean `tally`?"),
        "{waits}"
    );
    let told = node.run(&["why", &run]).ok().out();
    assert!(told.contains(&format!("`count` waits: {says}")), "{told}");
    assert!(node.run(&["flow", "status", &run]).ok().out().contains(says));
    node.run(&["flow", "cancel", &run]).ok();
}
