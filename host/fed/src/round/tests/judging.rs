//! What clients think of versions.

use super::*;

#[test]
fn who_holds_nothing_back_judges_nothing_and_is_not_blamed() {
    let run = run("rounds = 5\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nclients = 4\n");
    let mut world = World::new(coordinator(run), 4, 1);
    let mut asked = 0;
    loop {
        let judges = |(client, order): &(ClientId, Order)| client.0 == 3 && order.work == Work::Evaluate;
        if let Some(place) = world.orders.iter().position(judges) {
            asked += 1;
            let (client, order) = world.orders.remove(place);
            let judgement = Judgement {
                samples: 0,
                correct: 0,
                loss: 0.0,
            };
            world.feed(Event::Judged {
                client,
                assignment: order.assignment,
                judgement,
            });
        } else if !world.step() {
            break;
        }
    }
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
    loop {
        let judges = |(_, order): &(ClientId, Order)| order.work == Work::Evaluate;
        if let Some(place) = world.orders.iter().position(judges) {
            let (client, order) = world.orders.remove(place);
            let (samples, correct) = match client.0 {
                0 => (most, most),
                _ => (10, 1),
            };
            let judgement = Judgement {
                samples,
                correct,
                loss: 1.0,
            };
            world.feed(Event::Judged {
                client,
                assignment: order.assignment,
                judgement,
            });
        } else if !world.step() {
            break;
        }
    }
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
