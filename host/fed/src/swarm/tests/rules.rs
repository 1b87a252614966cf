//! What a client does not do, whatever it is told.

use super::*;

#[test]
fn a_peer_keeps_to_its_own_rules() {
    let mut world = World::new(settings(Gate::Strict, Scheduler::GreedyFastestFirst), 10);
    let own = world.coordinator.update_of(0).unwrap() * 25;
    let tell = |from, chunk, ground| Transfer {
        from,
        to: 1,
        chunk,
        ground,
    };
    let sprayed = world.settings.sprayed();
    let peer = &mut world.peers[0];
    assert_eq!(
        peer.told(&tell(0, own, Ground::Offered)),
        Err(PeerError::Uncovered(own))
    );
    assert_eq!(
        peer.told(&tell(0, own, Ground::Cover)),
        Err(PeerError::Uncovered(own)),
        "a false ground"
    );
    // As much is sprayed as was agreed on, and each chunk may be told twice.
    for chunk in (own..own + sprayed).chain([own]) {
        assert_eq!(peer.told(&tell(0, chunk, Ground::Spray)), Ok(()));
    }
    let beyond = own + sprayed;
    assert_eq!(
        peer.told(&tell(0, beyond, Ground::Spray)),
        Err(PeerError::Uncovered(beyond))
    );
    assert_eq!(
        peer.told(&tell(2, own, Ground::Cover)),
        Err(PeerError::NotMine(own))
    );
    let foreign = (own + 25) % 250;
    assert_eq!(
        peer.told(&tell(0, foreign, Ground::Cover)),
        Err(PeerError::NotMine(foreign))
    );
    let altered = peer.received(1, foreign, &[9; 8]);
    assert_eq!(altered, Err(ChunkError::Altered(foreign).into()));
    assert_eq!(
        peer.received(1, 999, &[9; 8]),
        Err(ChunkError::Unknown(999).into())
    );
    assert!(!peer.held().contains(foreign));
    assert_eq!(peer.exchange().unwrap_err(), PeerError::WarmUp);
}

/// A neighbour that says it has what it has not is asked once; another one gives the chunk.
#[test]
fn lies_about_what_one_holds_cost_one_request() {
    let all = |chunks: &[Chunk]| {
        let mut set = Inventory::none(64);
        chunks.iter().for_each(|chunk| {
            set.insert(*chunk);
        });
        set
    };
    let known = [(1, all(&[7])), (2, all(&[7]))];
    let mut exchange = Exchange::new(64, all(&[0]), known, 1).unwrap();
    let first = exchange.ask(5);
    let [(liar, 7)] = first[..] else {
        panic!("{first:?}")
    };
    exchange.refused(liar, 7);
    assert_eq!(exchange.ask(5), [(3 - liar, 7)]);
    // Whoever was not asked takes no request away.
    exchange.refused(liar, 7);
    // Nobody answers: it asks again later, once.
    let later = (0..crate::swarm::exchange::LOST_AFTER + 2).flat_map(|_| exchange.ask(5));
    assert_eq!(later.count(), 1);
    assert!(exchange.received(3 - liar, 7) && !exchange.received(3 - liar, 7));

    assert_eq!(exchange.asked(9, 0), Err(ExchangeError::Stranger(9)));
    assert_eq!(exchange.asked(1, 5), Err(ExchangeError::NotHeld(5)));
    assert_eq!(exchange.has(1, 64), Err(ExchangeError::Unknown(64)));
    assert!(
        (0..20).all(|_| exchange.asked(1, 0).is_ok()),
        "the same request again is one request"
    );
    assert_eq!(exchange.serve(|_| true), Some((1, 0)));
    assert_eq!(exchange.serve(|_| true), None);
    let mut full = Exchange::new(64, all(&(0..64).collect::<Vec<_>>()), [(1, all(&[]))], 1).unwrap();
    assert!((0..16).all(|chunk| full.asked(1, chunk).is_ok()));
    assert_eq!(full.asked(1, 16), Err(ExchangeError::TooMuch(1)));
    assert!(Exchange::new(64, Inventory::none(200), [], 1).is_err());
}
