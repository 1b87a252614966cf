//! What a plan says and what it costs.

use super::super::{Action, Device, EdgeServing, Exit, ServedModel};
use super::*;
use proptest::prelude::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Batches of at most four, as long whatever their size; accuracy and time of each exit.
fn model(slo: u64, exits: &[(f64, u64)]) -> ServedModel {
    let exit = |(depth, &(accuracy, time)): (u32, &(f64, u64))| Exit {
        depth,
        accuracy,
        times: vec![(1, ms(time))],
    };
    ServedModel::new(ms(slo), 4, (1..).zip(exits).map(exit).collect()).unwrap()
}

fn backlog(models: Vec<ServedModel>, arrivals: &[(u64, usize)]) -> Backlog {
    let mut backlog = Backlog::new(models.into());
    for &(at, model) in arrivals {
        backlog.join(ms(at), model);
    }
    backlog
}

/// The plan by its definition, for one server: from the start again after each step, and after each batch that cannot be in time.
fn by_definition(now: Duration, backlog: &Backlog) -> (Vec<usize>, bool) {
    let mut plan = Plan::default();
    plan.list_batches(now, backlog);
    let mut exits: Vec<usize> = backlog.models().iter().map(ServedModel::deepest).collect();
    let mut constrained = false;
    loop {
        let mut ends = 0.0;
        let late = plan.batches.iter().position(|&(due, model, batch)| {
            ends += backlog.seconds(model, exits[model], batch);
            ends > due
        });
        let Some(late) = late else {
            return (exits, constrained);
        };
        constrained = true;
        let price = |model: usize| {
            let (profile, exit) = (&backlog.models()[model], exits[model]);
            let shallower = exit.checked_sub(1)?;
            let gain = profile.seconds(exit, 4) - profile.seconds(shallower, 4);
            let loss = profile.exits()[exit].accuracy - profile.exits()[shallower].accuracy;
            let price = loss.max(0.0) / gain;
            Some(if gain > 0.0 { price } else { f64::INFINITY })
        };
        let planned = |model: &usize| plan.batches[..=late].iter().any(|batch| batch.1 == *model);
        let prices = (0..exits.len()).filter(planned);
        let prices = prices.filter_map(|model| Some((price(model)?, model)));
        match prices.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, model)) => exits[model] -= 1,
            None => plan.batches[late].0 = f64::INFINITY,
        }
    }
}

#[test]
fn thousands_that_cannot_be_in_time_are_each_looked_at_a_few_times() {
    let models = || {
        vec![
            model(50, &[(0.6, 2), (0.8, 8)]),
            model(50, &[(0.6, 2), (0.7, 4), (0.8, 8)]),
        ]
    };
    let arrivals: Vec<(u64, usize)> = (0..20_000).map(|n| (0, n % 2)).collect();
    let backlog = backlog(models(), &arrivals);
    let mut plan = Plan::default();
    assert!(plan.make(ms(100), &backlog));
    assert_eq!(plan.exits, [0, 0]);
    // At most once, and once more for each of the three steps back.
    let batches = 20_000 / 4;
    assert!((batches..=4 * batches).contains(&plan.looks), "{}", plan.looks);
}

#[test]
fn what_four_servers_do_in_time_is_done_as_deep_as_can_be() {
    let deepest = model(50, &[(0.6, 2), (0.8, 20)]);
    let mut device = Device::new([deepest].into(), EdgeServing::default(), 4);
    // Eight batches are done after 40 ms by four servers, and after 160 by one.
    (0..32).for_each(|number| device.arrived(ms(0), 0, number));
    for now in [0, 20] {
        for _ in 0..4 {
            let action = device.poll(ms(now)).unwrap();
            assert!(
                matches!(&action, Some(Action::Run { exit: 1, requests, .. }) if requests.len() == 4),
                "{now}: {action:?}"
            );
        }
        assert_eq!(device.poll(ms(now)), Ok(None), "all are busy");
        (0..4).for_each(|_| device.finished(ms(20), ms(20)));
    }
    // More than that is too much for them, too.
    (0..64).for_each(|number| device.arrived(ms(40), 0, number));
    let action = device.poll(ms(40)).unwrap();
    assert!(matches!(action, Some(Action::Run { exit: 0, .. })), "{action:?}");
}

proptest! {
    #[test]
    fn the_plan_is_the_one_by_its_definition(
        models in proptest::collection::vec(
            (5..80u64, proptest::collection::vec((0.5..1.0f64, 1..30u64), 1..4)),
            1..4,
        ),
        arrivals in proptest::collection::vec((0..80u64, 0..3usize), 0..40),
        now in 60..120u64,
    ) {
        let models: Vec<ServedModel> = models.iter().map(|(slo, exits)| model(*slo, exits)).collect();
        let arrivals: Vec<(u64, usize)> = arrivals.iter().map(|(at, of)| (*at, of % models.len())).collect();
        let backlog = backlog(models, &arrivals);
        let mut plan = Plan::default();
        let constrained = plan.make(ms(now), &backlog);
        prop_assert_eq!((plan.exits, constrained), by_definition(ms(now), &backlog));
    }
}
