//! Messages that were changed on their way.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;

/// The bytes of a message with some of them changed, or its end cut off.
fn changed(message: &impl Serialize, changes: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = cbor4ii::serde::to_vec(Vec::new(), message).unwrap();
    for (place, to) in changes {
        let place = place.index(bytes.len());
        bytes[place] = *to;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn they_are_no_message_or_refused_or_taken_and_nobody_falls_over(
        step in prop::sample::select(vec![Step::Shares, Step::Mask, Step::Consistency, Step::Unmask]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.2, any::<Index>()),
    ) {
        let mut world = World::up_to(4, Graph::Complete, step);
        let (node, said) = world.pending[0].clone();
        if let Ok(message) = cbor4ii::serde::from_slice::<ToClient>(&changed(&said, &changes, cut)) {
            let client = world.clients.get_mut(&node).unwrap();
            let before = client.step();
            if client.handle(message).is_err() {
                prop_assert_eq!(client.step(), before);
            }
        }
        let other = world.pending[1].0;
        let answer = world.answer(other).unwrap();
        if let Ok(message) = cbor4ii::serde::from_slice::<ToServer>(&changed(&answer, &changes, cut)) {
            let taken = world.server.receive(other, message).is_ok();
            prop_assert_eq!(world.server.waiting().contains(&other), !taken);
        }
        // Whatever it was, the round ends with a sum or a reason.
        while let Ok(None) = world.close() {}
    }
}
