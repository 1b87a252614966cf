//! What a party that lies gets.

use super::*;
use serde_bytes::ByteArray;

/// Everybody has signed, one client has dropped out before its vector; what the coordinator would ask of the first.
fn before_unmasking() -> (World, NodeId, UnmaskRequest) {
    let mut world = World::new(5, Graph::Complete, 1, |_| true);
    let last = world.node(4);
    while world.server.step() != Step::Unmask {
        world.close().unwrap();
        if world.server.step() != Step::Unmask {
            world.deliver(|node, step| node != last || step < Step::Mask);
        }
    }
    let (node, request) = match world.pending.first().unwrap() {
        (node, ToClient::Unmask(request)) => (*node, request.clone()),
        other => panic!("{other:?}"),
    };
    (world, node, request)
}

fn refused(change: impl FnOnce(&World, &mut UnmaskRequest)) -> Refusal {
    let (mut world, node, mut request) = before_unmasking();
    change(&world, &mut request);
    let client = world.clients.get_mut(&node).unwrap();
    let refusal = client.handle(ToClient::Unmask(request)).unwrap_err();
    assert_eq!(
        client.step(),
        Step::Consistency,
        "it still answers an honest request"
    );
    assert!(world.answer(node).is_ok());
    refusal
}

#[test]
fn a_client_that_survived_and_dropped_out_is_not_unmasked() {
    let refusal = refused(|_, request| request.dropped.insert(2));
    assert!(matches!(refusal, Refusal::Overlap(_)), "{refusal}");
}

#[test]
fn a_second_request_is_refused() {
    let (mut world, node, request) = before_unmasking();
    let client = world.clients.get_mut(&node).unwrap();
    client.handle(ToClient::Unmask(request.clone())).unwrap();
    assert_eq!(client.handle(ToClient::Unmask(request)), Err(Refusal::Revealed));
    // And with the lists swapped, which is what a second request would be good for.
    let swapped = UnmaskRequest {
        survivors: Members::of(5, [0, 1, 2, 4]),
        dropped: Members::of(5, [3]),
        signatures: Vec::new(),
    };
    assert_eq!(client.handle(ToClient::Unmask(swapped)), Err(Refusal::Revealed));
}

#[test]
fn lists_other_than_those_that_were_signed_are_refused() {
    let moved = refused(|_, request| {
        request.survivors = Members::of(5, [0, 1, 3]);
        request.dropped.insert(2);
    });
    assert_eq!(moved, Refusal::OtherSurvivors);
    assert_eq!(
        refused(|_, request| request.dropped = Members::none(5)),
        Refusal::NotAll
    );
    let long = refused(|_, request| request.survivors = Members::of(50, [0, 1, 2, 3]));
    assert_eq!(long, Refusal::Members(Step::Unmask));
}

#[test]
fn survivors_that_others_did_not_sign_are_refused() {
    let few = refused(|_, request| request.signatures.truncate(2));
    assert_eq!(
        few,
        Refusal::TooFew {
            step: Step::Consistency,
            have: 2,
            need: 4
        }
    );
    let repeated = refused(|_, request| request.signatures = vec![request.signatures[1]; 5]);
    assert_eq!(
        repeated,
        Refusal::TooFew {
            step: Step::Consistency,
            have: 2,
            need: 4
        }
    );
    let endless = refused(|_, request| request.signatures = vec![request.signatures[1]; 6]);
    assert_eq!(
        endless,
        Refusal::Count {
            what: Step::Consistency,
            have: 6,
            need: 5
        }
    );
    let forged = refused(|_, request| request.signatures[2].1 = ByteArray::new([9; 64]));
    assert!(
        matches!(
            forged,
            Refusal::Signature {
                what: Step::Consistency,
                ..
            }
        ),
        "{forged}"
    );
}

/// A coordinator that shows one half of the clients one list and the other half another gets the signatures of neither.
#[test]
fn a_coordinator_that_equivocates_gets_nothing() {
    let mut world = World::up_to(6, Graph::Complete, Step::Mask);
    world.deliver(|_, _| true);
    world.close().unwrap();
    let nodes: Vec<_> = (0..6).map(|position| world.node(position)).collect();
    let lists = [Members::of(6, [0, 1, 2, 3, 4]), Members::of(6, [0, 1, 2, 3, 5])];
    let mut signatures = [Vec::new(), Vec::new()];
    for (place, node) in nodes[..4].iter().enumerate() {
        let told = ToClient::Survivors(lists[place % 2].clone());
        let answer = world.clients.get_mut(node).unwrap().handle(told);
        let Ok(Some(ToServer::Consistent(signature))) = answer else {
            panic!("{answer:?}")
        };
        signatures[place % 2].push((place as Position, signature));
    }
    for (place, node) in nodes[..4].iter().enumerate() {
        let survivors = lists[place % 2].clone();
        let request = UnmaskRequest {
            dropped: Members::of(6, 0..6).without(&survivors),
            survivors,
            signatures: signatures[place % 2].clone(),
        };
        let answer = world
            .clients
            .get_mut(node)
            .unwrap()
            .handle(ToClient::Unmask(request));
        let too_few = Refusal::TooFew {
            step: Step::Consistency,
            have: 2,
            need: 5,
        };
        assert_eq!(answer, Err(too_few));
    }
}

#[test]
fn a_coordinator_cannot_bring_members_in_or_shrink_the_round() {
    let mut world = World::up_to(5, Graph::Complete, Step::Shares);
    let node = world.node(0);
    let ToClient::Keys { members, keys } = world.pending[0].1.clone() else {
        panic!()
    };
    let client = world.clients.get_mut(&node).unwrap();
    let mut say = |members: &Members, keys: &[Keys]| {
        client
            .handle(ToClient::Keys {
                members: members.clone(),
                keys: keys.to_vec(),
            })
            .unwrap_err()
    };
    assert_eq!(
        say(&Members::of(5, [1, 2]), &keys[..2]),
        Refusal::LeftOut(Step::Keys)
    );
    // Alone, or with no more than would be a third of all who lie.
    for (shown, have) in [(Members::of(5, [0]), 1), (Members::of(5, [0, 1, 2]), 3)] {
        let few = Refusal::TooFew {
            step: Step::Keys,
            have,
            need: 4,
        };
        assert_eq!(say(&shown, &keys[..have - 1]), few);
    }
    assert_eq!(
        say(&members, &keys[..3]),
        Refusal::Count {
            what: Step::Keys,
            have: 3,
            need: 4
        }
    );
    let mut own = keys.clone();
    own[1].mask = own[0].mask;
    let swapped = say(&members, &own);
    assert!(
        matches!(swapped, Refusal::Signature { what: Step::Keys, .. }),
        "{swapped}"
    );

    // Members that come later, with whom there is no mask.
    let last = world.node(4);
    world.deliver(|node, _| node != last);
    world.close().unwrap();
    let client = world.clients.get_mut(&node).unwrap();
    let ToClient::Shares { sealed, .. } = &world.pending[0].1 else {
        panic!()
    };
    let more = ToClient::Shares {
        sharers: Members::of(9, 0..9),
        sealed: sealed.clone(),
    };
    assert_eq!(client.handle(more), Err(Refusal::Members(Step::Shares)));
    client.handle(world.pending[0].1.clone()).unwrap();
    client.mask(&world.vectors[&node]).unwrap();
    let back = client.handle(ToClient::Survivors(Members::of(5, 0..5)));
    assert_eq!(back, Err(Refusal::Members(Step::Mask)));
    let too_few = client.handle(ToClient::Survivors(Members::of(5, [0, 1])));
    assert_eq!(
        too_few,
        Err(Refusal::TooFew {
            step: Step::Mask,
            have: 2,
            need: 4
        })
    );
}

#[test]
fn steps_come_in_turn_and_vectors_once() {
    let mut world = World::up_to(4, Graph::Complete, Step::Mask);
    let node = world.node(0);
    let message = world.pending[0].1.clone();
    let vector = world.vectors[&node].clone();
    let client = world.clients.get_mut(&node).unwrap();
    let early = client.mask(&vector);
    assert_eq!(
        early,
        Err(Refusal::OutOfTurn {
            said: Step::Mask,
            at: Step::Shares
        })
    );
    client.handle(message.clone()).unwrap();
    assert!(matches!(
        client.handle(message),
        Err(Refusal::OutOfTurn {
            said: Step::Shares,
            ..
        })
    ));
    assert_eq!(
        client.mask(&vector[1..]),
        Err(Refusal::Length { have: 4, need: 5 })
    );
    assert_eq!(client.mask(&[0, 0, 1 << 32, 0, 0]), Err(Refusal::OutsideRing(2)));
    let Ok(ToServer::Masked(bytes)) = client.mask(&vector) else {
        panic!()
    };
    assert_ne!(bytes, Ring::BITS_32.pack(&vector));
    // The same mask on another vector would give their difference away.
    assert!(matches!(client.mask(&vector), Err(Refusal::OutOfTurn { .. })));
}

#[test]
fn bad_messages_of_clients_change_nothing() {
    let (session, identities) = session(4, Graph::Complete, 5);
    let nodes: Vec<_> = session
        .roster()
        .members()
        .iter()
        .map(|member| member.node)
        .collect();
    let mut server = Server::new(session.clone());
    let pass = || Pass::new(session.roster().members()[0].once);
    let (_, keys) = Client::join(session.clone(), nodes[0], identities[0].clone(), pass(), [1; 32]).unwrap();
    let stranger = NodeId::of_key(b"stranger");
    assert_eq!(
        server.receive(stranger, keys.clone()),
        Err(Rejected::NotInvited(stranger))
    );
    assert_eq!(
        server.receive(nodes[1], keys.clone()),
        Err(Rejected::Signature(nodes[1]))
    );
    let early = server.receive(nodes[0], ToServer::Masked(vec![0; 20].into()));
    assert!(matches!(early, Err(Rejected::OutOfTurn { .. })), "{early:?}");
    server.receive(nodes[0], keys.clone()).unwrap();
    assert_eq!(server.receive(nodes[0], keys), Err(Rejected::Repeated(nodes[0])));
    assert_eq!(server.waiting(), nodes[1..]);
    let wrong = Client::join(session.clone(), nodes[0], identities[1].clone(), pass(), [1; 32]);
    assert_eq!(wrong.unwrap_err(), Refusal::NotMyKey(nodes[0]));

    let mut world = World::up_to(4, Graph::Complete, Step::Mask);
    let short = world
        .server
        .receive(nodes[0], ToServer::Masked(vec![0; 19].into()));
    assert!(matches!(
        short,
        Err(Rejected::Length {
            what: "bytes",
            have: 19,
            need: 20,
            ..
        })
    ));
    world.deliver(|_, _| true);
    assert_eq!(world.server.waiting(), []);
}

#[test]
fn a_key_of_low_order_is_refused_by_both_sides() {
    let (session, identities) = session(4, Graph::Complete, 5);
    let node = session.roster().members()[0].node;
    let (channel, mask) = ([1; 32], [0; 32]);
    let statement = super::super::keys::Statement::Keys {
        channel: &channel,
        mask: &mask,
    };
    let keys = Keys {
        channel: channel.into(),
        mask: mask.into(),
        signature: statement.sign(&session, &identities[0]).into(),
    };
    let refused = Server::new(session.clone()).receive(node, ToServer::Keys(keys));
    assert_eq!(refused, Err(Rejected::WeakKey(node)));
}

#[test]
fn settings_that_make_no_round_are_refused() {
    let (good, _) = session(4, Graph::Complete, 5);
    let members = good.roster().members().to_vec();
    let make = |change: fn(&mut Settings)| {
        let mut settings = good.settings().clone();
        change(&mut settings);
        Session::new(settings, members.clone()).unwrap_err()
    };
    assert_eq!(make(|settings| settings.length = 0), SettingsError::Length(0));
    assert_eq!(
        make(|settings| settings.least = 1),
        SettingsError::Least { least: 1, invited: 4 }
    );
    assert_eq!(
        make(|settings| settings.least = 5),
        SettingsError::Least { least: 5, invited: 4 }
    );
    let none = make(|settings| settings.graph = Graph::Ring(Degree::Of(0)));
    assert_eq!(none, SettingsError::NoNeighbours);
}
