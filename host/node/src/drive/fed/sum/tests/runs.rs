use super::*;
use crate::drive::fed::orders::Clients;
use crate::drive::fed::record::{FedEvent, Record};
use crate::drive::fed::testing::{
    CLIENTS, conducted, described, driven, frame, judgement, troubles, update_of,
};
use crate::drive::fed::wire::{Answer, Frames};
use futures::future::BoxFuture;
use karman_fed::secure::{ToClient, ToServer};
use karman_store::Store;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What client 2 does.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Does {
    Well,
    /// In the second round it ceases to answer, before its update is there or afterwards.
    LeaveBefore,
    LeaveAfter,
    /// It declares a loss that cannot be.
    Misdeclare,
    /// It shares something else than its secret.
    ShareFalsely,
}

struct People {
    all: Vec<Person>,
    does: Does,
    /// The version that each trained last.
    versions: Mutex<BTreeMap<ClientId, u64>>,
    /// Whether nobody answers in the second round once all updates are given, which is told here.
    hangs: AtomicBool,
    hung: Notify,
}

impl People {
    fn answer_train(
        &self,
        client: ClientId,
        version: u64,
        course: &Course,
        model: &Frames,
    ) -> Result<Answer, TaskError> {
        if client.0 == 2 && version == 1 && self.does == Does::LeaveBefore {
            return Err(TaskError::failed("it has left"));
        }
        Ok(Answer::Trained(update_of(client, course, model)?))
    }

    async fn answer_step(&self, order: &Order, step: Step) -> Result<Answer, TaskError> {
        let client = order.client;
        let second = match &step {
            Step::Train { lesson, .. } => {
                self.versions.lock().insert(client, lesson.version);
                lesson.version == 1
            }
            _ => self.versions.lock().get(&client) == Some(&1),
        };
        let leaves = match &step {
            Step::Train { .. } => self.does == Does::LeaveBefore,
            Step::Said(ToClient::Survivors(_)) => self.does == Does::LeaveAfter,
            _ => false,
        };
        if client.0 == 2 && second && leaves {
            return Err(TaskError::failed("it has left"));
        }
        let given = second && matches!(step, Step::Said(ToClient::Survivors(_)));
        if given && self.hangs.load(Ordering::Relaxed) {
            self.hung.notify_one();
            std::future::pending::<()>().await;
        }
        let mut answered = self.all[client.0 as usize].step(order, step).await?;
        if client.0 == 2
            && self.does == Does::Misdeclare
            && let Answered::Trained { loss, .. } = &mut answered
        {
            *loss = f32::NAN;
        }
        if client.0 == 2
            && self.does == Does::ShareFalsely
            && let Answered::Says(ToServer::Shares(shares)) = &mut answered
        {
            shares.own_mask = [5; 32].into();
        }
        Ok(Answer::Sum(Box::new(answered)))
    }
}

struct Meeting(Arc<People>);

impl Clients for Meeting {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let people = self.0.clone();
        async move {
            let client = order.client;
            match &order.work {
                Work::Describe => panic!("they were announced"),
                Work::Begin { .. } => Ok(Answer::Begun {
                    model: vec![("weight".into(), frame(&[0.0, 0.5, -0.5]))],
                }),
                Work::Train {
                    version,
                    course,
                    model,
                    ..
                } => people.answer_train(client, *version, course, model),
                Work::Evaluate { .. } => Ok(Answer::Judged(judgement())),
                Work::Sum { step, .. } => people.answer_step(&order, (**step).clone()).await,
                Work::TrainPrivately { .. } | Work::Spread { .. } => panic!("updates are summed here"),
            }
        }
        .boxed()
    }

    fn members(&self) -> Vec<NodeId> {
        self.0.all.iter().map(Person::node).collect()
    }

    fn identify(&self, credential: &Credential) -> Result<NodeId, TaskError> {
        member(credential)
    }
}

/// The bits of the model after four rounds, and the log.
async fn learn(more: &str, does: Does) -> (Vec<u32>, Vec<FedEvent>) {
    learn_with((0..CLIENTS).map(Person::new).collect(), more, does).await
}

async fn learn_with(all: Vec<Person>, more: &str, does: Does) -> (Vec<u32>, Vec<FedEvent>) {
    driven(described(more), meeting(all, does)).await
}

fn meeting(all: Vec<Person>, does: Does) -> Arc<Meeting> {
    let people = People {
        all,
        does,
        versions: Mutex::default(),
        hangs: AtomicBool::new(false),
        hung: Notify::new(),
    };
    Arc::new(Meeting(Arc::new(people)))
}

fn rounds(log: &[FedEvent]) -> Vec<Vec<u64>> {
    let clients = |event: &FedEvent| match event {
        FedEvent::Round { clients, .. } => Some(clients.iter().map(|client| client.0).collect()),
        _ => None,
    };
    log.iter().filter_map(clients).collect()
}

#[tokio::test]
async fn the_model_is_the_one_that_updates_in_the_open_make() {
    let all = vec![0, 1, 2, 3, 4];
    for (does, second) in [
        (Does::Well, all.clone()),
        (Does::LeaveBefore, vec![0, 1, 3, 4]),
        // What is masked already is in the sum, whoever masked it.
        (Does::LeaveAfter, all.clone()),
    ] {
        let (plain, seen) = learn("", does).await;
        let (secret, log) = learn("[secure-sum]\n", does).await;
        let rounds_were = [all.clone(), second, all.clone(), all.clone()];
        assert_eq!(rounds(&seen), rounds_were, "{seen:?}");
        assert_eq!(rounds(&log), rounds_were, "{log:?}");
        assert_eq!(secret, plain);
        let named = troubles(&log).iter().any(|what| what.contains("it has left"));
        assert_eq!(named, does == Does::LeaveBefore, "{log:?}");
    }
}

#[tokio::test]
async fn a_sum_of_too_few_fails_its_round_with_the_reason() {
    let (_, log) = learn(
        "[secure-sum]\nleast = 5\n[limits]\nfailed-rounds = 9\n",
        Does::LeaveBefore,
    )
    .await;
    let failed = log.iter().find_map(|event| match event {
        FedEvent::Failed { why, .. } => Some(why.clone()),
        _ => None,
    });
    let failed = failed.unwrap_or_else(|| panic!("{log:?}"));
    assert!(
        failed.contains("only 4 clients sent masked vectors, 5 are needed"),
        "{failed}"
    );
}

#[tokio::test]
async fn one_that_shows_no_membership_keeps_nobody_from_summing() {
    let shows = |number| match number {
        2 => Person::shows(number, b"forged"),
        _ => Person::new(number),
    };
    let people = (0..CLIENTS).map(shows).collect();
    let (_, log) = learn_with(people, "[secure-sum]\n", Does::Well).await;
    let others = vec![0, 1, 3, 4];
    assert_eq!(rounds(&log), vec![others; 4], "{log:?}");
    let troubles = troubles(&log);
    assert!(
        troubles.iter().any(|what| what.contains("no member")),
        "{troubles:?}"
    );
}

#[tokio::test]
async fn one_with_another_file_of_the_plugin_is_named_and_the_others_are_summed() {
    let mut people: Vec<Person> = (0..CLIENTS).map(Person::new).collect();
    people[2].plugin = Digest::of(b"another file of that name");
    let (_, log) = learn_with(people, "[secure-sum]\n", Does::Well).await;
    let others = vec![0, 1, 3, 4];
    assert_eq!(rounds(&log), vec![others; 4], "{log:?}");
    let troubles = troubles(&log);
    let names = |what: &String| what.contains("its `learner` is the file");
    assert!(troubles.iter().any(names), "{troubles:?}");
}

#[tokio::test]
async fn one_whose_training_comes_to_nonsense_keeps_nobody_from_summing() {
    let mut people: Vec<Person> = (0..CLIENTS).map(Person::new).collect();
    people[2].trains = |trained| trained.loss = f32::NAN;
    let (_, log) = learn_with(people, "[secure-sum]\n", Does::Well).await;
    let others = vec![0, 1, 3, 4];
    assert_eq!(rounds(&log), vec![others; 4], "{log:?}");
    let troubles = troubles(&log);
    assert!(
        troubles.iter().any(|what| what.contains("a loss of NaN")),
        "{troubles:?}"
    );
}

#[tokio::test]
async fn one_that_declares_nonsense_is_named_and_the_others_are_summed() {
    let (_, log) = learn("[secure-sum]\n", Does::Misdeclare).await;
    let others = vec![0, 1, 3, 4];
    assert_eq!(rounds(&log), vec![others; 4], "{log:?}");
    let troubles = troubles(&log);
    let refused = "refused: its `loss` is NaN";
    assert!(troubles.iter().any(|what| what == refused), "{troubles:?}");
}

#[tokio::test]
async fn one_that_shares_a_false_secret_spoils_one_round_and_is_asked_nothing_more() {
    let (_, log) = learn("[secure-sum]\n[limits]\nfailed-rounds = 1\n", Does::ShareFalsely).await;
    let others = vec![0, 1, 3, 4];
    assert_eq!(rounds(&log), vec![others; 4], "{log:?}");
    let failed = log.iter().filter_map(|event| match event {
        FedEvent::Failed { why, .. } => Some(why.as_str()),
        _ => None,
    });
    let failed: Vec<&str> = failed.collect();
    assert_eq!(failed.len(), 1, "{log:?}");
    assert!(
        failed[0].contains(&Person::new(2).node().to_string()),
        "{failed:?}"
    );
    let troubles = troubles(&log);
    for says in ["is not its secret", "excluded"] {
        assert!(troubles.iter().any(|what| what.contains(says)), "{troubles:?}");
    }
}

#[tokio::test]
async fn a_driver_that_is_started_again_gets_no_update_a_second_time_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let people = (0..CLIENTS).map(Person::new).collect();
    let clients = meeting(people, Does::Well);
    clients.0.hangs.store(true, Ordering::Relaxed);
    let (conductor, _handle) = conducted(described("[secure-sum]\n"), &store, clients.clone());
    let driving = tokio::spawn(conductor.drive());
    // All updates of the second round are given, and nothing is unmasked yet.
    clients.0.hung.notified().await;
    driving.abort();
    assert!(driving.await.unwrap_err().is_cancelled());
    clients.0.hangs.store(false, Ordering::Relaxed);
    let record = Record::read(&store, "x").unwrap().unwrap();
    let (conductor, handle) = conducted(record, &store, clients.clone());
    conductor.drive().await.unwrap();
    let log = handle.status(0).log;
    let finished = matches!(
        log.last(),
        Some(FedEvent::Finished {
            version: 4,
            failure: None
        })
    );
    assert!(finished, "{log:?}");
    let troubles = troubles(&log);
    assert!(
        troubles.iter().any(|what| what.contains("is in a sum already")),
        "{troubles:?}"
    );
}
