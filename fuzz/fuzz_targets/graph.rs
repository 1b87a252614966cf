//! Any bytes as a model to be cut: a typed error, or a graph whose fragments are written and drawn; never a crash, a hang or memory
//! past the limits.
#![no_main]

use karman_infer::ModelLimits;
use karman_infer::graph::Graph;
use karman_infer::inspect::Inspection;
use karman_types::ByteSize;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // libFuzzer ends at every panic; those of tract are caught on a thread of this name and are errors.
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some("karman-model") {
                end(info);
            }
        }));
    },
    |bytes: &[u8]| {
        let limits = ModelLimits {
            model: ByteSize::mib(1),
            nodes: 1_000,
            entries: 10_000,
            constants: ByteSize::mib(4),
            tensor: ByteSize::mib(4),
            run: ByteSize::mib(64),
            ..ModelLimits::default()
        };
        let Ok(graph) = Graph::read(bytes.to_vec(), &limits) else { return };
        let layers = graph.layers();
        for point in layers.cut_points(&graph) {
            let stages = layers.stages_of_chain(&[point.after]);
            graph.split(&stages).expect("a cut point is a cut");
        }
        let shown = Inspection::new(&graph, 2);
        let _ = (shown.to_string(), shown.to_svg());
    }
);
