use super::*;
use crate::select::SelectionChoice;
use crate::strategy::StrategyChoice;
use crate::{ClientId, Instant, Layout, Processor, Profile, Run};
use bytes::Bytes;
use karman_tensor::encode::{Encoded, Encoding};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const SHAPES: [[u32; 2]; 2] = [[2, 3], [1, 5]];
const LENGTH: usize = 11;

fn layout() -> Layout {
    Layout::of_shapes(SHAPES).unwrap()
}

fn run(text: &str) -> Run {
    Run::from_toml(&format!("name = 'test'\n{text}")).unwrap()
}

fn coordinator(run: Run) -> Coordinator {
    let strategy = run.strategy.build().unwrap();
    let selection = run.selection.build();
    Coordinator::new(
        run,
        layout(),
        vec![0.0; LENGTH],
        strategy,
        selection,
        Arc::new(Processor),
    )
    .unwrap()
}

fn resume(checkpoint: Checkpoint) -> Coordinator {
    // Through its bytes, as from a disk.
    let bytes = cbor4ii::serde::to_vec(Vec::new(), &checkpoint).unwrap();
    let checkpoint: Checkpoint = cbor4ii::serde::from_slice(&bytes).unwrap();
    let (strategy, selection) = (
        checkpoint.run().strategy.build().unwrap(),
        checkpoint.run().selection.build(),
    );
    Coordinator::resume(checkpoint, strategy, selection, Arc::new(Processor)).unwrap()
}

fn here(id: u64) -> Event {
    let profile = Profile {
        samples: 10 + id,
        ..Profile::default()
    };
    Event::Here {
        client: ClientId(id),
        profile,
    }
}

fn frames(numbers: &[f32]) -> Vec<Bytes> {
    let mut rest = numbers;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        for shape in SHAPES {
            let (array, after) = rest.split_at((shape[0] * shape[1]) as usize);
            frames.push(
                Encoded::encode(shape.into(), array, Encoding::F32)
                    .unwrap()
                    .to_bytes(),
            );
            rest = after;
        }
    }
    frames
}

/// Each client draws the model towards a point of its own, by an amount that its order decides.
fn train(client: ClientId, order: &Order) -> Update {
    let Work::Train(train) = &order.work else {
        panic!("an evaluation is no training")
    };
    let mut random = fastrand::Rng::with_seed(train.seed ^ client.0);
    let goal = |i: usize| ((client.0 * 31 + i as u64) as f32).sin();
    let drawn = order
        .model
        .iter()
        .enumerate()
        .map(|(i, w)| 0.3 * (goal(i) - w) + 0.01 * random.f32());
    let mut numbers: Vec<f32> = drawn.collect();
    if train.rows == 2 {
        numbers.extend((0..LENGTH).map(|_| random.f32() - 0.5).collect::<Vec<_>>());
    }
    Update {
        frames: frames(&numbers),
        samples: 10 + client.0,
        steps: 1 + random.u32(..5),
        loss: random.f32(),
    }
}

fn answer(client: ClientId, order: &Order) -> Event {
    match order.work {
        Work::Train(_) => Event::Updated {
            client,
            assignment: order.assignment,
            update: Box::new(train(client, order)),
        },
        Work::Evaluate => Event::Judged {
            client,
            assignment: order.assignment,
            judgement: Judgement {
                samples: 10,
                correct: 5,
                loss: 1.0,
            },
        },
    }
}

/// Drives a coordinator: what was sent is answered after a while, in an order that `random` decides.
struct World {
    coordinator: Coordinator,
    random: fastrand::Rng,
    now: Instant,
    orders: Vec<(ClientId, Order)>,
    events: VecDeque<Event>,
    /// Every event fed in, with its time.
    log: Vec<(Instant, Event)>,
    /// Checkpoints with the length of the log when they became durable.
    checkpoints: Vec<(usize, Checkpoint)>,
    seen: Vec<Action>,
}

impl World {
    fn new(coordinator: Coordinator, clients: u64, seed: u64) -> Self {
        Self {
            coordinator,
            random: fastrand::Rng::with_seed(seed),
            now: Instant(0),
            orders: Vec::new(),
            events: (0..clients).map(here).collect(),
            log: Vec::new(),
            checkpoints: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event) {
        self.now = self.now.after(std::time::Duration::from_millis(7));
        self.log.push((self.now, event.clone()));
        let actions = self.coordinator.handle(self.now, event);
        for action in &actions {
            match action {
                Action::Send { client, order } => self.orders.push((*client, (**order).clone())),
                Action::Withdraw { assignment, .. } => {
                    self.orders.retain(|(_, it)| it.assignment != *assignment)
                }
                Action::Save { ticket, checkpoint } => {
                    self.events.push_front(Event::Saved { ticket: *ticket });
                    self.checkpoints.push((self.log.len(), (**checkpoint).clone()));
                }
                _ => {}
            }
        }
        self.seen.extend(actions);
    }

    fn step(&mut self) -> bool {
        if let Some(event) = self.events.pop_front() {
            self.feed(event);
            return true;
        }
        if self.orders.is_empty() {
            return false;
        }
        let place = self.random.usize(..self.orders.len());
        let (client, order) = self.orders.swap_remove(place);
        self.feed(answer(client, &order));
        true
    }

    fn finish(mut self) -> Self {
        while self.step() {}
        self
    }

    fn bits(&self) -> Vec<u32> {
        self.coordinator.model().iter().map(|x| x.to_bits()).collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        let refusal = |action: &Action| match action {
            Action::Refused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(refusal).collect()
    }
}

const STRATEGIES: [&str; 12] = [
    "name = 'fed-avg'",
    "name = 'fed-prox'",
    "name = 'fed-avg-m'",
    "name = 'fed-adam'",
    "name = 'fed-yogi'",
    "name = 'fed-adagrad'",
    "name = 'scaffold'",
    "name = 'fed-nova'",
    "name = 'krum'\nkeep = 3",
    "name = 'bulyan'",
    "name = 'trimmed-mean'",
    "name = 'median'",
];

const SELECTIONS: [&str; 6] = ["random", "fastest", "oort", "power-of-choice", "bandit", "energy"];

fn described(strategy: &str, selection: &str, pace: &str) -> Run {
    run(&format!(
        "rounds = 5\n[pace]\n{pace}\n[strategy]\n{strategy}\n[selection]\nname = '{selection}'\n"
    ))
}

const SYNCHRONOUS: &str = "mode = 'synchronous'\nclients = 9\n";
const SEMI: &str = "mode = 'semi-asynchronous'\nclients = 9\nenough = 5\nwait = '1 s'\n";
const BUFFERED: &str = "mode = 'buffered'\nat-once = 7\nbuffer = 4\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The order in which updates arrive has no influence on a synchronous run, whatever the strategy.
    #[test]
    fn the_order_of_arrival_does_not_matter(seed: u64, strategy in 0..STRATEGIES.len()) {
        let world = |seed| {
            World::new(coordinator(described(STRATEGIES[strategy], "random", SYNCHRONOUS)), 12, seed).finish()
        };
        let (one, other) = (world(seed), world(seed ^ 1));
        prop_assert_eq!(one.coordinator.status().version, 5);
        prop_assert_eq!(one.bits(), other.bits());
    }

    /// Killed at any moment, a run that goes on from its last durable checkpoint with the events that followed ends the same.
    #[test]
    fn a_resumed_run_ends_the_same(
        seed: u64,
        strategy in 0..STRATEGIES.len(),
        selection in 0..SELECTIONS.len(),
        pace in 0usize..3,
        cut in 0.0..1.0f64,
    ) {
        // Robust rules are synchronous.
        let pace = if strategy > 7 { SYNCHRONOUS } else { [SYNCHRONOUS, SEMI, BUFFERED][pace] };
        let run = described(STRATEGIES[strategy], SELECTIONS[selection], pace);
        let whole = World::new(coordinator(run), 12, seed).finish();
        prop_assert_eq!(whole.coordinator.status().version, 5, "{:?}", whole.coordinator.status());

        let cut = (whole.log.len() as f64 * cut) as usize;
        let durable = whole.checkpoints.iter().filter(|(at, _)| *at <= cut).next_back();
        let Some((at, checkpoint)) = durable else { return Ok(()) };
        let mut resumed = resume(checkpoint.clone());
        for (now, event) in &whole.log[*at..] {
            resumed.handle(*now, event.clone());
        }
        prop_assert_eq!(resumed.model(), whole.coordinator.model());
        prop_assert_eq!(resumed.status().version, 5);
    }

    /// The same for a checkpoint taken at any moment, also with updates half gathered.
    #[test]
    fn a_checkpoint_of_any_moment_is_all_there_is(seed: u64, pace in 0usize..3, steps in 0usize..60) {
        let run = described("name = 'fed-avg-m'", "bandit", [SYNCHRONOUS, SEMI, BUFFERED][pace]);
        let mut world = World::new(coordinator(run), 12, seed);
        for _ in 0..steps {
            world.step();
        }
        // An order that waits for the disk goes out at once after a restart: take a moment at which none waits.
        while world.coordinator.saving.is_some() {
            world.step();
        }
        let mut resumed = resume(world.coordinator.checkpoint().unwrap());
        let from = world.log.len();
        let world = world.finish();
        for (now, event) in &world.log[from..] {
            resumed.handle(*now, event.clone());
        }
        prop_assert_eq!(resumed.checkpoint().unwrap(), world.coordinator.checkpoint().unwrap());
    }

    /// Clients that come and go and die at any step: the run ends, with its versions or with a reason, and never earlier.
    #[test]
    fn death_at_any_step_is_survived(
        seed: u64, pace in 0usize..3, deaths in prop::collection::vec((0usize..80, 0u64..12, any::<bool>()), 0..20),
    ) {
        let run = described("name = 'fed-avg'", "random", [SYNCHRONOUS, SEMI, BUFFERED][pace]);
        let mut world = World::new(coordinator(run), 12, seed);
        for step in 0..80 {
            world.step();
            for (_, client, back) in deaths.iter().filter(|(at, ..)| *at == step) {
                world.orders.retain(|(it, _)| it.0 != *client);
                world.feed(Event::Gone { client: ClientId(*client) });
                if *back {
                    world.feed(here(*client));
                }
            }
        }
        // Whoever is still away comes back.
        (0..12).for_each(|client| world.feed(here(client)));
        let world = world.finish();
        let status = world.coordinator.status();
        prop_assert!(status.ended && (status.version == 5 || status.failure.is_some()), "{status:?}");
        prop_assert!(world.coordinator.model().iter().all(|x| x.is_finite()));
    }

    /// Nothing that can be said to it makes it panic, or makes more versions than were asked for.
    #[test]
    fn no_event_is_too_odd(events in prop::collection::vec(odd_event(), 0..120), pace in 0usize..3) {
        let mut coordinator = coordinator(described("name = 'fed-avg'", "bandit", [SYNCHRONOUS, SEMI, BUFFERED][pace]));
        for (now, event) in events {
            coordinator.handle(Instant(now), event);
            prop_assert!(coordinator.status().version <= 5);
            prop_assert!(coordinator.model().iter().all(|x| x.is_finite()));
        }
    }
}

fn odd_event() -> impl Strategy<Value = (u64, Event)> {
    let client = || (0u64..4).prop_map(ClientId);
    let id = || (0u64..12).prop_map(AssignmentId);
    let ticket = (0u64..6).prop_map(Ticket);
    let update = (
        prop::collection::vec(-1.0f32..1.0, LENGTH),
        0u64..1000,
        0u32..4,
        any::<f32>(),
    )
        .prop_map(|(numbers, samples, steps, loss)| {
            Box::new(Update {
                frames: frames(&numbers),
                samples,
                steps,
                loss,
            })
        });
    let judgement = (0u64..20, 0u64..20, any::<f32>()).prop_map(|(samples, correct, loss)| Judgement {
        samples,
        correct,
        loss,
    });
    let event = prop_oneof![
        3 => (0u64..4).prop_map(here),
        1 => client().prop_map(|client| Event::Gone { client }),
        4 => (client(), id(), update).prop_map(|(client, assignment, update)| Event::Updated { client, assignment, update }),
        1 => (client(), id(), judgement).prop_map(|(client, assignment, judgement)| Event::Judged { client, assignment, judgement }),
        1 => (client(), id()).prop_map(|(client, assignment)| Event::GaveUp { client, assignment, reason: String::new() }),
        4 => ticket.prop_map(|ticket| Event::Saved { ticket }),
        1 => Just(Event::Tick),
    ];
    (0u64..2_000_000, event)
}

#[test]
fn each_bad_update_is_named_and_the_round_goes_on() {
    let bad = |update: &dyn Fn(Update) -> Update, expected: &str| {
        let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nevery = 0\n");
        let mut world = World::new(coordinator(Run { start_with: 4, ..run }), 4, 1);
        while world.orders.is_empty() {
            world.step();
        }
        let place = world.orders.iter().position(|(client, _)| client.0 == 2).unwrap();
        let (client, order) = world.orders.remove(place);
        let update = Box::new(update(train(client, &order)));
        world.feed(Event::Updated {
            client,
            assignment: order.assignment,
            update,
        });
        let world = world.finish();
        let refusals = world.refusals();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(
            refusals[0].to_string().contains(expected),
            "{} does not say {expected}",
            refusals[0]
        );
        let closed = world.seen.iter().find_map(|action| match action {
            Action::Closed(report) => Some(report),
            _ => None,
        });
        let closed = closed.expect("the round goes on without it");
        assert_eq!(closed.clients, [ClientId(0), ClientId(1), ClientId(3)]);
        assert_eq!(closed.lost, 1);
    };
    let nan = Encoded::encode([2, 3].into(), &[1.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    let mut nan = nan.to_vec();
    nan[12..16].copy_from_slice(&f32::NAN.to_le_bytes());
    let nan = Bytes::from(nan);
    let with_first = |frame: Bytes| {
        move |update: Update| {
            let mut frames = update.frames;
            frames[0] = frame.clone();
            Update { frames, ..update }
        }
    };
    bad(&with_first(nan), "not finite");
    let other = Encoded::encode([3, 2].into(), &[1.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    bad(&with_first(other), "has the shape [3, 2] instead of [2, 3]");
    let large = Encoded::encode([2, 3].into(), &[2000.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    bad(&with_first(large), "the limit `magnitude` is 1000");
    bad(&with_first(Bytes::from_static(&[9, 9, 9, 9])), "array 0");
    bad(
        &|update| Update {
            samples: u64::MAX,
            ..update
        },
        "the limit `samples` of 100000",
    );
    bad(&|update| Update { samples: 0, ..update }, "0 samples");
    bad(&|update| Update { steps: 0, ..update }, "not taken a step");
    bad(
        &|update| Update {
            loss: f32::INFINITY,
            ..update
        },
        "its `loss` is inf",
    );
    bad(
        &|update| Update {
            frames: update.frames[..1].to_vec(),
            ..update
        },
        "1 arrays instead of 2",
    );
}

#[test]
fn answers_that_nobody_waits_for_change_nothing() {
    let run = run(
        "rounds = 2\nstart-with = 3\n[pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nevery = 0\n",
    );
    let mut world = World::new(coordinator(run), 3, 1);
    while world.orders.is_empty() {
        world.step();
    }
    let (client, order) = world.orders[0].clone();
    let answer_of = |client| Event::Updated {
        client,
        assignment: order.assignment,
        update: Box::new(train(client, &order)),
    };
    let other = ClientId((client.0 + 1) % 3);
    world.feed(answer_of(other));
    world.feed(answer_of(client));
    world.feed(answer_of(client));
    world.orders.remove(0);
    while world.coordinator.status().version == 0 || !world.events.is_empty() {
        world.step();
    }
    // A round later it is late, though it was answered before the last order.
    let late = world.orders.iter().position(|(it, _)| *it == client).unwrap();
    let (_, second) = world.orders.remove(late);
    world.feed(answer(client, &second));
    world.feed(answer_of(client));
    world.feed(Event::Updated {
        client,
        assignment: AssignmentId(99),
        update: Box::default(),
    });
    let expected = [
        Refusal::NotAsked,
        Refusal::Duplicate,
        Refusal::Late,
        Refusal::NotAsked,
    ];
    assert_eq!(world.refusals(), expected);
    assert_eq!(world.finish().coordinator.status().version, 2);
}

#[test]
fn who_sends_too_much_nonsense_is_not_asked_again() {
    let run = run("rounds = 9\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nevery = 0\n");
    let mut world = World::new(coordinator(run), 4, 1);
    let mut asked = 0;
    loop {
        if let Some(place) = world.orders.iter().position(|(client, _)| client.0 == 3) {
            asked += 1;
            let (client, order) = world.orders.remove(place);
            let update = Box::new(Update {
                samples: 0,
                ..train(client, &order)
            });
            world.feed(Event::Updated {
                client,
                assignment: order.assignment,
                update,
            });
        } else if !world.step() {
            break;
        }
    }
    assert_eq!(asked, 3);
    assert!(world.seen.contains(&Action::Excluded { client: ClientId(3) }));
    assert_eq!(world.coordinator.status().version, 9);
}

#[test]
fn a_round_without_enough_updates_fails_with_the_reason_and_is_tried_again() {
    let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 3\nminimum = 3\ntimeout = '1 min'\n");
    let before = coordinator(run.clone()).model().clone();
    let mut world = World::new(coordinator(run), 3, 1);
    for _ in 0..3 {
        while world.orders.is_empty() {
            world.step();
        }
        // Nobody answers.
        world.orders.clear();
        world.now = world.coordinator.next_timeout().unwrap();
        world.feed(Event::Tick);
    }
    let world = world.finish();
    let status = world.coordinator.status();
    let failure = RoundFailure::TooFew {
        updates: 0,
        minimum: 3,
    };
    assert_eq!(
        status.failure,
        Some(Failure::Rounds {
            rounds: 3,
            last: failure
        })
    );
    assert!(status.ended);
    assert_eq!(world.coordinator.model(), &before);
}

/// A strategy as a careless plugin would have it.
#[derive(Debug)]
struct Wild;

impl crate::strategy::Strategy for Wild {
    fn name(&self) -> &str {
        "wild"
    }

    fn factor(&self, _: &crate::strategy::Facts) -> f64 {
        f64::NAN
    }

    fn step(
        &mut self,
        model: &mut [f32],
        _: &crate::strategy::Aggregate<'_>,
    ) -> Result<(), crate::strategy::StrategyError> {
        model[3] = f32::INFINITY;
        Ok(())
    }
}

#[test]
fn a_step_that_would_not_be_finite_does_not_happen() {
    let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 2\n");
    let model = vec![0.5; LENGTH];
    let selection = run.selection.build();
    let wild = Coordinator::new(
        run,
        layout(),
        model.clone(),
        Box::new(Wild),
        selection,
        Arc::new(Processor),
    )
    .unwrap();
    let world = World::new(wild, 2, 1).finish();
    let diverged = RoundFailure::Diverged {
        index: 3,
        value: f32::INFINITY,
    };
    let failure = Failure::Rounds {
        rounds: 3,
        last: diverged,
    };
    assert_eq!(world.coordinator.status().failure, Some(failure));
    assert_eq!(world.coordinator.model()[..], model);
}

#[test]
fn half_of_a_round_is_enough_and_who_is_late_counts_later() {
    let run = described("name = 'fed-avg'", "random", SEMI);
    let mut world = World::new(coordinator(Run { start_with: 9, ..run }), 9, 3);
    let mut reports = Vec::new();
    while world.step() {
        for action in world.seen.drain(..) {
            if let Action::Closed(report) = action {
                reports.push(report);
            }
        }
    }
    assert_eq!(reports.len(), 5);
    assert!(reports.iter().all(|report| report.clients.len() == 5));
    assert_eq!(reports[0].staleness, 0.0);
    assert!(reports.iter().any(|report| report.staleness > 0.0));
}

#[test]
fn a_stale_update_counts_by_the_root_of_its_age() {
    let text = "rounds = 2\nweights = 'uniform'\n[pace]\nmode = 'buffered'\nat-once = 2\nbuffer = 1\n[evaluation]\nevery = 0\n";
    let mut coordinator = coordinator(run(text));
    let mut orders = Vec::new();
    let mut feed = |coordinator: &mut Coordinator, event| {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in coordinator.handle(Instant(1), event) {
                match action {
                    Action::Save { ticket, .. } => events.push_back(Event::Saved { ticket }),
                    Action::Send { client, order } => orders.push((client, order.assignment)),
                    _ => {}
                }
            }
        }
        orders.clone()
    };
    feed(&mut coordinator, here(0));
    let orders = feed(&mut coordinator, here(1));
    let update = |amount: f32| {
        Box::new(Update {
            frames: frames(&[amount; LENGTH]),
            samples: 1,
            steps: 1,
            loss: 0.0,
        })
    };
    for (client, assignment) in &orders[..2] {
        let event = Event::Updated {
            client: *client,
            assignment: *assignment,
            update: update(1.0),
        };
        feed(&mut coordinator, event);
    }
    let expected = 1.0 + 1.0 / 2f32.sqrt();
    assert!(
        (coordinator.model()[0] - expected).abs() < 1e-6,
        "{}",
        coordinator.model()[0]
    );
}

#[test]
fn no_more_than_eight_updates_are_in_memory() {
    let run = run("rounds = 1\nstart-with = 40\n[pace]\nmode = 'synchronous'\nclients = 40\n");
    let mut world = World::new(coordinator(run), 40, 1);
    let mut most = 0;
    while world.step() {
        most = most.max(world.coordinator.gathering.held());
    }
    assert!(most < gather::BATCH, "{most}");
}

#[test]
fn nobody_hears_of_a_version_before_it_is_durable() {
    let run = run("rounds = 3\n[pace]\nmode = 'synchronous'\nclients = 2\n");
    let mut coordinator = coordinator(run);
    coordinator.handle(Instant(0), here(0));
    let actions = coordinator.handle(Instant(0), here(1));
    assert!(matches!(actions[..], [Action::Save { .. }]), "{actions:?}");
    assert!(coordinator.handle(Instant(1), Event::Tick).is_empty());
    assert!(
        coordinator
            .handle(Instant(1), Event::Saved { ticket: Ticket(77) })
            .is_empty()
    );
    let reason = "no space left".to_owned();
    let actions = coordinator.handle(
        Instant(2),
        Event::Unsaved {
            ticket: Ticket(1),
            reason: reason.clone(),
        },
    );
    let failure = Some(Failure::Unsaved(reason));
    assert!(
        actions.contains(&Action::Finished { version: 0, failure }),
        "{actions:?}"
    );
}

#[test]
fn clients_judge_the_model_and_a_target_ends_the_run() {
    let text =
        "rounds = 9\n[pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nclients = 2\ntarget = 0.5\n";
    let world = World::new(coordinator(run(text)), 3, 1).finish();
    let status = world.coordinator.status();
    assert_eq!(
        (status.version, status.accuracy, status.ended),
        (1, Some(0.5), true)
    );
    assert_eq!(status.failure, None);
}

#[test]
fn choices_are_built_as_described() {
    for strategy in STRATEGIES {
        let run = described(strategy, "random", SYNCHRONOUS);
        let name = strategy.split('\'').nth(1).unwrap();
        assert_eq!(run.strategy.build().unwrap().name(), name);
    }
    for selection in SELECTIONS {
        let run = described("name = 'fed-avg'", selection, SYNCHRONOUS);
        assert_eq!(run.selection.build().name(), selection);
    }
    assert_eq!(SelectionChoice::default().build().name(), "random");
    assert!(StrategyChoice::Plugin { task: "mine".into() }.build().is_none());
}
