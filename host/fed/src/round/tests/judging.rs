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
