use super::disk::MOST_CLIENTS;
use super::*;
use futures::FutureExt;
use tempfile::TempDir;

fn on_disk(folder: &TempDir) -> Memory {
    Memory::on_disk(Store::open(folder.path()).unwrap(), ByteSize::gib(1))
}

fn key(driver: &[u8], client: u64) -> Key {
    Key {
        driver: NodeId::of_key(driver),
        run: RunId("0a".into()),
        client: ClientId(client),
    }
}

fn remembered(state: &[u8]) -> Remembered {
    Remembered {
        state: state.to_vec(),
        ..Remembered::default()
    }
}

#[test]
fn another_driver_finds_nothing_and_disturbs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let memory = on_disk(&folder);
    memory.put(&key(b"driver", 0), remembered(b"mine")).unwrap();
    assert_eq!(memory.get(&key(b"other", 0)).unwrap().state, b"");
    memory.put(&key(b"other", 0), remembered(b"its own")).unwrap();
    assert_eq!(memory.get(&key(b"driver", 0)).unwrap().state, b"mine");
}

#[test]
fn clients_and_their_progress_take_the_room_of_those_before() {
    let folder = tempfile::tempdir().unwrap();
    let memory = on_disk(&folder);
    let progress = |client| memory.progress(&key(b"driver", client), AssignmentId(1), 1);
    // Orders that never end leave progress alone.
    progress(0).save(b"begun".to_vec()).unwrap();
    memory.put(&key(b"driver", 1), remembered(b"one")).unwrap();
    for client in 2..MOST_CLIENTS as u64 {
        progress(client).save(b"begun".to_vec()).unwrap();
    }
    assert!(progress(0).load().is_some());
    for client in 100..102 {
        progress(client).save(b"begun".to_vec()).unwrap();
    }
    assert!(progress(0).load().is_none());
    assert_eq!(memory.get(&key(b"driver", 1)).unwrap().state, b"");
    assert!(progress(2).load().is_some() && progress(101).load().is_some());
}

#[test]
fn what_was_given_to_a_sum_is_known_after_a_restart_and_makes_room_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let memory = on_disk(&folder);
    let mine = key(b"driver", 7);
    memory.give(&mine, AssignmentId(3)).unwrap();
    for client in 100..101 + MOST_CLIENTS as u64 {
        memory.put(&key(b"driver", client), remembered(b"x")).unwrap();
    }
    drop(memory);
    let memory = on_disk(&folder);
    assert!(memory.given(&mine).unwrap().is_some());
    assert!(memory.given(&key(b"other", 7)).unwrap().is_none());
    let again = memory.give(&mine, AssignmentId(3)).unwrap_err();
    assert!(again.message.contains("is in a sum already"), "{again}");
    // Nor does the driver get a second client of the run out of one node by another number.
    let other = memory.give(&key(b"driver", 8), AssignmentId(4)).unwrap_err();
    assert_eq!(other.field.as_deref(), Some("client"), "{other}");
    memory.give(&mine, AssignmentId(4)).unwrap();
}

#[tokio::test]
async fn what_a_client_keeps_is_there_again_wherever_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let disk = on_disk(&folder);
    for memory in [disk, Memory::in_process(BTreeMap::new())].map(Arc::new) {
        let mine = key(b"driver", 3);
        assert_eq!(memory.recall(&mine).await.unwrap().state, b"");
        let of = mine.clone();
        let kept = memory.apart(move |memory| memory.put(&of, remembered(b"mine")));
        kept.await.unwrap();
        assert_eq!(memory.recall(&mine).await.unwrap().state, b"mine");
        assert!(!memory.has_given(&mine).await.unwrap());
        memory.give(&mine, AssignmentId(1)).unwrap();
        assert!(memory.has_given(&mine).await.unwrap());
    }
}

#[tokio::test]
async fn a_node_does_one_thing_of_a_run_after_the_other_whatever_number_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let memory = on_disk(&folder);
    let turn = memory.turn(&key(b"driver", 7)).await;
    assert!(memory.turn(&key(b"driver", 8)).now_or_never().is_none());
    assert!(memory.turn(&key(b"other", 8)).now_or_never().is_some());
    drop(turn);
    assert!(memory.turn(&key(b"driver", 8)).now_or_never().is_some());
}

#[test]
fn what_was_kept_with_an_answer_that_is_for_nothing_is_forgotten() {
    let mut kept = Remembered::default();
    let mut trains = |counted: Option<u64>, order, state: u8| {
        kept.goes_on_from(counted.map(AssignmentId), AssignmentId(order));
        std::mem::replace(&mut kept.state, vec![state])
    };
    assert!(trains(None, 1, 1).is_empty());
    assert_eq!(trains(Some(1), 2, 2), [1]);
    assert_eq!(trains(Some(1), 3, 3), [1], "the second answer was late");
    assert_eq!(trains(Some(3), 4, 4), [3]);
    assert_eq!(trains(Some(3), 5, 5), [3], "and so was the fourth");
}
