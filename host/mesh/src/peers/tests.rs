use super::*;
use karman_types::Tier;

/// Nobody has asked for longer.
const UNUSED: Duration = Duration::ZERO;

/// A book with this many nodes that are there.
fn there(nodes: usize) -> (Peers, Vec<PeerId>) {
    let (peers, ids): (_, Vec<_>) = (Peers::default(), (0..nodes).map(|_| PeerId::random()).collect());
    for (number, id) in ids.iter().enumerate() {
        let way = (ConnectionId::new_unchecked(number), Path::Direct);
        peers.connected(*id, way, None, None);
    }
    (peers, ids)
}

#[test]
fn some_are_listened_to_for_good_whether_anybody_asks_or_not() {
    let (peers, ids) = there(4);
    let silent = || {
        let (silent, missing) = peers.silent(3);
        (silent.len(), missing)
    };
    assert_eq!(silent(), (4, 3));
    assert!(ids.iter().all(|id| peers.begins_to_tell(id)));
    assert_eq!(silent(), (0, 0));
    let ended = ids.iter().filter(|id| peers.has_told_enough(id, UNUSED, 3));
    assert_eq!((ended.count(), silent()), (1, (1, 0)));
}

#[test]
fn who_is_asked_about_goes_on_telling() {
    let (peers, ids) = there(5);
    ids.iter().for_each(|id| assert!(peers.begins_to_tell(id)));
    let lately = Duration::from_secs(3600);
    assert!(ids.iter().all(|id| !peers.has_told_enough(id, lately, 3)));
}

#[test]
fn calls_of_this_node_count_before_the_other_has_said_so() {
    let (peers, ids) = there(1);
    let peers = Arc::new(peers);
    let under_way = || peers.list()[0].under_way();
    let calls = [peers.calls(ids[0]), peers.calls(ids[0])];
    assert_eq!(under_way(), 2);
    drop(calls);
    assert_eq!(under_way(), 0);
}

#[test]
fn who_is_called_tells_and_goes_on_telling() {
    let (peers, ids) = there(5);
    let lately = Duration::from_secs(3600);
    assert!(peers.called(lately).is_empty());
    peers.is_calling(&ids[1]);
    assert_eq!(peers.called(lately), [ids[1]]);
    assert!(peers.called(UNUSED).is_empty());
    let peers = Arc::new(peers);
    let under_way = peers.calls(ids[2]);
    assert_eq!(peers.called(UNUSED), [ids[2]]);
    assert!(ids.iter().all(|id| peers.begins_to_tell(id)));
    assert!(peers.called(lately).is_empty());
    assert!(!peers.has_told_enough(&ids[2], UNUSED, 3));
    drop(under_way);
    assert!(peers.has_told_enough(&ids[2], UNUSED, 3));
}

#[test]
fn one_that_is_gone_is_not_asked_to_tell() {
    let (peers, ids) = there(1);
    peers.disconnected(&ids[0], ConnectionId::new_unchecked(0));
    assert_eq!(peers.silent(3), (Vec::new(), 3));
}

#[test]
fn a_round_trip_is_known_after_the_node_has_gone_until_it_comes_by_another_path() {
    let (peers, ids) = there(1);
    let (id, took) = (ids[0], Duration::from_millis(38));
    let way = |number: usize, path| (ConnectionId::new_unchecked(number), path);
    let since = || peers.list()[0].since;
    peers.measured(&id, way(0, Path::Direct).0, took);
    assert!(since().is_some());
    peers.disconnected(&id, way(0, Path::Direct).0);
    assert_eq!((peers.round_trip(&id), since()), (Some(took), None));
    assert!(peers.list()[0].round_trip_age().is_some());
    peers.connected(id, way(1, Path::Direct), None, None);
    assert_eq!(peers.round_trip(&id), Some(took));
    peers.disconnected(&id, way(1, Path::Direct).0);
    peers.connected(id, way(2, Path::Relayed), None, None);
    assert_eq!(peers.round_trip(&id), None);
    assert!(peers.list()[0].round_trip_age().is_none());
}

#[test]
fn the_one_that_has_told_for_longest_gives_way_where_another_can_take_its_place() {
    let (peers, ids) = there(4);
    let peers = Arc::new(peers);
    let [first, called, third] = [ids[0], ids[1], ids[2]];
    for id in [first, called, third] {
        assert!(peers.begins_to_tell(&id));
    }
    let _under_way = peers.calls(called);
    assert_eq!(peers.gives_way(Duration::from_secs(3600)), None);
    assert_eq!(peers.gives_way(UNUSED), Some(first));
    assert_eq!(peers.silent(3).1, 1);
    // What it says is not listened to any more.
    assert!(peers.has_told_enough(&first, UNUSED, 3));
    assert_eq!(peers.gives_way(UNUSED), Some(third));
    assert_eq!(peers.gives_way(UNUSED), None);
}

#[test]
fn where_all_tell_none_gives_way() {
    let (peers, ids) = there(3);
    assert!(ids.iter().all(|id| peers.begins_to_tell(id)));
    assert_eq!(peers.gives_way(UNUSED), None);
}

#[test]
fn what_a_node_offers_that_tells_what_changes_holds_until_a_call_fails() {
    let (peers, ids) = there(1);
    let id = ids[0];
    let says = |number| StatusReport {
        run: 1,
        number,
        busy: 0,
        offer: Some(Offer {
            node: NodeId::of_key(b"a node"),
            tier: Tier::Edge,
            cores: 1,
            memory: 1,
            tasks: Vec::new(),
            models: Vec::new(),
        }),
    };
    let said = |age| {
        let mut peers = peers.peers.lock();
        let (_, when) = peers.get_mut(&id).unwrap().offer.as_mut().unwrap();
        *when = Instant::now().checked_sub(age).unwrap();
    };
    let is_fresh = || peers.fresh(&id).is_some();
    let age = || peers.last_heard(&id).1.unwrap().elapsed();
    peers.says(id, says(1));
    said(FRESH);
    assert!(!is_fresh() && age() >= FRESH, "it tells nothing");
    assert!(peers.begins_to_tell(&id));
    said(TOLD / 2);
    assert!(is_fresh() && age() < FRESH);
    peers.doubts(&id);
    assert!(!is_fresh() && age() >= TOLD / 2);
    peers.says(id, says(2));
    said(TOLD / 2);
    assert!(is_fresh());
    said(TOLD);
    assert!(!is_fresh());
    said(TOLD / 2);
    peers.tells_no_more(&id);
    assert!(!is_fresh());
}
