use super::*;
use crate::drive::fed::spread::message::Joining;
use crate::drive::fed::spread::seats::Takes;
use crate::drive::fed::testing::described;
use karman_fed::Update;
use karman_fed::swarm::{Layout, Link, MeanRule};
use karman_types::ErrorKind;

/// What a client answers that is asked to join a round like this, having trained for the order of it or not.
async fn joins(trains: bool, change: impl FnOnce(&mut Joining)) -> Result<Answer, TaskError> {
    let meeting = meeting(Does::Well);
    let run = described("[swarm]\n").run;
    let mut joining = Joining {
        name: "learner/1".into(),
        version: 0,
        clients: 5,
        layout: Layout { chunk: 4, chunks: 3 },
        weights: run.weights,
        rule: MeanRule {
            grid: run.grid(),
            magnitude: run.limits.magnitude,
        },
        link: Link { up: 1, down: 1 },
        within_ms: 1000,
    };
    change(&mut joining);
    let (assignment, client) = (AssignmentId(0), ClientId(0));
    let id = described("").id;
    let order = Order::new(&id, &run, client, Work::Describe);
    let sharer = meeting.0.sharer(&order);
    if trains {
        let update = Box::new(Update {
            frames: vec![frame(&[0.5, 7.0, 0.0])],
            samples: 3,
            steps: 1,
            loss: 0.1,
        });
        let mut remembered = sharer.memory.get(&sharer.key)?;
        remembered.answered = Some(((assignment, 0), update));
        sharer.memory.put(&sharer.key, remembered)?;
    }
    let joined = meeting.0.step(&order, assignment, Step::Join(joining)).await;
    assert_eq!(sharer.memory.given(&sharer.key)?.is_some(), joined.is_ok());
    joined
}

#[tokio::test]
async fn a_client_brings_into_a_round_what_it_has_trained_for_it() {
    let waits = joins(true, |_| {}).await.unwrap();
    assert!(matches!(waits, Answer::Spread(answered) if matches!(*answered, Answered::Waits)));
    let untrained = joins(false, |_| {}).await.unwrap_err();
    assert!(untrained.message.contains("has not trained"), "{untrained}");
    let other = joins(true, |joining| joining.version = 1).await.unwrap_err();
    assert!(other.message.contains("has not trained"), "{other}");
    let large = joins(true, |joining| joining.rule.magnitude = 5.0)
        .await
        .unwrap_err();
    assert!(large.message.contains("changed a number by 7"), "{large}");
    let disk = joins(true, |joining| joining.layout.chunk = 1 << 30)
        .await
        .unwrap_err();
    assert_eq!(
        (disk.kind, disk.field.as_deref()),
        (ErrorKind::Limit, Some("federated.round-disk"))
    );
}

#[tokio::test]
async fn a_client_that_is_in_no_such_round_says_so() {
    let meeting = meeting(Does::Well);
    let run = described("[swarm]\n").run;
    let order = Order::new(&described("").id, &run, ClientId(0), Work::Describe);
    let name = "learner/1".to_owned();
    let step = Step::Outcome { name };
    let none = meeting.0.step(&order, AssignmentId(0), step).await.unwrap_err();
    assert_eq!(none.field.as_deref(), Some("name"), "{none}");
}

#[tokio::test]
async fn a_mean_of_one_update_is_not_given_away() {
    let meeting = meeting(Does::Well);
    let run = described("[swarm]\n").run;
    let order = Order::new(&described("").id, &run, ClientId(0), Work::Describe);
    let sharer = meeting.0.sharer(&order);
    for updates in [1u8, 2] {
        let name = format!("learner/{updates}");
        let outcome = SwarmOutcome {
            mean: vec![0.5, 0.0, 0.25],
            rebuilt: (0..updates).map(|update| Digest::of(&[update])).collect(),
            of: 2,
            left_out: Vec::new(),
            covered: true,
            unprotected: 0,
            altered: Vec::new(),
        };
        let comes = async move { Ok::<_, TaskError>(outcome) }.boxed();
        let takes = (Takes::default(), &sharer.limits);
        sharer
            .seats
            .take(&sharer.key, name.clone(), takes, comes)
            .unwrap();
        let step = Step::Mean { name, numbers: 3 };
        let given = meeting.0.step(&order, AssignmentId(0), step).await;
        let denied = (updates < 2).then_some(ErrorKind::Denied);
        assert_eq!(given.err().map(|error| error.kind), denied);
    }
}
