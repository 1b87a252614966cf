//! Networks in pieces, really computed: the same bits as whole, each piece within the memory that was foreseen for it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_sched::partition::inside_layer::{Board, Link, PlanError, SharePlan, cost_of_share, share};
use karman_tensor::quantised::{Extent, Layer, Network, Operator, mobilenet_v2};
use karman_tensor::split::ShareTask;
use proptest::prelude::*;

fn board(free_memory: u64, operations_per_second: f64) -> Board {
    Board {
        free_memory,
        free_flash: 1,
        operations_per_second,
    }
}

/// Every kind of layer: with groups, depthwise, pointwise, an addition, a maximum, a mean, a fully connected one.
fn layers() -> Vec<Layer> {
    let input = Extent::new(4, 11, 9).unwrap();
    let mut layers = vec![Layer::convolution(input, 6, [3, 3], 2, 1, 2).unwrap()];
    let at = layers[0].output();
    layers.push(Layer::convolution(at, 6, [3, 3], 1, 1, 6).unwrap());
    layers.push(Layer::convolution(at, 6, [1, 1], 1, 0, 1).unwrap());
    layers.push(Layer::add(at, 1));
    let most = Layer::max_pool(at, [3, 3], 2, 1).unwrap();
    layers.push(Layer::average_pool(most.output()));
    layers.insert(4, most);
    layers.push(Layer::linear(layers[5].output(), 7).unwrap());
    layers
}

fn generated(layers: Vec<Layer>) -> (Network, Vec<i8>) {
    let mut state = 7u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let network = Network::generated(layers, &mut random).unwrap();
    let input = (0..network.input().elements())
        .map(|_| (random() >> 16) as i8)
        .collect();
    (network, input)
}

/// The network from its pieces. Each message is written and read, and is no longer than foreseen; each cell comes from one piece.
fn computed(network: &Network, plan: &SharePlan, input: &[i8]) -> Vec<i8> {
    let mut activations = vec![input.to_vec()];
    for (index, (layer, shared)) in network.layers().iter().zip(&plan.layers).enumerate() {
        let extent = layer.output();
        let mut output: Vec<Option<i8>> = vec![None; extent.elements()];
        for part in shared.pieces.iter().flatten() {
            let given = layer.needs(part).cut(layer.input(), &activations[index]);
            let other = match *layer.operator() {
                Operator::Add { other } => part.cut(extent, &activations[other]),
                _ => Vec::new(),
            };
            let task = ShareTask::new(network, index, part, given, other).unwrap();
            let message = cbor4ii::serde::to_vec(Vec::new(), &task).unwrap();
            let foreseen = cost_of_share(layer, part);
            assert!(
                message.len() as u64 <= foreseen.sent,
                "layer {index}, {part:?}: {}",
                message.len()
            );
            let values = cbor4ii::serde::from_slice::<ShareTask>(&message)
                .unwrap()
                .run()
                .unwrap();
            assert_eq!(values.len() as u64, foreseen.received);
            let mut values = values.into_iter();
            for row in part.rows.clone() {
                for column in 0..extent.width {
                    for channel in part.channels.clone() {
                        let place = &mut output[(row * extent.width + column) * extent.channels + channel];
                        assert!(
                            place.replace(values.next().unwrap()).is_none(),
                            "layer {index}: twice"
                        );
                    }
                }
            }
        }
        activations.push(
            output
                .into_iter()
                .map(|value| value.expect("a cell that no piece gives"))
                .collect(),
        );
    }
    activations.pop().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pieces_give_the_whole_and_no_board_takes_more_than_it_has(
        boards in prop::collection::vec((1_200u64..20_000, 1e3f64..1e9), 1..6),
    ) {
        let (network, input) = generated(layers());
        let boards: Vec<Board> = boards.into_iter().map(|(memory, speed)| board(memory, speed)).collect();
        let plan = match share(network.layers(), &boards, Link::ETHERNET_100) {
            Ok(plan) => plan,
            Err(PlanError::Memory { needed, free, .. }) => {
                prop_assert!(boards.iter().all(|board| board.free_memory <= free));
                prop_assert!(needed > free);
                return Ok(());
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        for (cost, board) in plan.boards.iter().zip(&boards) {
            prop_assert!(cost.peak <= board.free_memory);
        }
        prop_assert_eq!(computed(&network, &plan, &input), network.run(&input).unwrap());
    }
}

#[test]
fn a_network_that_fits_no_board_whole_is_shared_by_three() {
    let (network, input) = generated(mobilenet_v2(64, 10).unwrap());
    let boards = [board(96 << 10, 1e8), board(96 << 10, 1e8), board(64 << 10, 5e7)];
    let plan = share(network.layers(), &boards, Link::ETHERNET_100).unwrap();
    assert!(plan.alone > 4 * (96 << 10), "{}", plan.alone);
    assert!(
        plan.boards
            .iter()
            .zip(&boards)
            .all(|(cost, board)| cost.peak <= board.free_memory)
    );
    assert!(plan.boards.iter().all(|cost| cost.calls > 0));
    assert_eq!(computed(&network, &plan, &input), network.run(&input).unwrap());
}

#[test]
fn a_board_too_small_for_a_layer_leaves_it_to_the_others() {
    let layers = layers();
    let plan = share(
        &layers,
        &[board(600, 1e8), board(1 << 20, 1e8)],
        Link::ETHERNET_100,
    )
    .unwrap();
    assert!(plan.layers.iter().any(|layer| layer.pieces[0].is_empty()));
    assert!(plan.layers.iter().all(|layer| !layer.pieces[1].is_empty()));
    assert!(plan.boards[0].peak <= 600);
}

#[test]
fn memory_that_is_too_small_for_any_piece_is_an_error_that_says_how_much_it_takes() {
    let error = share(&layers(), &[board(100, 1e8); 3], Link::ETHERNET_100).unwrap_err();
    let PlanError::Memory {
        free: 100, needed, ..
    } = error
    else {
        panic!("{error}");
    };
    let plan = share(&layers(), &[board(1 << 20, 1e8); 3], Link::ETHERNET_100).unwrap();
    assert!(needed > 100 && needed < plan.alone);
}
