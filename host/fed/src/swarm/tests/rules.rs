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
    assert_eq!(
        peer.altered(),
        &BTreeSet::from([1]),
        "it is named after the round"
    );
    // What came by way of a third says nothing of that one.
    let passed_on = peer.received(0, foreign, &[9; 8]);
    assert_eq!(passed_on, Err(ChunkError::Altered(foreign).into()));
    assert_eq!(peer.altered().len(), 1);
    assert_eq!(peer.exchange().unwrap_err(), PeerError::WarmUp);
}

#[test]
fn a_peer_falls_back_no_further_than_a_receiver_without_a_cover_needs() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 14);
    let own = world.coordinator.update_of(0).unwrap() * 25;
    let tell = |to, chunk| Transfer {
        from: 0,
        to,
        chunk,
        ground: Ground::Unprotected,
    };
    // A receiver has the chunks of its own.
    let lacks = world.settings.cover(14) - 25;
    let beyond = own + lacks;
    let peer = &mut world.peers[0];
    for chunk in (own..beyond).chain([own]) {
        assert_eq!(peer.told(&tell(1, chunk)), Ok(()), "it may be told twice");
    }
    assert_eq!(peer.told(&tell(1, beyond)), Err(PeerError::Uncovered(beyond)));
    assert_eq!(peer.told(&tell(2, beyond)), Ok(()));
    assert_eq!(peer.unprotected(), lacks + 2);
    // Who has so much for others falls back to nothing, once the coordinator knows.
    for other in [1_u16, 2] {
        for (chunk, bytes) in world.stores[usize::from(other)].clone() {
            assert_eq!(world.peers[0].received(other, chunk, &bytes), Ok(true));
        }
    }
    let peer = &mut world.peers[0];
    assert_eq!(peer.told(&tell(3, own)), Ok(()));
    assert_eq!(peer.report().len(), 75);
    assert_eq!(peer.told(&tell(3, own)), Err(PeerError::Uncovered(own)));
}

#[test]
fn a_peer_has_the_same_neighbours_all_the_time_and_its_cover_at_the_end() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 14);
    let own = world.coordinator.update_of(0).unwrap() * 25;
    let tell = |to, chunk, ground| Transfer {
        from: 0,
        to,
        chunk,
        ground,
    };
    let cover = world.settings.cover(14);
    let foreign = world.stores[5].clone();
    let peer = &mut world.peers[0];
    assert_eq!(peer.told(&tell(1, own, Ground::Spray)), Ok(()));
    assert_eq!(
        peer.told(&tell(1, own, Ground::Unprotected)),
        Err(PeerError::Overlay(1))
    );
    assert_eq!(peer.told(&tell(2, own, Ground::Unprotected)), Ok(()));
    assert_eq!(
        peer.told(&tell(2, own, Ground::Spray)),
        Err(PeerError::Overlay(2))
    );
    for to in [0, 14] {
        let nowhere = PeerError::Nowhere { chunk: own, to };
        assert_eq!(peer.told(&tell(to, own, Ground::Unprotected)), Err(nowhere));
    }
    for (chunk, bytes) in &foreign {
        assert_eq!(peer.received(5, *chunk, bytes), Ok(true));
        assert_eq!(peer.told(&tell(3, *chunk, Ground::Cover)), Ok(()));
        let as_its_own = peer.told(&tell(3, *chunk, Ground::Offered));
        assert_eq!(as_its_own, Err(PeerError::NotMine(*chunk)));
    }
    assert_eq!(peer.check_end([2, 3, 4], true), Ok(()), "it has twice its own");
    for stranger in [0, 1, 14] {
        assert_eq!(
            peer.check_end([2, stranger], false),
            Err(PeerError::Overlay(stranger))
        );
    }
    assert_eq!(peer.needed(), None);
    let bare = &world.peers[7];
    assert_eq!(bare.needed(), Some(cover), "it has its own alone");
    let lacks = PeerError::NoCover { held: 25, cover };
    assert_eq!(bare.check_end([], true), Err(lacks));
    assert_eq!(bare.check_end([2], false), Ok(()));
    assert_eq!(bare.check_end([], false), Err(PeerError::Alone));
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
