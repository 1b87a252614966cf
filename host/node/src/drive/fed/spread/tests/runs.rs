use super::*;
use crate::drive::fed::record::{FedEvent, Record};
use crate::drive::fed::testing::{conducted, described, driven, model, troubles};
use karman_fed::Pace;
use karman_store::Store;

/// The bits of the model after four rounds, and the log.
async fn learn(more: &str, does: Does) -> (Vec<u32>, Vec<FedEvent>) {
    driven(described(more), meeting(does)).await
}

/// The clients of each round, and of them those that have come to its mean; all of them where none was to.
fn rounds(log: &[FedEvent]) -> Vec<(Vec<u64>, Vec<u64>)> {
    let numbers = |clients: &[ClientId]| -> Vec<u64> { clients.iter().map(|client| client.0).collect() };
    let round = |event: &FedEvent| match event {
        FedEvent::Round { clients, swarm, .. } => {
            let complete = swarm.as_ref().map_or(clients, |swarm| &swarm.complete);
            Some((numbers(clients), numbers(complete)))
        }
        _ => None,
    };
    log.iter().filter_map(round).collect()
}

/// Of each round, the clients that have not come to its mean, and why.
fn apart(log: &[FedEvent]) -> Vec<Vec<(u64, String)>> {
    let round = |event: &FedEvent| match event {
        FedEvent::Round { swarm, .. } => {
            let apart = swarm.iter().flat_map(|swarm| &swarm.apart);
            Some(apart.map(|one| (one.client.0, one.why.clone())).collect())
        }
        _ => None,
    };
    log.iter().filter_map(round).collect()
}

fn all() -> (Vec<u64>, Vec<u64>) {
    (vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4])
}

fn but_two() -> Vec<u64> {
    vec![0, 1, 3, 4]
}

#[tokio::test]
async fn the_model_is_the_one_that_updates_in_the_open_make() {
    for (does, second) in [(Does::Well, all()), (Does::Fail, (but_two(), but_two()))] {
        let (plain, seen) = learn("", does).await;
        let (spread, log) = learn("[swarm]\n", does).await;
        let rounds_were = [all(), second, all(), all()];
        assert_eq!(rounds(&seen), rounds_were, "{seen:?}");
        assert_eq!(rounds(&log), rounds_were, "{log:?}");
        assert_eq!(spread, plain);
        let named = troubles(&log)
            .iter()
            .any(|what| what.contains("it has no data today"));
        assert_eq!(named, does == Does::Fail, "{log:?}");
    }
}

#[tokio::test]
async fn how_a_round_went_is_told() {
    let (_, log) = learn("[swarm]\n", Does::Well).await;
    let how = log.iter().find_map(|event| match event {
        FedEvent::Round { swarm, bytes_up, .. } => Some((swarm.clone().unwrap(), *bytes_up)),
        _ => None,
    });
    let (how, bytes) = how.unwrap();
    assert!(how.covered);
    assert_eq!((how.unprotected, how.warm_up_ms, how.ms), (5, 30, 100));
    // The mean of three numbers, once, and no update.
    assert_eq!(bytes, 12);
}

#[tokio::test]
async fn one_that_leaves_or_misses_a_round_stops_no_other() {
    let (_, log) = learn("[swarm]\n", Does::Leave).await;
    // Its update had got round before. It was not announced again.
    let left = (but_two(), but_two());
    let second = (all().0, but_two());
    assert_eq!(rounds(&log), [all(), second, left.clone(), left], "{log:?}");
    let of_two = vec![(2, String::from("it has left the round"))];
    assert_eq!(apart(&log), [vec![], of_two, vec![], vec![]], "{log:?}");
    let (_, log) = learn("[swarm]\n", Does::Miss).await;
    assert_eq!(rounds(&log), vec![(but_two(), but_two()); 4], "{log:?}");
    let named = troubles(&log);
    assert!(
        named.iter().any(|what| what.contains("it is not there")),
        "{named:?}"
    );
}

#[tokio::test]
async fn one_that_leaves_and_says_why_is_named_with_that_and_asked_again() {
    let (_, log) = learn("[swarm]\n", Does::Quit).await;
    let second = (all().0, but_two());
    assert_eq!(rounds(&log), [all(), second, all(), all()], "{log:?}");
    let of_two = vec![(2, String::from("it is not led by the rules"))];
    assert_eq!(apart(&log), [vec![], of_two, vec![], vec![]], "{log:?}");
    let named = troubles(&log);
    assert!(
        named
            .iter()
            .any(|what| what.contains("it is not led by the rules")),
        "{named:?}"
    );
}

#[tokio::test]
async fn one_that_says_it_has_another_mean_is_not_believed() {
    let (plain, _) = learn("", Does::Well).await;
    let (spread, log) = learn("[swarm]\n", Does::Lie).await;
    assert_eq!(rounds(&log), vec![(all().0, but_two()); 4], "{log:?}");
    for apart in apart(&log) {
        assert_eq!(apart.len(), 1, "{log:?}");
        assert!(apart[0].1.contains("another mean"), "{apart:?}");
        assert_eq!(apart[0].0, 2);
    }
    assert_eq!(spread, plain);
}

#[tokio::test]
async fn one_that_gives_others_false_pieces_is_named_and_left_out_of_later_rounds() {
    let (_, log) = learn("[swarm]\n", Does::Alter).await;
    let without = (but_two(), but_two());
    assert_eq!(rounds(&log), [all(), all(), without.clone(), without], "{log:?}");
    let named = |event: &FedEvent| match event {
        FedEvent::Round { swarm, .. } => Some(swarm.clone().unwrap().false_pieces),
        _ => None,
    };
    let named: Vec<Vec<ClientId>> = log.iter().filter_map(named).collect();
    // The one that is accused by a liar alone is not.
    assert_eq!(named, [vec![], vec![ClientId(2)], vec![], vec![]], "{log:?}");
    let troubles = troubles(&log);
    assert!(
        troubles.iter().any(|what| what.contains("no piece of the round")),
        "{troubles:?}"
    );
}

#[tokio::test]
async fn one_that_never_says_what_it_has_come_to_holds_up_a_round_and_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut record = described("[swarm]\n");
    record.run.rounds = 1;
    let Pace::Synchronous { timeout, .. } = &mut record.run.pace else {
        panic!("it is not synchronous")
    };
    // Half of it is waited for the one.
    *timeout = Duration::from_secs(8);
    let (conductor, handle) = conducted(record, &store, meeting(Does::Hang));
    conductor.drive().await.unwrap();
    let log = handle.status(0).log;
    assert_eq!(rounds(&log), [(all().0, but_two())], "{log:?}");
    let of_two = vec![(2, String::from("it has not said what it has come to"))];
    assert_eq!(apart(&log), [of_two], "{log:?}");
}

#[tokio::test]
async fn a_driver_that_is_started_again_comes_to_the_same_and_nobody_trains_twice() {
    let (plain, _) = learn("", Does::Well).await;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let clients = meeting(Does::Well);
    clients.0.hangs.store(true, Ordering::Relaxed);
    let (conductor, _handle) = conducted(described("[swarm]\n"), &store, clients.clone());
    let driving = tokio::spawn(conductor.drive());
    // All wait for the second round.
    clients.0.hung.notified().await;
    driving.abort();
    assert!(driving.await.unwrap_err().is_cancelled());
    let record = Record::read(&store, "x").unwrap().unwrap();
    let (conductor, handle) = conducted(record, &store, clients.clone());
    conductor.drive().await.unwrap();
    assert_eq!(model(&store), plain);
    assert_eq!(rounds(&handle.status(0).log), vec![all(); 4]);
    assert_eq!(clients.0.trainings.load(Ordering::Relaxed), 4 * CLIENTS as usize);
}
