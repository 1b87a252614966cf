//! The shapes of the sweep, written down before it ran: layers as small and large networks have them.

use karman_infer::operator::Operator;

/// Rows, and numbers that go in and out of each.
const ROWS: [u32; 6] = [1, 2, 5, 16, 64, 197];
const LAYERS: [(u32, u32); 6] = [(12, 30), (64, 10), (120, 84), (256, 96), (784, 128), (1280, 400)];

/// Channels in and out, rows of a map, kernel, stride.
const CONVOLUTIONS: [[u32; 5]; 19] = [
    [3, 16, 16, 1, 1],
    [8, 24, 10, 1, 1],
    [24, 12, 12, 1, 1],
    [16, 96, 28, 1, 1],
    [96, 24, 14, 1, 1],
    [144, 32, 14, 1, 1],
    [32, 192, 14, 1, 1],
    [320, 128, 7, 1, 1],
    [64, 128, 28, 1, 1],
    [1, 8, 8, 3, 1],
    [3, 8, 16, 3, 1],
    [3, 32, 64, 3, 2],
    [8, 16, 12, 3, 1],
    [12, 12, 20, 3, 1],
    [16, 32, 16, 3, 2],
    [8, 8, 14, 5, 1],
    [32, 64, 14, 3, 1],
    [48, 48, 14, 3, 2],
    [3, 24, 48, 7, 2],
];

/// Channels, rows of a map, kernel, stride.
const DEPTHWISE: [[u32; 4]; 8] = [
    [6, 6, 3, 1],
    [12, 10, 3, 1],
    [24, 20, 3, 1],
    [48, 14, 3, 2],
    [96, 16, 3, 1],
    [144, 28, 3, 2],
    [192, 14, 3, 1],
    [32, 12, 5, 1],
];

const ELEMENTS: [u32; 7] = [100, 500, 2500, 9000, 40_000, 150_000, 600_000];

/// Every shape.
pub(super) fn operators() -> Vec<Operator> {
    let products = LAYERS
        .into_iter()
        .flat_map(|(inner, columns)| ROWS.map(|rows| Operator::MatMul { rows, inner, columns }));
    let convolutions = CONVOLUTIONS.map(|sizes| Operator::convolution(sizes, 1));
    let depthwise = DEPTHWISE.map(|[channels, side, kernel, stride]| {
        Operator::convolution([channels, channels, side, kernel, stride], channels)
    });
    products
        .chain(convolutions)
        .chain(depthwise)
        .chain(ELEMENTS.map(|elements| Operator::Relu { elements }))
        .chain(ELEMENTS.map(|elements| Operator::Add { elements }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashSet};

    #[test]
    fn no_shape_is_a_probe_or_there_twice() {
        let operators = operators();
        assert!(operators.len() >= 60, "{}", operators.len());
        let mut seen: HashSet<Operator> = Operator::probes().into_iter().collect();
        for operator in &operators {
            assert!(seen.insert(*operator), "{operator}");
        }
        let mut kinds = BTreeMap::new();
        operators
            .iter()
            .for_each(|operator| *kinds.entry(operator.kind()).or_insert(0) += 1);
        assert!(
            kinds.len() == 8 && kinds.values().all(|shapes| *shapes >= 6),
            "{kinds:?}"
        );
    }
}
