use super::super::exercise::Exercise;
use super::super::memory::{Key, Memory};
use super::super::testing::{course, frame};
use super::super::wire::{Order, RunId};
use super::*;
use karman_engine::learn::Fitted;
use karman_fed::{AssignmentId, ClientId, Run, Update};
use karman_store::Store;
use karman_tensor::encode::{Encoded, Encoding};
use karman_types::{ByteSize, ErrorKind, NodeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A model of two arrays of so many zeros.
const EACH: usize = 2_000;

const USUAL: LocalPrivacy = LocalPrivacy {
    noise_multiplier: 1.5,
    norm: 0.5,
    delta: 1e-5,
    most_epsilon: None,
};

/// The client of a node, whose training changes each number by as much.
struct Client {
    memory: Arc<Memory>,
    key: Key,
    own: FederatedConfig,
    changes: f32,
    trainings: AtomicUsize,
}

impl Client {
    fn on(folder: &TempDir, number: u64) -> Self {
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let order = Order::new(&RunId("0a".into()), &run, ClientId(number), Work::Describe);
        let memory = Memory::on_disk(Store::open(folder.path()).unwrap(), ByteSize::gib(1));
        let key = memory.whatever_number(&Memory::key(NodeId::of_key(b"driver"), &order));
        Self {
            memory: Arc::new(memory),
            key,
            own: FederatedConfig::default(),
            changes: 100.0,
            trainings: AtomicUsize::new(0),
        }
    }

    async fn train(&self, order: u64, asked: LocalPrivacy) -> Result<Box<Update>, TaskError> {
        self.train_for(order, Some(asked), Encoding::F32).await
    }

    async fn train_for(
        &self,
        order: u64,
        asked: Option<LocalPrivacy>,
        encoding: Encoding,
    ) -> Result<Box<Update>, TaskError> {
        let course = course(encoding, 1);
        let noise = asked
            .map(|asked| Noise::new(asked, &course, &self.own))
            .transpose()?;
        let zeros = frame(&[0.0; EACH]);
        let model = vec![("a".to_owned(), zeros.clone()), ("b".to_owned(), zeros)];
        let exercise = Exercise::of_model((AssignmentId(order), order), course, Arc::new(model));
        let exercise = Arc::new(Exercise { noise, ..exercise });
        let fit = |_| async {
            self.trainings.fetch_add(1, Ordering::Relaxed);
            let array = |name: &str| Array {
                name: name.into(),
                shape: vec![EACH as u32],
                values: vec![self.changes; EACH],
            };
            Ok(Fitted {
                model: vec![array("a"), array("b")],
                control_change: Vec::new(),
                samples: 10,
                steps: 3,
                loss: 0.5,
                metrics: Vec::new(),
                state: b"state".to_vec(),
            })
        };
        exercise
            .once("learner".into(), &self.memory, &self.key, fit)
            .await
    }

    /// Updates that it has given away, by its own account.
    fn given_away(&self) -> u64 {
        let account = self.memory.get(&self.key).unwrap().account;
        account.map_or(0, |account| account.spent().unwrap().rounds)
    }

    fn trainings(&self) -> usize {
        self.trainings.load(Ordering::Relaxed)
    }
}

fn numbers(update: &Update) -> Vec<f64> {
    let decoded = |frame| Encoded::from_bytes(frame).unwrap().decode().unwrap();
    let frames = update.frames.iter().flat_map(decoded);
    frames.map(f64::from).collect()
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number.powi(2)).sum::<f64>().sqrt()
}

/// ε of so many updates.
fn epsilon(updates: u64) -> f64 {
    let mechanism = USUAL.mechanism().unwrap();
    mechanism.spent_after(updates, USUAL.delta).unwrap().epsilon
}

#[tokio::test]
async fn an_order_that_is_sent_again_is_answered_with_the_same_update_and_gives_nothing_more_away() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::on(&folder, 3);
    let first = client.train(1, USUAL).await.unwrap();
    assert_eq!(client.train(1, USUAL).await.unwrap(), first);
    assert_eq!((client.trainings(), client.given_away()), (1, 1));
    // Also after a restart of its node.
    drop(client);
    let client = Client::on(&folder, 3);
    assert_eq!(client.train(1, USUAL).await.unwrap(), first);
    assert_eq!((client.trainings(), client.given_away()), (0, 1));
    let second = client.train(2, USUAL).await.unwrap();
    assert_ne!(second.frames, first.frames);
    assert_eq!(client.given_away(), 2);
}

#[tokio::test]
async fn what_leaves_is_clipped_as_a_whole_and_has_the_noise_that_was_promised() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::on(&folder, 0);
    let update = client.train(1, USUAL).await.unwrap();
    let deviation = norm(&numbers(&update)) / (2.0 * EACH as f64).sqrt();
    // 1.5 times the distance of two updates, which is twice the norm of 0.5; the update itself is next to nothing in that.
    assert!((deviation - 1.5).abs() < 0.1, "{deviation}");
    // Of a hundred in each number, with the least noise there is, the norm of 100 is left: all arrays together, not each.
    let folder = tempfile::tempdir().unwrap();
    let client = Client::on(&folder, 0);
    let little = LocalPrivacy {
        noise_multiplier: 0.01,
        norm: 100.0,
        ..USUAL
    };
    let left = numbers(&client.train(1, little).await.unwrap());
    let mean = left.iter().sum::<f64>() / left.len() as f64;
    let expected = 100.0 / (2.0 * EACH as f64).sqrt();
    assert!((mean - expected).abs() < 0.2, "{mean} {expected}");
}

#[tokio::test]
async fn two_clients_add_noise_of_their_own() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let clients = [Client::on(&folders[0], 0), Client::on(&folders[1], 0)];
    let one = numbers(&clients[0].train(1, USUAL).await.unwrap());
    let other = numbers(&clients[1].train(1, USUAL).await.unwrap());
    let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
    assert!(same < 10, "{same}");
}

#[tokio::test]
async fn what_an_encoding_loses_is_lost_of_the_update_with_noise() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::on(&folder, 0);
    let update = client.train_for(1, Some(USUAL), Encoding::Int8).await.unwrap();
    let sent = numbers(&update);
    let largest = sent.iter().copied().map(f64::abs).fold(0.0, f64::max);
    let kept = client.memory.get(&client.key).unwrap();
    for feedback in &kept.feedback {
        assert_eq!(feedback.residual().len(), EACH);
        // Half a step of eight bits: of a change by a hundred there is nothing.
        let lost = |lost: &f32| f64::from(lost.abs()) <= 0.51 * largest / 127.0;
        assert!(feedback.residual().iter().all(lost));
    }
    // And it is sent with the next update, which is one release like any other.
    client.train_for(2, Some(USUAL), Encoding::Int8).await.unwrap();
    assert_eq!(client.given_away(), 2);
}

#[tokio::test]
async fn nothing_of_an_update_without_noise_leaves_with_one_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::on(&folder, 0);
    // Eight bits lose a part of this, which is kept.
    client.changes = 1e6 / 3.0;
    let plain = client.train_for(1, None, Encoding::Int8).await.unwrap();
    let mut kept = client.memory.get(&client.key).unwrap();
    kept.feedback[0]
        .encode([EACH as u32].into(), &[1e6; EACH], Encoding::TopK(1))
        .unwrap();
    client.memory.put(&client.key, kept).unwrap();
    let noised = client.train_for(1, Some(USUAL), Encoding::Int8).await.unwrap();
    assert_ne!(noised.frames, plain.frames);
    assert!(numbers(&noised).iter().all(|number| number.abs() < 16.0));
    assert_eq!(client.given_away(), 1);
    // What is asked for without noise afterwards changes nothing in the account.
    client.train_for(2, None, Encoding::Int8).await.unwrap();
    assert_eq!(client.given_away(), 1);
}

#[tokio::test]
async fn a_client_gives_away_no_more_than_the_run_and_its_operator_let_it() {
    let two = epsilon(2) + 1e-6;
    let of_run = LocalPrivacy {
        most_epsilon: Some(two),
        ..USUAL
    };
    // By a δ of its own no run makes the operator's bound wider.
    let wide = LocalPrivacy { delta: 0.01, ..USUAL };
    let of_node = Some(two);
    for (asked, most_epsilon, field) in [
        (of_run, None, "local-privacy.most-epsilon"),
        (USUAL, of_node, "federated.most-epsilon"),
        (wide, of_node, "federated.most-epsilon"),
        (USUAL, Some(f64::NAN), "federated.most-epsilon"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut client = Client::on(&folder, 3);
        client.own.most_epsilon = most_epsilon;
        let lets = if most_epsilon.is_some_and(f64::is_nan) {
            0
        } else {
            2
        };
        for order in 0..lets {
            client.train(order, asked).await.unwrap();
        }
        // Nor does it as another client of the same run, after a restart.
        drop(client.memory);
        let again = Client::on(&folder, 4);
        let client = Client {
            own: client.own,
            ..again
        };
        let error = client.train(7, asked).await.unwrap_err();
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (ErrorKind::Limit, Some(field))
        );
        assert!(error.message.contains("ε = "), "{error}");
        assert_eq!((client.trainings(), client.given_away()), (0, lets));
        // What was answered is answered still.
        if let Some(last) = lets.checked_sub(1) {
            assert!(client.train(last, asked).await.is_ok());
        }
    }
}

#[tokio::test]
async fn the_noise_of_a_run_stays_as_it_is_and_is_of_numbers_that_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::on(&folder, 0);
    client.train(1, USUAL).await.unwrap();
    let changed = LocalPrivacy { norm: 50.0, ..USUAL };
    let error = client.train(2, changed).await.unwrap_err();
    assert_eq!(
        (error.kind, error.field.as_deref()),
        (ErrorKind::Denied, Some("local-privacy"))
    );
    assert_eq!(client.given_away(), 1);
    for (asked, field) in [
        (
            LocalPrivacy {
                noise_multiplier: 0.0,
                ..USUAL
            },
            "local-privacy.noise-multiplier",
        ),
        (
            LocalPrivacy {
                noise_multiplier: f64::NAN,
                ..USUAL
            },
            "local-privacy.noise-multiplier",
        ),
        (
            LocalPrivacy {
                noise_multiplier: 33.0,
                ..USUAL
            },
            "local-privacy.noise-multiplier",
        ),
        (
            LocalPrivacy {
                norm: f64::INFINITY,
                ..USUAL
            },
            "local-privacy.norm",
        ),
        (LocalPrivacy { delta: 0.9, ..USUAL }, "local-privacy.delta"),
    ] {
        let error = client.train(3, asked).await.unwrap_err();
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (ErrorKind::Invalid, Some(field))
        );
    }
    let two_rows = Noise::new(USUAL, &course(Encoding::F32, 2), &client.own);
    assert_eq!(two_rows.err().unwrap().field.as_deref(), Some("course.rows"));
}

#[tokio::test]
async fn what_cannot_be_kept_or_is_no_update_does_not_leave() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::on(&folder, 0);
    client.changes = f32::NAN;
    let error = client.train(1, USUAL).await.unwrap_err();
    assert!(error.message.contains("number 0 of an update is NaN"), "{error}");
    assert_eq!(client.given_away(), 0);
    drop(client);
    let mut client = Client::on(&folder, 0);
    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path()).unwrap();
    client.memory = Arc::new(Memory::on_disk(store, ByteSize(1)));
    let error = client.train(1, USUAL).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("federated.kept"));
    assert_eq!(client.given_away(), 0);
}

#[test]
fn where_noise_is_required_nothing_leaves_without() {
    let required = FederatedConfig {
        require_local_privacy: true,
        ..FederatedConfig::default()
    };
    let (assignment, model) = (AssignmentId(1), Arc::new(Vec::new()));
    let plain = Work::Train {
        assignment,
        version: 1,
        course: course(Encoding::F32, 1),
        model: model.clone(),
        control: Vec::new(),
        adapters: Vec::new(),
    };
    let noised = Work::TrainPrivately {
        assignment,
        version: 1,
        course: course(Encoding::F32, 1),
        noise: USUAL,
        model: model.clone(),
    };
    let error = check(&plain, &required).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert_eq!(error.field.as_deref(), Some("federated.require-local-privacy"));
    assert!(check(&plain, &FederatedConfig::default()).is_ok());
    assert!(check(&noised, &required).is_ok() && check(&Work::Evaluate { model }, &required).is_ok());
}

#[test]
fn an_update_keeps_its_shape_whatever_its_arrays_are() {
    for lengths in [vec![], vec![0], vec![3, 0, 5], vec![1; 9]] {
        let array = |length: &usize| Array {
            name: length.to_string(),
            shape: vec![*length as u32],
            values: vec![1e6; *length],
        };
        let mut changes: Vec<Array> = lengths.iter().map(array).collect();
        let mut account = USUAL.mechanism().unwrap();
        add(&mut account, &mut changes).unwrap();
        let left = changes.iter().map(|array| array.values.len());
        assert_eq!(left.collect::<Vec<_>>(), lengths);
        // None of them is as it was: ten deviations of noise are 15.
        let mut numbers = changes.iter().flat_map(|array| &array.values);
        assert!(numbers.all(|number| number.abs() < 0.5 + 15.0));
        assert_eq!(account.spent().unwrap().rounds, 1);
    }
}
