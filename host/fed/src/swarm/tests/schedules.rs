//! What a coordinator has clients do, gone through by somebody who sees all of it.

use super::*;
use proptest::prelude::*;

impl World {
    /// That no link carries more than it can, nothing is sent twice or by somebody who has not got it, and everything goes where the overlay
    /// has it go.
    fn check_slots(&self) {
        let clients = self.links.len();
        let chunks = self.settings.layout.chunks;
        let mut held: Vec<BTreeSet<Chunk>> = (0..clients)
            .map(|client| {
                let own = self.coordinator.update_of(client as Client).unwrap() * chunks;
                (own..own + chunks).collect()
            })
            .collect();
        for slot in &self.slots {
            let (mut up, mut down) = (vec![0; clients], vec![0; clients]);
            for transfer in &slot.told {
                let (from, to) = (usize::from(transfer.from), usize::from(transfer.to));
                let near = self
                    .coordinator
                    .overlay()
                    .are_neighbours(transfer.from, transfer.to);
                assert_ne!(near, transfer.ground == Ground::Spray, "{transfer:?}");
                assert!(held[from].contains(&transfer.chunk), "{transfer:?}");
                assert!(!held[to].contains(&transfer.chunk), "{transfer:?}");
                up[from] += 1;
                down[to] += 1;
                let (from, to) = (self.links[from].up >= up[from], self.links[to].down >= down[to]);
                assert!(from && to, "{transfer:?} is more than a link carries");
            }
            for (client, chunk) in &slot.arrived {
                held[usize::from(*client)].insert(*chunk);
            }
        }
    }
}

#[test]
fn the_same_seed_and_the_same_arrivals_lead_to_the_same_schedule() {
    let settings = settings(Gate::Fallback, Scheduler::GreedyFastestFirst);
    let mut world = World::new(settings, 14);
    world.warm_up(&[3, 9]);
    world.check_slots();
    let again = |seed| {
        let mut again = Coordinator::new(settings, &world.links, &world.digests, seed).unwrap();
        world.slots.iter().all(|slot| {
            let same = again.next_slot() == slot.told;
            let arrived = slot.arrived.iter();
            arrived.for_each(|(client, chunk)| again.delivered(*client, *chunk));
            same
        })
    };
    assert!(again(SEED));
    assert!(!again([4; 32]), "nothing depends on the seed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn no_schedule_asks_for_what_cannot_be(
        clients in 3_usize..16, gate in 0_usize..5, scheduler in 0_usize..4, spray in 0.0_f64..0.5, on_offer in 1_u32..4,
    ) {
        let gate = [Gate::Strict, Gate::Fallback, Gate::Blended, Gate::Throttled, Gate::Open][gate];
        let scheduler = [
            Scheduler::GreedyFastestFirst,
            Scheduler::RandomFastestFirst,
            Scheduler::RandomFifo,
            Scheduler::Flooding,
        ][scheduler];
        let settings = SwarmSettings { spray, on_offer, patience: 60, ..settings(gate, scheduler) };
        let mut world = World::new(settings, clients);
        world.warm_up(&[]);
        world.check_slots();
    }
}
