//! When a client leaves its round, and when it goes on without its leader.

use super::*;
use karman_fed::swarm::Ground;

#[test]
fn a_round_whose_leader_breaks_its_rules_is_left_and_the_reason_told() {
    let order = |chunk| Transfer {
        from: 0,
        to: 1,
        chunk,
        ground: Ground::Offered,
    };
    // What nothing hides, more than its link carries, and what it does not hold.
    let wrong: [fn(Chunk) -> Vec<Chunk>; 3] = [
        |own| vec![own],
        |own| vec![own, own],
        |own| vec![LAYOUT.chunks - own],
    ];
    for wrong in wrong {
        let folder = tempfile::tempdir().unwrap();
        let (seat, round, _, first) = begun(&folder);
        let (tell, mut told) = oneshot::channel();
        *seat.tell.lock() = Some(tell);
        let orders: Vec<Transfer> = wrong(LAYOUT.chunks - first).into_iter().map(order).collect();
        let left = seat.told(round, &orders).unwrap_err();
        assert_eq!(left.kind, ErrorKind::Denied, "{left}");
        assert_eq!(told.try_recv().unwrap(), Err(left));
        let over = seat.playing(round, |_| Ok(())).unwrap_err();
        assert_eq!(over.kind, ErrorKind::Unavailable, "{over}");
    }
}

#[test]
fn who_wants_a_cover_and_has_none_at_the_end_of_the_warm_up_leaves() {
    for (protection, stays) in [(0.0, true), (0.2, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (seat, round, ..) = begun_with(&folder, protection, Cover::OfSwarm(1.0));
        let none = || Inventory::none(2 * LAYOUT.chunks);
        let hood = Neighbourhood {
            neighbours: vec![(1, none())],
            known: none(),
            covered: true,
        };
        let ended = seat.ends_warm_up(round, hood);
        assert_eq!(ended.is_ok(), stays, "{ended:?}");
        assert_eq!(seat.playing(round, |_| Ok(())).is_ok(), stays);
        if let Err(left) = ended {
            assert_eq!(left.kind, ErrorKind::Denied, "{left}");
        }
    }
}

#[test]
fn a_round_in_which_nobody_is_left_to_exchange_pieces_with_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, ..) = begun(&folder);
    let hood = Neighbourhood {
        neighbours: Vec::new(),
        known: Inventory::none(2 * LAYOUT.chunks),
        covered: true,
    };
    let left = seat.ends_warm_up(round, hood).unwrap_err();
    assert_eq!(
        (left.kind, left.field.as_deref()),
        (ErrorKind::Denied, Some("lead"))
    );
    assert!(seat.playing(round, |_| Ok(())).is_err());
}

/// A time so many milliseconds after the client began to wait.
fn at(millis: u64) -> karman_fed::Instant {
    karman_fed::Instant(millis)
}

fn neglected(left: Result<(), TaskError>, says: &str) {
    let left = left.unwrap_err();
    assert_eq!(
        (left.kind, left.field.as_deref()),
        (ErrorKind::Deadline, Some("lead"))
    );
    assert!(left.message.contains(says), "{left}");
}

#[test]
fn a_leader_that_says_nothing_is_left_whether_the_round_has_begun_or_not() {
    for begins in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let seat = match begins {
            true => begun(&folder).0,
            false => Seat::new(entry(vec![0.5; 2], 0.0), folder.path(), oneshot::channel().0).unwrap(),
        };
        let (tell, mut told) = oneshot::channel();
        *seat.tell.lock() = Some(tell);
        assert_eq!(seat.look(at(99)), Ok(()));
        assert!(told.try_recv().is_err(), "it goes on");
        neglected(seat.look(at(100)), "has said nothing for 100 ms");
        assert_eq!(told.try_recv().unwrap().unwrap_err().kind, ErrorKind::Deadline);
        assert!(matches!(&*seat.stage.lock(), Stage::Over));
    }
}

#[test]
fn a_leader_that_talks_and_keeps_the_pieces_back_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, chunks, first) = begun_with(&folder, 0.0, Cover::OfSwarm(1.0));
    assert_eq!(seat.look(at(10)), Ok(()));
    // A piece has come since.
    seat.keep(round, 1, first, &chunks[0]).unwrap();
    seat.attention.lock().heard(at(90));
    assert_eq!(seat.look(at(90)), Ok(()));
    seat.attention.lock().heard(at(180));
    assert_eq!(seat.look(at(189)), Ok(()));
    neglected(seat.look(at(190)), "3 are here, and 4 are needed");
}

#[test]
fn who_has_its_cover_waits_for_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, ..) = begun(&folder);
    seat.attention.lock().heard(at(10_000));
    assert_eq!(seat.look(at(10_050)), Ok(()));
}

#[tokio::test]
async fn once_clients_are_by_themselves_no_silence_ends_the_round_for_one_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, _) = exchanging(&folder);
    // As a leader that never has clients begin.
    assert!(seat.look(at(1_000)).is_err());

    let (again, ..) = exchanging(&folder);
    let task = tokio::spawn(std::future::pending::<()>());
    *again.swarming.lock() = Some(task.abort_handle());
    assert_eq!(again.look(at(1_000)), Ok(()));
    // Pieces put its end off as well as words do.
    again.supplied(at(1_000));
    assert!(!again.attention.lock().is_over(at(1_099)));
    assert!(again.attention.lock().is_over(at(1_100)));
    assert!(again.playing(round, |_| Ok(())).is_ok());
}

#[test]
fn nobody_is_taken_for_gone_on_the_word_of_the_leader_once_clients_are_by_themselves() {
    let has_left = |seat: &Seat, round| {
        let told = seat.playing(round, |playing| {
            playing.report(&[1]);
            Ok(playing.has_left(1))
        });
        told.unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, ..) = begun(&folder);
    assert!(has_left(&seat, round), "the leader says who sends what to whom");
    let (seat, round, own) = exchanging(&folder);
    assert!(!has_left(&seat, round));
    let asked = seat.playing(round, |playing| playing.wanted(node(1), &own[..1]));
    assert_eq!(asked, Ok(Answer::Done), "it is a neighbour as before");
}
