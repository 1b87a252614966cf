//! Kept tasks of a node that is drained: to whom they go, and what is believed of those that come.

use super::*;
use karman_tasks::{Epoch, KeptState};

/// A node with a kept task that waits, and what the keepers have of it.
fn owner() -> (Machine, KeptState) {
    let (mut machine, mut kept) = (machine(Limits::default()), KeptState::new(8));
    let actions = submit(&mut machine, TASK, work(Guarantee::Kept));
    let [Action::Propose { ticket, entry }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(kept.apply(entry.clone()).is_ok());
    let ticket = *ticket;
    machine.handle(Instant(1), Event::Saved { ticket });
    (machine, kept)
}

/// What goes to which heir.
fn handed(actions: &[Action]) -> Vec<(NodeId, Handover)> {
    let handed = actions.iter().map(|action| match action {
        Action::HandOver { to, handover } => (*to, Handover::clone(handover)),
        _ => panic!("{actions:?}"),
    });
    handed.collect()
}

/// What a node that is drained says of its task to the only heir.
fn handover(owner: &mut Machine) -> Handover {
    let actions = owner.handle(Instant(2), drain(&["heir"], &["heir"]));
    handed(&actions).remove(0).1
}

#[test]
fn a_kept_task_goes_to_keepers_alone() {
    let (mut machine, _) = owner();
    let accepted = ticket(&submit(&mut machine, OTHER, work(Guarantee::Kept)));
    machine.handle(Instant(1), Event::Saved { ticket: accepted });
    let heirs = ["near", "one", "other"];
    let actions = machine.handle(Instant(2), drain(&heirs, &["one", "other", "far"]));
    let to: Vec<NodeId> = handed(&actions).iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [node("one"), node("other")]);
    let gone = |task| Action::Disowned { task };
    let actions = machine.handle(Instant(3), Event::HandedOver { task: TASK });
    assert_eq!(actions, [gone(TASK)]);
    let actions = machine.handle(Instant(4), Event::HandedOver { task: OTHER });
    assert_eq!(actions, [gone(OTHER), Action::Drained]);
}

#[test]
fn a_drain_ends_though_no_keeper_takes_a_task_or_says_so() {
    for refused in [true, false] {
        let (mut machine, _) = owner();
        let mut actions = machine.handle(Instant(2), drain(&["near", "one", "other"], &["one", "other"]));
        for heir in ["one", "other"] {
            assert_eq!(handed(&actions)[0].0, node(heir));
            let failed = Event::HandOverFailed { task: TASK, refused };
            actions = machine.handle(Instant(100), failed);
            if heir == "one" {
                let then = machine.next_timeout().unwrap();
                actions = machine.handle(then, Event::Tick);
            }
        }
        // It is with the keepers, which take it over when this node is gone.
        assert_eq!(actions, [Action::Drained]);
        assert_eq!(machine.status(TASK), Some(Status::Waiting));
        let later = machine.next_timeout().unwrap();
        assert_eq!(machine.handle(later, Event::Tick), []);
    }
    // No keeper is in reach at all.
    let (mut machine, _) = owner();
    let actions = machine.handle(Instant(2), drain(&["near"], &["one"]));
    assert_eq!(actions, [Action::Drained]);
}

#[test]
fn an_heir_that_the_keepers_deny_says_so_and_gives_the_task_up() {
    let handover = handover(&mut owner().0);
    let mut heir = machine(Limits::default());
    let ticket = ticket(&heir.handle(Instant(3), Event::Receive(Box::new(handover))));
    let denied = KeptError::Denied("classify".into());
    let error = SaveError::Refused(denied.clone());
    let actions = heir.handle(Instant(4), Event::Unsaved { ticket, error });
    let error = SubmitError::NotDurable(SaveError::Refused(denied));
    assert_eq!(actions, [Action::Refuse { asked: TASK, error }]);
    assert_eq!((heir.status(TASK), heir.next_timeout()), (None, None));
}

#[test]
fn a_kept_task_is_taken_over_from_its_owner_as_the_keepers_know_it() {
    let (mut machine, mut kept) = owner();
    let (here, handover) = (node("here"), handover(&mut machine));
    let as_known =
        |from, said: &Handover, kept: &KeptState| said.clone().of_owner(from, kept.get(TASK).cloned());
    assert_eq!(as_known(here, &handover, &kept), Ok(handover.clone()));
    let refused = as_known(node("member"), &handover, &kept);
    assert_eq!(refused, Err(SubmitError::Owned));
    let refused = as_known(here, &handover, &KeptState::new(8));
    assert_eq!(refused, Err(SubmitError::NoHandover));
    let said = |change: fn(&mut TaskRecord)| {
        let mut said = handover.clone();
        change(&mut said.record);
        said
    };
    let refused = as_known(here, &said(|record| record.epoch = Epoch(7)), &kept);
    assert_eq!(refused, Err(SubmitError::Owned));
    let refused = as_known(here, &said(|record| record.name = "alert".into()), &kept);
    assert_eq!(refused, Err(SubmitError::NoHandover));

    // Whose buckets it uses, its key and its time are what the keepers say.
    let other = said(|record| (record.home, record.key, record.due.at) = (None, Some("key".into()), None));
    assert_eq!(as_known(here, &other, &kept), Ok(handover.clone()));
    // What it asks for is what was accepted.
    let forged = said(|record| {
        let mut forged = work(Guarantee::Kept);
        forged.request.body = "forged".into();
        (record.fingerprint, record.state) = (forged.fingerprint(), Saved::Open(forged.request));
    });
    let forged = as_known(here, &forged, &kept).unwrap();
    let actions = super::machine(Limits::default()).handle(Instant(3), Event::Receive(Box::new(forged)));
    let error = SubmitError::NoHandover;
    assert_eq!(actions, [Action::Refuse { asked: TASK, error }]);

    let ends = Entry::End {
        task: TASK,
        epoch: Epoch::FIRST,
        outcome: Outcome::Cancelled,
        at: None,
    };
    kept.apply(ends).unwrap();
    let refused = as_known(here, &handover, &kept);
    assert_eq!(refused, Err(SubmitError::NoHandover));
}
