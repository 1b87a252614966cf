//! Local runs that have no room on their node.

use super::{GROWS, begin, status, until, why};
use crate::mesh::{home, path, up};
use serde_json::json;

#[test]
fn a_local_run_that_outgrows_the_room_of_its_node_is_undone_and_says_why() {
    let home = home("edge");
    home.configure("[store]\nprogress-bytes = \"64 KiB\"\n");
    let node = up(home, &[]);
    node.run(&["deploy", &path("hostile")]).ok();
    // In three quarters there is room for the input and one output, but not for two.
    let run = begin(&node, GROWS, &"x".repeat(20_000));
    let ended = until(&node, &run, |status| status["state"] == "failed");
    assert_eq!(
        (
            &ended["error"]["kind"],
            &ended["error"]["field"],
            &ended["failed"]
        ),
        (&json!("limit"), &json!("store.progress-bytes"), &json!("two")),
        "{ended}"
    );
    assert_eq!(ended.get("not-undone"), None, "{ended}");
    let told = why(&node, &run);
    assert_eq!(
        (&told["cause"], &told["error"], &told["undone"]),
        (
            &json!("outgrown"),
            &ended["error"],
            &json!([{ "task": "one", "runs": 1 }])
        ),
        "{told}"
    );
    let told = node.run(&["why", &run]).ok().out();
    assert!(
        told.contains("how `grows` ended: it outgrew the room of its node in `two`")
            && told.contains("`store.progress-bytes` (64 KiB)"),
        "{told}"
    );

    // One that has no room in any case does nothing, and pushes nothing out.
    let too_long = begin(&node, GROWS, &"x".repeat(40_000));
    let refused = until(&node, &too_long, |status| status["state"] == "failed");
    assert_eq!(
        (&refused["error"]["field"], refused.get("failed")),
        (&json!("store.progress-bytes"), None),
        "{refused}"
    );
    assert_ne!(status(&node, &run)["steps"], json!([]));
    // What is known of a run that has ended makes room for the next one.
    let text = "name = 'fits'\n[task.one]\nrun = 'hostile'\nwith = { do = 'echo' }";
    let fits = begin(&node, text, &"y".repeat(12_000));
    until(&node, &fits, |status| status["state"] == "done");
    let known = status(&node, &run);
    assert_eq!(
        (&known["state"], &known["error"]["field"], &known["steps"]),
        (&json!("failed"), &json!("store.progress-bytes"), &json!([])),
        "{known}"
    );
}
