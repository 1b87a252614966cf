//! Workflows in the shapes that compound systems have.

use crate::support::Home;

#[test]
fn a_workflow_begins_in_one_of_eight_shapes() {
    let home = Home::new();
    let shapes = [
        "pipeline",
        "router",
        "cascade",
        "vote",
        "retrieval",
        "critic",
        "planner-workers",
        "guard",
    ];
    for shape in shapes {
        home.run(["flow", "new", shape]).ok();
        let file = format!("{shape}.toml");
        let drawn = home.run(["flow", "graph", &file, "--svg", "flow.svg"]).ok();
        assert!(!drawn.out().is_empty(), "{drawn:?}");
        home.run(["flow", "new", shape]).fails(2, "is there already");
    }
    home.run(["flow", "new", "vote", "other.toml"]).ok();
    assert!(home.path().join("other.toml").exists());
}
