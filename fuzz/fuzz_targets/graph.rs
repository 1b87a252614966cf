//! Any bytes as a model to be cut: a typed error, or a graph whose fragments are written and drawn; never a crash, a hang or memory
//! past the limits.
#![cfg_attr(fuzzing, no_main)]

use karman_infer::graph::Graph;
use karman_infer::inspect::Inspection;

fn check(bytes: &[u8]) {
    karman_fuzz::let_models_panic();
    let Ok(graph) = Graph::read(bytes.to_vec(), &karman_fuzz::small_models()) else {
        return;
    };
    let layers = graph.layers();
    for point in layers.cut_points(&graph) {
        let stages = layers.stages_of_chain(&[point.after]);
        graph.split(&stages).expect("a cut point is a cut");
    }
    let shown = Inspection::new(&graph, 2);
    let _ = (shown.to_string(), shown.to_svg());
}

karman_fuzz::target!(check);
