//! Shares that are not what they should be: who is named for it, and whether there is a sum.

use super::*;
use serde_bytes::ByteArray;

#[test]
fn holders_that_lie_are_named_and_done_without() {
    let mut world = World::up_to(5, Graph::Complete, Step::Unmask);
    let (liar, victim) = (world.node(1), world.node(3));
    for node in world.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
        let mut answer = world.answer(node).unwrap();
        if let ToServer::Unmask(Revealed(shares)) = &mut answer
            && node == liar
        {
            shares[3] = Some(ByteArray::new([5; 32]));
        }
        world.server.receive(node, answer).unwrap();
    }
    let sum = world.close().unwrap().unwrap();
    assert_eq!(sum.elements, world.plain_sum(&sum.survivors));
    let fault = Fault {
        owner: victim,
        holder: liar,
        what: FaultKind::Changed,
    };
    assert_eq!(sum.faults, [fault]);
}

#[test]
fn shares_that_are_garbage_do_not_stop_the_round() {
    let mut world = World::up_to(5, Graph::Complete, Step::Shares);
    let (owner, holder) = (world.node(0), world.node(1));
    for node in world.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
        let mut answer = world.answer(node).unwrap();
        if let ToServer::Shares(shares) = &mut answer
            && node == owner
        {
            shares.sealed[0] = ByteArray::new([5; 80]);
        }
        world.server.receive(node, answer).unwrap();
    }
    let sum = loop {
        if let Some(sum) = world.close().unwrap() {
            break sum;
        }
        world.deliver(|_, _| true);
    };
    assert_eq!(sum.elements, world.plain_sum(&sum.survivors));
    assert_eq!(
        sum.faults,
        [Fault {
            owner,
            holder,
            what: FaultKind::Garbage
        }]
    );
}

#[test]
fn a_false_secret_fails_the_round_and_names_its_owner() {
    let mut world = World::up_to(4, Graph::Complete, Step::Shares);
    let owner = world.node(2);
    for node in world.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
        let mut answer = world.answer(node).unwrap();
        if let ToServer::Shares(shares) = &mut answer
            && node == owner
        {
            shares.own_mask = ByteArray::new([5; 32]);
        }
        world.server.receive(node, answer).unwrap();
    }
    let failure = loop {
        match world.close() {
            Ok(sum) => assert_eq!(sum, None),
            Err(failure) => break failure,
        }
        world.deliver(|_, _| true);
    };
    assert_eq!(failure, Failure::FalseSecret(owner));
    assert_eq!(failure.liar(), Some(owner));
    assert_eq!(world.close(), Err(Failure::Over));
}

/// Whose the garbage is, where one shares its secrets so.
fn blamed_for(lie: fn(&mut Shares)) -> NodeId {
    let mut world = World::up_to(5, Graph::Complete, Step::Shares);
    let owner = world.node(0);
    for node in world.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
        let mut answer = world.answer(node).unwrap();
        if let ToServer::Shares(shares) = &mut answer
            && node == owner
        {
            lie(shares);
        }
        world.server.receive(node, answer).unwrap();
    }
    let failure = loop {
        match world.close() {
            Ok(sum) => assert_eq!(sum, None),
            Err(failure) => break failure,
        }
        world.deliver(|_, _| true);
    };
    assert_eq!(failure, Failure::Garbage { owner, holders: 2 });
    assert_eq!(failure.liar(), Some(owner));
    owner
}

/// Of five holders four are needed: with two that have got garbage there is no secret, with one there is.
#[test]
fn garbage_for_too_many_holders_fails_the_round_and_names_who_shared_it() {
    let lies: [fn(&mut Shares); 2] = [
        |shares| shares.sealed[..2].fill(ByteArray::new([5; 80])),
        // Well sealed, and not what was committed to: holders find nothing wrong with it.
        |shares| shares.commitments[1..3].fill(ByteArray::new([5; 32])),
    ];
    let owner = lies.map(blamed_for)[0];
    // Who is gone is no liar, and who is said to be one by one of three holders may be none.
    let mut world = World::up_to(3, Graph::Complete, Step::Unmask);
    let liar = world.node(1);
    for node in world.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
        let mut answer = world.answer(node).unwrap();
        if let ToServer::Unmask(Revealed(shares)) = &mut answer
            && node == liar
        {
            shares[0] = None;
        }
        world.server.receive(node, answer).unwrap();
    }
    assert_eq!(world.close().unwrap_err().liar(), None);
    let gone = Failure::TooFewShares {
        owner,
        have: 3,
        need: 4,
    };
    assert_eq!(gone.liar(), None);
}
