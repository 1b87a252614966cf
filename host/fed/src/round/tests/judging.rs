//! What clients think of versions.

use super::*;

/// Runs to the end, with what these clients say of a version in the place of what they would.
fn run_on(world: &mut World, mut says: impl FnMut(ClientId) -> Option<Judgement>) {
    loop {
        let mut orders = world.orders.iter().enumerate();
        let judged = orders.find_map(|(place, (client, order))| {
            let judges = order.work == Work::Evaluate;
            Some((place, judges.then(|| says(*client))??))
        });
        if let Some((place, judgement)) = judged {
            let (client, order) = world.orders.remove(place);
            world.feed(Event::Judged {
                client,
                assignment: order.assignment,
                judgement,
            });
        } else if !world.step() {
            break;
        }
    }
}

#[test]
fn who_holds_nothing_back_judges_nothing_and_is_not_blamed() {
    let run = run("rounds = 5\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nclients = 4\n");
    let mut world = World::new(coordinator(run), 4, 1);
    let mut asked = 0;
    let nothing = Judgement {
        samples: 0,
        correct: 0,
        loss: 0.0,
    };
    run_on(&mut world, |client| {
        let is_it = client.0 == 3;
        asked += u32::from(is_it);
        is_it.then_some(nothing)
    });
    assert!(asked > 3, "{asked}");
    assert!(world.refusals().is_empty(), "{:?}", world.refusals());
    assert_eq!(world.coordinator.status().version, 5);
}

/// What a run of four clients says of its last version, of which the first client claims that it is right of all samples that one may
/// declare, and the others that it is right of a tenth; and which version that is.
fn judged(more: &str) -> (f64, u64) {
    let run = run(&format!(
        "rounds = 3\n{more}\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nclients = 4\ntarget = 0.9\n"
    ));
    let most = run.limits.samples;
    let mut world = World::new(coordinator(run), 4, 1);
    run_on(&mut world, |client| {
        let (samples, correct) = match client.0 {
            0 => (most, most),
            _ => (10, 1),
        };
        Some(Judgement {
            samples,
            correct,
            loss: 1.0,
        })
    });
    let status = world.coordinator.status();
    (status.accuracy.unwrap(), status.version)
}

#[test]
fn one_client_that_claims_much_decides_no_accuracy_where_weights_or_the_strategy_bound_it() {
    let (accuracy, version) = judged("");
    assert!(
        accuracy > 0.99 && version == 1,
        "samples count: {accuracy}, {version}"
    );
    let (accuracy, version) = judged("weights = 'uniform'");
    assert!((accuracy - 1.3 / 4.0).abs() < 1e-12 && version == 3, "{accuracy}");
    let (accuracy, version) = judged("weights = { capped = 20 }");
    assert!(
        (accuracy - 23.0 / 50.0).abs() < 1e-12 && version == 3,
        "{accuracy}"
    );
    let (accuracy, version) = judged("[strategy]\nname = 'median'\n");
    assert!((accuracy - 0.1).abs() < 1e-12 && version == 3, "{accuracy}");
}
