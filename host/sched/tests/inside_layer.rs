//! Split networks, really computed: the same bits as unsplit, within the memory and with the traffic that were foreseen.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_sched::partition::inside_layer::flat::FlatPlan;
use karman_sched::partition::inside_layer::{
    Board, Form, Link, Objective, Plan, PlanError, PlannedStage, Prediction, Work, plan, predict, programs,
};
use karman_tensor::quantised::{Extent, Layer, Network, Operator, mobilenet_v2};
use karman_tensor::split::flat::run_flat;
use karman_tensor::split::{Traffic, Worker, run_together};
use proptest::prelude::*;
use std::sync::Arc;

const BOARD: Board = Board {
    free_memory: 512 << 10,
    free_flash: 8 << 20,
    operations_per_second: 1e8,
};

/// What a split run gave: the answer, each board's peak, what was sent.
struct Outcome {
    answer: Vec<i8>,
    peaks: Vec<u64>,
    traffic: Traffic,
}

fn run(network: &Arc<Network>, plan: &Plan, input: &[i8], seed: u64) -> Outcome {
    let programs = programs(network.layers(), plan).unwrap();
    let boards = programs.len() - 1;
    let mut workers: Vec<Worker> = programs
        .into_iter()
        .enumerate()
        .map(|(peer, program)| {
            let input = if peer == boards { input } else { &[] };
            Worker::new(network.clone(), program, input).unwrap()
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let traffic = run_together(&mut workers, |choices| random.usize(..choices)).unwrap();
    for worker in &workers[..boards] {
        assert_eq!(worker.account().live(), 0, "a board forgot to drop something");
    }
    Outcome {
        answer: workers[boards].answer(),
        peaks: workers[..boards]
            .iter()
            .map(|worker| worker.account().peak() as u64)
            .collect(),
        traffic,
    }
}

fn generated(layers: Vec<Layer>, seed: u64) -> (Arc<Network>, Vec<i8>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let network = Network::generated(layers, || random.u32(..)).unwrap();
    let input = (0..network.input().elements()).map(|_| random.i8(..)).collect();
    (Arc::new(network), input)
}

/// That a plan gives the bits of the unsplit network, takes no more memory than foreseen and exactly the traffic.
fn check(
    network: &Arc<Network>,
    plan: &Plan,
    input: &[i8],
    whole: &[i8],
    seed: u64,
) -> (Outcome, Prediction) {
    let outcome = run(network, plan, input, seed);
    assert_eq!(outcome.answer, whole, "{plan:?}");
    let foreseen = predict(network.layers(), plan).unwrap();
    for (board, (peak, foreseen)) in outcome.peaks.iter().zip(&foreseen.boards).enumerate() {
        assert!(
            *peak <= foreseen.peak,
            "board {board}: {peak} > {} {plan:?}",
            foreseen.peak
        );
    }
    let sent = (outcome.traffic.bytes, outcome.traffic.packets);
    assert_eq!(sent, (foreseen.bytes, foreseen.packets), "{plan:?}");
    (outcome, foreseen)
}

/// From row by row, column by column, channel by channel to channel by channel.
fn flat_order(extent: Extent, values: &[i8]) -> Vec<i8> {
    let cells = extent.height * extent.width;
    let channel = |channel| (0..cells).map(move |cell| values[cell * extent.channels + channel]);
    (0..extent.channels).flat_map(channel).collect()
}

/// Layers in which everything occurs: strides, depthwise and grouped convolutions, additions, a mean, maxima, full connection.
fn small_network() -> impl Strategy<Value = Vec<Layer>> {
    let extent = (1usize..5, 1usize..12, 1usize..7);
    let steps = prop::collection::vec((0u8..8, 1usize..9, 1usize..4, any::<prop::sample::Index>()), 1..8);
    (extent, steps).prop_map(|((channels, height, width), steps)| {
        let mut at = Extent::new(channels * 2, height, width).unwrap();
        let mut layers: Vec<Layer> = Vec::new();
        for (kind, size, stride, which) in steps {
            let window = [size.min(3).min(at.height), size.min(3).min(at.width)];
            let padding = (size / 4).min(window[0] - 1).min(window[1] - 1);
            let layer = match kind {
                0 | 1 => Layer::convolution(at, size, [1, 1], 1, 0, 1).unwrap(),
                2 => Layer::convolution(at, size, window, stride, padding, 1).unwrap(),
                3 => Layer::convolution(at, at.channels, window, stride, padding, at.channels).unwrap(),
                4 if at.channels.is_multiple_of(2) => {
                    Layer::convolution(at, 2 * size, window, 1, padding, 2).unwrap()
                }
                5 => Layer::average_pool(at),
                7 => Layer::max_pool(at, window, stride, padding).unwrap(),
                6 => {
                    let extent = |activation: usize| match activation {
                        0 => layers.first().map_or(at, Layer::input),
                        _ => layers[activation - 1].output(),
                    };
                    let same: Vec<usize> = (0..layers.len()).filter(|other| extent(*other) == at).collect();
                    if same.is_empty() {
                        continue;
                    }
                    Layer::add(at, same[which.index(same.len())])
                }
                _ => Layer::linear(at, size).unwrap(),
            };
            at = layer.output();
            layers.push(layer);
        }
        if layers.is_empty() {
            layers.push(Layer::linear(at, 3).unwrap());
        }
        layers
    })
}

/// Any division of the layers into stages, of any kind that is possible.
fn arbitrary_plan(layers: &[Layer], portions: Vec<u32>, seed: u64) -> Plan {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stages: Vec<PlannedStage> = Vec::new();
    let mut at = 0;
    while at < layers.len() {
        let form = if random.bool() { Form::Rows } else { Form::Channels };
        let from = stages.last().map(|stage| stage.form);
        let mean = matches!(layers[at].operator(), Operator::AveragePool);
        let sums = Network::has_sums(&layers[at]) && (from == Some(Form::Channels) || mean && from.is_some());
        let work = if sums && random.bool() {
            Work::Reduce
        } else {
            Work::Run
        };
        let end = match work {
            Work::Reduce => at + 1,
            Work::Run => random.usize(at + 1..=layers.len()),
        };
        stages.push(PlannedStage {
            layers: at..end,
            work,
            form,
        });
        at = end;
    }
    let mut plan = Plan { stages, portions };
    // What a later stage adds must exist as a whole: such a stage is cut to single layers.
    while let Err(PlanError::Stage { stage, .. }) = plan.check(layers) {
        let run = plan.stages[stage].layers.clone();
        let form = plan.stages[stage].form;
        let single = |layer| PlannedStage {
            layers: layer..layer + 1,
            work: Work::Run,
            form,
        };
        plan.stages.splice(stage..=stage, run.map(single));
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_gives_the_bits_of_the_whole(
        layers in small_network(), portions in prop::collection::vec(1u32..4, 1..6), seed in any::<u64>(),
    ) {
        let (network, input) = generated(layers, seed);
        let whole = network.run(&input).unwrap();
        for order in 0..3 {
            let plan = arbitrary_plan(network.layers(), portions.clone(), seed ^ order);
            check(&network, &plan, &input, &whole, seed.wrapping_add(order));
        }
    }

    #[test]
    fn packets_from_nowhere_are_refused(
        layers in small_network(), packets in prop::collection::vec((0usize..4, prop::collection::vec(0u8..4, 0..30)), 1..40),
        seed in any::<u64>(),
    ) {
        let (network, _) = generated(layers, seed);
        let plan = arbitrary_plan(network.layers(), vec![1, 1], seed);
        for program in programs(network.layers(), &plan).unwrap().into_iter().take(2) {
            let mut worker = Worker::new(network.clone(), program, &[]).unwrap();
            while worker.poll().unwrap().is_some() {}
            for (peer, packet) in &packets {
                let (live, stage) = (worker.account().live(), worker.stage());
                // A grant is nothing but numbers: one may look as if it were asked for. Anything else changes nothing.
                if worker.handle(*peer, packet).is_err() {
                    prop_assert_eq!((worker.account().live(), worker.stage()), (live, stage));
                }
            }
        }
    }

    #[test]
    fn the_published_split_gives_the_bits_of_the_whole(
        layers in small_network(), portions in prop::collection::vec(1u32..4, 1..5), seed in any::<u64>(),
    ) {
        // It adds shares to shares, where they match: at the end of a layer, not of the network's input.
        let adds = |(index, layer): (usize, &Layer)| match *layer.operator() {
            Operator::Add { other } => {
                let added_up = |at: usize| matches!(layers.get(at).map(Layer::operator), Some(Operator::Add { .. }));
                index == 0 || other == 0 || added_up(other)
            }
            _ => false,
        };
        prop_assume!(!layers.iter().enumerate().any(adds));
        let (network, input) = generated(layers, seed);
        let whole = network.run(&input).unwrap();
        let plan = FlatPlan::new(network.layers(), &portions).unwrap();
        let outcome = run_flat(&network, &plan.stages, &flat_order(network.input(), &input)).unwrap();
        prop_assert_eq!(outcome.answer, flat_order(network.activation(network.layers().len()), &whole));
        for (stage, boards) in outcome.in_and_out.iter().enumerate() {
            for (board, sizes) in boards.iter().enumerate() {
                prop_assert_eq!(*sizes, plan.in_and_out(stage, board));
                prop_assert!(outcome.peaks[board] >= sizes.0 + sizes.1);
            }
        }
    }

    #[test]
    fn a_chosen_split_fits_its_boards(
        layers in small_network(), sizes in prop::collection::vec((200u64..4000, 1u32..4), 1..5), seed in any::<u64>(),
    ) {
        let (network, input) = generated(layers, seed);
        let whole = network.run(&input).unwrap();
        let board = |(memory, speed): &(u64, u32)| Board {
            free_memory: *memory,
            free_flash: 1 << 20,
            operations_per_second: f64::from(*speed) * 1e6,
        };
        let boards: Vec<Board> = sizes.iter().map(board).collect();
        for objective in [Objective::Time, Objective::Memory] {
            match plan(network.layers(), &boards, Link::ETHERNET_100, objective) {
                Ok(plan) => {
                    let (_, foreseen) = check(&network, &plan, &input, &whole, seed);
                    for (cost, board) in foreseen.boards.iter().zip(&boards) {
                        prop_assert!(cost.peak <= board.free_memory);
                    }
                }
                Err(error) => {
                    let memory = matches!(error, PlanError::Memory { free, needed, .. } if needed > free);
                    prop_assert!(memory, "{error}");
                }
            }
        }
    }
}

#[test]
fn mobilenet_on_small_boards_gives_the_bits_of_the_whole() {
    let (network, input) = generated(mobilenet_v2(64, 100).unwrap(), 5);
    let whole = network.run(&input).unwrap();
    let distinct: std::collections::BTreeSet<i8> = whole.iter().copied().collect();
    assert!(distinct.len() > 20, "the outputs are degenerate: {distinct:?}");
    for boards in [3, 8] {
        let ours = plan(
            network.layers(),
            &vec![BOARD; boards],
            Link::ETHERNET_100,
            Objective::Memory,
        )
        .unwrap();
        let (ours, _) = check(&network, &ours, &input, &whole, 1);
        let bands = Plan::each_layer(network.layers(), vec![1; boards], Form::Rows);
        let (bands, _) = check(&network, &bands, &input, &whole, 2);
        let kernels = Plan::each_layer(network.layers(), vec![1; boards], Form::Channels);
        let (kernels, _) = check(&network, &kernels, &input, &whole, 3);
        let worst = |outcome: &Outcome| outcome.peaks.iter().copied().max();
        assert!(worst(&ours) < worst(&bands) && worst(&ours) < worst(&kernels));
    }
}

/// Where a board cannot hold all weights, some layers are split by kernels or sums, and memory pays for it.
#[test]
fn weights_that_do_not_fit_are_divided() {
    let (network, input) = generated(mobilenet_v2(32, 100).unwrap(), 6);
    let whole = network.run(&input).unwrap();
    let layers = network.layers();
    let all: u64 = layers
        .iter()
        .map(|layer| layer.weight_bytes(&(0..layer.output().channels)))
        .sum();
    let with_flash = |free_flash| {
        plan(
            layers,
            &[Board { free_flash, ..BOARD }; 4],
            Link::ETHERNET_100,
            Objective::Time,
        )
    };
    let most = |plan: &Plan| {
        predict(layers, plan)
            .unwrap()
            .boards
            .iter()
            .map(|board| board.weights)
            .max()
    };
    let roomy = most(&with_flash(all).unwrap()).unwrap();
    let less = roomy * 3 / 4;
    let tight = with_flash(less).unwrap();
    let (_, foreseen) = check(&network, &tight, &input, &whole, 8);
    assert!(
        foreseen.boards.iter().all(|board| board.weights <= less),
        "{foreseen:?}"
    );
    let error = with_flash(all / 100).unwrap_err();
    assert!(
        matches!(error, PlanError::Flash { needed, free, .. } if needed > free),
        "{error}"
    );
}

/// A board with more memory and speed takes more, and one that is too small gives to the others.
#[test]
fn unequal_boards_take_unequal_parts() {
    let (network, input) = generated(mobilenet_v2(32, 10).unwrap(), 7);
    let whole = network.run(&input).unwrap();
    let board = |kib: u64, speed: f64| Board {
        free_memory: kib << 10,
        operations_per_second: speed,
        ..BOARD
    };
    let boards = [board(6, 1e8), board(64, 4e8), board(64, 2e8)];
    let plan = plan(network.layers(), &boards, Link::ETHERNET_100, Objective::Time).unwrap();
    assert!(plan.portions[0] < plan.portions[1], "{:?}", plan.portions);
    check(&network, &plan, &input, &whole, 9);
}

#[test]
fn boards_that_cannot_be_are_refused() {
    let layers = mobilenet_v2(32, 10).unwrap();
    let refuse = |boards: &[Board], link| plan(&layers, boards, link, Objective::Time).unwrap_err();
    let board = |operations_per_second| Board {
        operations_per_second,
        ..BOARD
    };
    assert!(matches!(
        refuse(&[], Link::ETHERNET_100),
        PlanError::Boards { count: 0, .. }
    ));
    for speed in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        assert!(matches!(
            refuse(&[BOARD, board(speed)], Link::ETHERNET_100),
            PlanError::Board { board: 1, .. }
        ));
    }
    let link = Link {
        bytes_per_second: f64::NAN,
        ..Link::ETHERNET_100
    };
    assert!(matches!(
        refuse(&[BOARD], link),
        PlanError::Link {
            field: "bytes_per_second",
            ..
        }
    ));
    assert_eq!(
        plan(&[], &[BOARD], Link::ETHERNET_100, Objective::Time),
        Err(PlanError::NoLayers)
    );
    let small = Board {
        free_memory: 300,
        ..BOARD
    };
    assert!(matches!(
        refuse(&[small; 2], Link::ETHERNET_100),
        PlanError::Memory { free: 300, .. }
    ));
}
