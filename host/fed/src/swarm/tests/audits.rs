//! Whether clients kept to the rules, by what the others say.

use super::*;
use proptest::prelude::*;

fn said(words: &[(Client, &[Client])]) -> BTreeMap<Client, BTreeSet<Client>> {
    let words = words.iter();
    words
        .map(|(by, named)| (*by, named.iter().copied().collect()))
        .collect()
}

#[test]
fn who_gives_all_others_what_is_no_chunk_is_found_out_and_nobody_else() {
    let long = SwarmSettings {
        cover: Cover::OfSwarm(0.5),
        ..settings(Gate::Fallback, Scheduler::GreedyFastestFirst)
    };
    let mut world = World::new(long, 12);
    let liar = 4;
    while !matches!(world.coordinator.phase(), Phase::Swarming { .. }) {
        for transfer in world.coordinator.next_slot() {
            let (from, to, chunk) = (transfer.from, transfer.to, transfer.chunk);
            // What is sprayed comes sealed, through the hands of a third.
            let by = if transfer.ground == Ground::Spray {
                to
            } else {
                from
            };
            if from == liar {
                let wrong = world.peers[usize::from(to)].received(by, chunk, &[1; 8]);
                assert_eq!(wrong, Err(ChunkError::Altered(chunk).into()));
            } else if world.carry(from, to, chunk).unwrap() {
                world.coordinator.delivered(to, chunk);
            }
        }
    }
    let overlay = world.coordinator.overlay();
    let neighbours: Vec<Vec<Client>> = (0..12)
        .map(|client| overlay.neighbours(client).to_vec())
        .collect();
    let said = (0..).zip(world.peers.iter().map(|peer| peer.altered().clone()));
    assert_eq!(audit(&neighbours, &said.collect()), [liar]);
}

#[test]
fn a_word_of_one_or_of_strangers_names_nobody() {
    // 0 has three neighbours, 1 has two, 3 has one.
    let neighbours: [Vec<Client>; 4] = [vec![1, 2, 3], vec![0, 2], vec![0, 1], vec![0]];
    let found = |words: &[(Client, &[Client])]| audit(&neighbours, &said(words));
    assert_eq!(found(&[]), [0; 0]);
    assert_eq!(found(&[(1, &[0]), (2, &[0])]), [0]);
    assert_eq!(found(&[(1, &[0])]), [0; 0], "one of three");
    assert_eq!(found(&[(0, &[3])]), [0; 0], "the only neighbour, and one word");
    assert_eq!(found(&[(3, &[1]), (2, &[1])]), [0; 0], "3 is no neighbour of 1");
    assert_eq!(found(&[(0, &[1, 2]), (1, &[2, 9]), (2, &[1])]), [1, 2]);
    // Half is not enough.
    let four: [Vec<Client>; 5] = [vec![1, 2, 3, 4], vec![0], vec![0], vec![0], vec![0]];
    assert_eq!(audit(&four, &said(&[(1, &[0]), (2, &[0])])), [0; 0]);
    assert_eq!(audit(&[], &said(&[(1, &[0])])), [0; 0]);
}

proptest! {
    /// However liars accuse: as long as they are half of nobody's neighbours, or are one alone, they have nobody else found out.
    #[test]
    fn a_few_that_lie_accuse_nobody(
        clients in 3_usize..30, degree in 2_usize..8, seed in any::<u64>(), liars in proptest::collection::btree_set(0_u16..30, 0..8),
    ) {
        let overlay = Overlay::draw(clients, degree, &mut fastrand::Rng::with_seed(seed));
        let neighbours: Vec<Vec<Client>> =
            (0..clients as Client).map(|client| overlay.neighbours(client).to_vec()).collect();
        let all: BTreeSet<Client> = (0..clients as Client).collect();
        let words = liars.iter().map(|liar| (*liar, all.clone())).collect();
        for found in audit(&neighbours, &words) {
            let around = &neighbours[usize::from(found)];
            let lying = around.iter().filter(|other| liars.contains(other)).count();
            prop_assert!(lying >= 2 && 2 * lying > around.len());
        }
    }
}
