use super::*;
use crate::drive::fed::orders::Clients;
use crate::drive::fed::record::Record;
use crate::drive::fed::testing::{driven, judgement};
use crate::drive::fed::wire::{Answer, Order};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::{Run, Update};
use karman_tensor::encode::Encoding;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

fn factor(name: &str, shape: [u32; 2]) -> Frames {
    let numbers = vec![0.5; (shape[0] * shape[1]) as usize];
    let encoded = Encoded::encode(shape.into(), &numbers, Encoding::F32).unwrap();
    vec![(name.to_owned(), encoded.to_bytes())]
}

#[test]
fn a_rank_above_what_the_operator_allows_is_refused() {
    let four = factor("dense.lora-a", [4, 9]);
    assert!(check_frames(&four, 4).is_ok());
    let error = check_frames(&four, 3).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("federated.adapter-rank"));
    assert!(
        error.message.contains("rank 4") && error.message.contains("up to 3"),
        "{error}"
    );
    // The other factor has the rank as its second dimension.
    assert!(check_frames(&factor("dense.lora-b", [9, 4]), 4).is_ok());
    let garbage = vec![("dense.lora-a".to_owned(), Bytes::from_static(&[9; 4]))];
    assert!(check_frames(&garbage, 4).is_err());
    assert!(check(&Work::Describe, Some(1)).is_ok());
}

#[test]
fn adapters_alone_are_the_update_and_the_model_has_to_stay() {
    let array = |name: &str, value: f32| Array {
        name: name.into(),
        shape: vec![1],
        values: vec![value],
    };
    let changes = vec![
        array("dense", 0.0),
        array("dense.lora-a", 1.0),
        array("dense.lora-b", 2.0),
    ];
    let left = alone(changes, 1).unwrap();
    let names: Vec<&str> = left.iter().map(|array| array.name.as_str()).collect();
    assert_eq!(names, ["dense.lora-a", "dense.lora-b"]);
    for moved in [0.1, f32::NAN] {
        let error = alone(vec![array("dense", moved), array("dense.lora-a", 1.0)], 1).unwrap_err();
        assert!(error.contains("`dense`"), "{error}");
    }
}

/// What clients have seen.
#[derive(Default)]
struct Seen {
    /// The models that they have trained adapters on, and those that they have judged.
    trained_on: Vec<Frames>,
    judged: Vec<Frames>,
    ranks: Vec<u32>,
    told: Vec<(String, String)>,
}

/// Clients that change each number of their adapters by a half.
#[derive(Default)]
struct Adapted(Arc<Mutex<Seen>>);

fn matrix(values: [f32; 6]) -> Bytes {
    Encoded::encode([2, 3].into(), &values, Encoding::F32)
        .unwrap()
        .to_bytes()
}

/// The same shape with a half everywhere.
fn halves(frame: &Bytes) -> Bytes {
    let shape = Encoded::from_bytes(frame).unwrap().shape();
    let numbers = vec![0.5; shape.elements().unwrap() as usize];
    Encoded::encode(shape, &numbers, Encoding::F32)
        .unwrap()
        .to_bytes()
}

impl Clients for Adapted {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let seen = self.0.clone();
        async move {
            Ok(match order.work {
                Work::Begin { .. } => Answer::Begun {
                    model: vec![("weight".into(), matrix([0.0; 6]))],
                },
                Work::Train { model, adapters, .. } => {
                    let mut seen = seen.lock();
                    seen.trained_on.push((*model).clone());
                    let first = Encoded::from_bytes(&adapters[0].1).unwrap();
                    seen.ranks.push(first.shape().dims()[0]);
                    seen.told = order.properties;
                    Answer::Trained(Box::new(Update {
                        frames: adapters.iter().map(|(_, frame)| halves(frame)).collect(),
                        samples: 10,
                        steps: 1,
                        loss: 0.5,
                    }))
                }
                Work::Evaluate { model } => {
                    seen.lock().judged.push((*model).clone());
                    Answer::Judged(judgement())
                }
                other => return Err(TaskError::invalid(format!("nobody is asked {other:?}"))),
            })
        }
        .boxed()
    }
}

/// A version is what clients judge, not what nested adapters are trained on: both are sent, and neither is taken for the other.
#[tokio::test]
async fn nested_adapters_are_trained_on_the_first_model_and_judged_in_the_last() {
    let text = "name = 'x'\nrounds = 3\nstart-with = 5\n[clients]\nplugin = 'x'\n\
                [low-rank]\narrays = ['weight']\nranks = [1, 2]\nrule = 'prelort'\n\
                [pace]\nmode = 'synchronous'\nclients = 5\n";
    let clients = Adapted::default();
    let seen = clients.0.clone();
    let record = Record::new(Run::from_toml(text).unwrap());
    let (model, _) = driven(record, Arc::new(clients)).await;
    assert!(model.iter().all(|bits| f32::from_bits(*bits) != 0.0), "{model:?}");
    let seen = seen.lock();
    let first: Frames = vec![("weight".into(), matrix([0.0; 6]))];
    assert_eq!(seen.trained_on, vec![first.clone(); 15]);
    assert!(!seen.judged.is_empty() && seen.judged.iter().all(|model| *model != first));
    // They have said nothing of their nodes.
    assert_eq!(seen.ranks, [2; 15]);
    let told = |name: &str| {
        seen.told
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(told("low-rank.rule"), Some("prelort"));
    assert_eq!(told("low-rank.ranks"), Some("1,2"));
}
