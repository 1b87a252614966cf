//! Coordinators that have the same clients join more than once: two rounds in which a client could be made to lay open its own mask
//! here and its pair masks there, if what is said in one counted in the other.

use super::*;

fn settings() -> Settings {
    session(5, Graph::Complete, 5).0.settings().clone()
}

/// A round of five in which the first uses this number. Chance is another one in each.
fn instance(number: u8) -> World {
    let once = |place: usize| if place == 0 { [number; 32] } else { [7; 32] };
    World::of(session_of(5, settings(), once), u64::from(number), |_| true)
}

fn request(world: &World, of: NodeId) -> UnmaskRequest {
    match world.pending.iter().find(|(to, _)| *to == of) {
        Some((_, ToClient::Unmask(request))) => request.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pass_admits_to_the_round_whose_roster_carries_it() {
    let (session, identities) = session_of(5, settings(), |_| [7; 32]);
    let node = session.roster().members()[0].node;
    let join = |number| {
        let pass = Pass::new([number; 32]);
        Client::join(session.clone(), node, identities[0].clone(), pass, [1; 32]).map(|_| ())
    };
    assert_eq!(join(8), Err(Refusal::NotMyPass(node)));
    assert_eq!(join(7), Ok(()));
}

#[test]
fn signatures_of_another_instance_are_refused() {
    let (mut one, other) = (instance(1).go_to(Step::Unmask), instance(2).go_to(Step::Unmask));
    let node = one.node(1);
    let (honest, foreign) = (request(&one, node), request(&other, node));
    assert_eq!(honest.survivors, foreign.survivors, "the lists are the same");
    let client = one.clients.get_mut(&node).unwrap();
    let refusal = client.handle(ToClient::Unmask(foreign)).unwrap_err();
    let (what, signer) = (Step::Consistency, one.session.node(0));
    assert_eq!(refusal, Refusal::Signature { what, node: signer });
    assert!(client.handle(ToClient::Unmask(honest)).is_ok());
}

/// Even where the numbers are the same, because a client drew none: a signature is that of one channel.
#[test]
fn signatures_count_with_the_keys_of_their_round_only() {
    let again = |seed| {
        let world = World::of(session_of(5, settings(), |_| [7; 32]), seed, |_| true);
        world.go_to(Step::Unmask)
    };
    let (mut one, other) = (again(1), again(2));
    assert_eq!(one.session.digest(), other.session.digest());
    let node = one.node(1);
    let foreign = request(&other, node);
    let client = one.clients.get_mut(&node).unwrap();
    let refusal = client.handle(ToClient::Unmask(foreign)).unwrap_err();
    let signature = matches!(
        refusal,
        Refusal::Signature {
            what: Step::Consistency,
            ..
        }
    );
    assert!(signature, "{refusal}");
}

#[test]
fn keys_of_another_instance_are_refused() {
    let (mut one, other) = (instance(1).go_to(Step::Shares), instance(2).go_to(Step::Shares));
    let node = one.node(1);
    let said = |world: &World| {
        let mut all = world.pending.iter();
        all.find(|(to, _)| *to == node).unwrap().1.clone()
    };
    let (keys, foreign) = (said(&one), said(&other));
    let client = one.clients.get_mut(&node).unwrap();
    let refusal = client.handle(foreign).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Signature { what: Step::Keys, .. }),
        "{refusal}"
    );
    client.handle(keys).unwrap();
}

/// Makes other settings of some.
type Change = fn(&mut Settings);

#[test]
fn everything_that_is_agreed_on_is_in_what_keys_are_bound_to() {
    let digest = |settings: Settings, once: u8| *session_of(5, settings, |_| [once; 32]).0.digest();
    let plain = digest(settings(), 7);
    assert_eq!(digest(settings(), 7), plain);
    assert_ne!(digest(settings(), 8), plain, "the numbers of its members");
    let changes: [(&str, Change); 7] = [
        ("what it is about", |settings| {
            settings.round = Digest::of(b"other")
        }),
        ("the ring", |settings| settings.graph = Graph::Ring(Degree::Of(4))),
        ("its default degree", |settings| {
            settings.graph = Graph::Ring(Degree::Logarithmic);
        }),
        ("the seed", |settings| settings.seed = Digest::of(b"other")),
        ("the length", |settings| settings.length = 6),
        ("the width", |settings| settings.ring = Ring::BITS_64),
        ("the fewest", |settings| settings.least = 3),
    ];
    for (what, change) in changes {
        let mut changed = settings();
        change(&mut changed);
        assert_ne!(digest(changed, 7), plain, "{what}");
    }
}
