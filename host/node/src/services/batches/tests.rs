use super::*;
use crate::config::ComputeProfile;
use crate::services::loaded::Done;
use crate::services::pace::Pace;
use crate::services::turns::Turns;
use futures::future::join_all;
use karman_engine::capability::nn::Tensors;
use karman_infer::{BackendName, Dim, InferError, Model, TensorInfo};
use karman_sched::serve::{Exit, ServedModel};
use karman_tensor::{ElementType, Tensor};
use karman_types::{ErrorKind, TaskError};
use parking_lot::Mutex;
use std::future::ready;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const NAME: &str = "double";

/// Gives twice what it takes; a number over 100 ends the run.
struct Double {
    backend: BackendName,
    takes: Vec<TensorInfo>,
    gives: Vec<TensorInfo>,
    /// Takes away the mean of all first.
    mixes: bool,
    /// Of its runs.
    sizes: Mutex<Vec<u32>>,
}

impl Double {
    fn new(backend: BackendName, first: Dim, mixes: bool) -> Arc<Self> {
        let info = |name: &str| TensorInfo {
            name: name.into(),
            element: ElementType::F32,
            dims: Some(vec![first.clone(), Dim::Fixed(2)]),
        };
        Arc::new(Self {
            backend,
            takes: vec![info("x")],
            gives: vec![info("y")],
            mixes,
            sizes: Mutex::default(),
        })
    }

    /// Whose batches are all right.
    fn on(backend: BackendName) -> Arc<Self> {
        Self::new(backend, Dim::Any("N".into()), false)
    }
}

impl Model for Double {
    fn backend(&self) -> BackendName {
        self.backend
    }

    fn inputs(&self) -> &[TensorInfo] {
        &self.takes
    }

    fn outputs(&self) -> &[TensorInfo] {
        &self.gives
    }

    fn run(&self, inputs: Tensors) -> Result<Tensors, InferError> {
        let (_, x) = &inputs[0];
        let values = x.view::<f32>().unwrap();
        self.sizes.lock().push(x.shape().dims()[0]);
        if let Some(wrong) = values.iter().find(|value| **value > 100.0) {
            return Err(InferError::Run {
                backend: self.backend,
                reason: format!("{wrong} is too much"),
            });
        }
        let mean = match self.mixes {
            true => values.iter().sum::<f32>() / values.len() as f32,
            false => 0.0,
        };
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * (value - mean)).collect();
        Ok(vec![(
            "y".into(),
            Tensor::from_slice(x.shape(), &doubled).unwrap(),
        )])
    }
}

/// Of which a batch of four waits for nobody, and a smaller one for longer than any test.
fn batches() -> Batches {
    let allowed = BatchConfig {
        at_most: 4,
        wait: HOUR,
        within: 3 * HOUR,
        accuracy: None,
    };
    Batches::new(&BTreeMap::from([(NAME.to_owned(), allowed)]), 1).unwrap()
}

fn item(value: f32) -> Tensors {
    vec![("x".into(), Tensor::from_slice([1, 2], &[value; 2]).unwrap())]
}

fn alone(model: &Arc<Double>) -> Loaded {
    let pace = Arc::new(Pace::new(&ComputeProfile::default()));
    Loaded::on_processor(model.clone(), pace, Arc::new(Turns::new(8, 2)))
}

/// Those of a model that has no early ones.
fn no_exits(least: Option<f64>) -> Exits {
    let load = |_: u32| ready(Err::<Loaded, _>(TaskError::unavailable("it has none"))).boxed();
    Exits::new(&[], least, load)
}

/// The model after its batches were measured, which who asks first does not wait for.
async fn measured(batches: &Batches, file: &[u8], model: &Arc<Double>) -> Loaded {
    let loaded = batches.enter(NAME, Digest::of(file), alone(model), no_exits);
    assert_eq!(loaded.ask(item(1.0), None).await.unwrap().together, 1);
    while batches.words(NAME).unwrap().contains("once measured") {
        tokio::task::yield_now().await;
    }
    model.sizes.lock().clear();
    loaded
}

async fn asked(loaded: &Loaded, values: &[f32]) -> Vec<Result<Done, TaskError>> {
    join_all(values.iter().map(|value| loaded.ask(item(*value), None))).await
}

fn counted(batches: &Batches) -> (u64, u64, u64) {
    let counts = &batches.counts()[0];
    (counts.batches, counts.requests, counts.apart)
}

#[tokio::test]
async fn without_a_word_of_the_operator_nothing_is_run_together() {
    assert!(Batches::new(&BTreeMap::new(), 1).is_none());
    let (batches, model) = (batches(), Double::on(BackendName::OnnxRuntime));
    let loaded = batches.enter("another", Digest::of(b"one"), alone(&model), no_exits);
    for done in asked(&loaded, &[1.0, 2.0, 3.0, 4.0]).await {
        assert_eq!(done.unwrap().together, 1);
    }
    assert_eq!(*model.sizes.lock(), [1; 4]);
    assert_eq!((batches.words("another"), batches.counts().len()), (None, 0));
}

#[tokio::test]
async fn requests_that_wait_at_the_same_time_are_run_as_one_and_each_hears_its_own() {
    let (batches, model) = (batches(), Double::on(BackendName::OnnxRuntime));
    let loaded = measured(&batches, b"one", &model).await;
    assert_eq!(batches.words(NAME).unwrap(), "in batches of up to 4");
    let values = [1.0, 2.0, 3.0, 4.0];
    for (value, done) in values.into_iter().zip(asked(&loaded, &values).await) {
        let done = done.unwrap();
        assert_eq!(done.together, 4);
        assert_eq!(done.outputs[0].1.view::<f32>().unwrap(), [2.0 * value; 2]);
    }
    assert_eq!(*model.sizes.lock(), [4]);
    assert_eq!(counted(&batches), (1, 4, 0));
}

#[tokio::test]
async fn a_request_that_fails_alone_fails_alone() {
    let (batches, model) = (batches(), Double::on(BackendName::OnnxRuntime));
    let loaded = measured(&batches, b"one", &model).await;
    let values = [1.0, 1000.0, 3.0, 4.0];
    for (value, done) in values.into_iter().zip(asked(&loaded, &values).await) {
        match done {
            Ok(done) => {
                assert_eq!(done.together, 1);
                assert_eq!(done.outputs[0].1.view::<f32>().unwrap(), [2.0 * value; 2]);
            }
            Err(error) => {
                assert_eq!((value, error.kind), (1000.0, ErrorKind::Failed));
                assert!(error.message.contains("1000 is too much"), "{error}");
            }
        }
    }
    assert_eq!(*model.sizes.lock(), [4, 1, 1, 1, 1]);
    assert_eq!(counted(&batches), (0, 0, 1));
}

#[tokio::test]
async fn who_has_gone_takes_no_place_and_a_back_end_that_plans_each_size_gets_one_that_was_measured() {
    for (backend, size) in [(BackendName::OnnxRuntime, 3), (BackendName::Tract, 4)] {
        let (batches, model) = (batches(), Double::on(backend));
        let loaded = measured(&batches, b"one", &model).await;
        let mut gone = Box::pin(loaded.ask(item(9.0), None));
        assert!(futures::poll!(&mut gone).is_pending());
        drop(gone);
        for done in asked(&loaded, &[1.0, 2.0, 3.0]).await {
            assert_eq!(done.unwrap().together, 3);
        }
        assert_eq!(*model.sizes.lock(), [size]);
    }
}

#[tokio::test]
async fn who_has_less_time_than_others_and_who_brings_several_items_wait_for_nobody() {
    let (batches, model) = (batches(), Double::on(BackendName::OnnxRuntime));
    let loaded = measured(&batches, b"one", &model).await;
    let hurried = loaded.ask(item(1.0), Some(HOUR)).await.unwrap();
    assert_eq!(hurried.together, 1);
    let several = vec![("x".into(), Tensor::from_slice([3, 2], &[1f32; 6]).unwrap())];
    let several = loaded.ask(several, None).await.unwrap();
    assert_eq!(several.together, 1);
    assert_eq!(several.outputs[0].1.shape().dims(), [3, 2]);
    assert_eq!(counted(&batches), (0, 0, 0));
}

#[tokio::test]
async fn who_would_be_late_in_a_batch_is_run_alone() {
    let exit = Exit {
        depth: 1,
        accuracy: 1.0,
        times: vec![(1, HOUR / 1000), (4, HOUR)],
    };
    let served = ServedModel::new(3 * HOUR, 4, vec![exit]).unwrap().with_wait(HOUR);
    let (lane, file) = (Lane::new(1), (Digest::of(b"one"), false));
    let number = lane.admit(NAME, file, served).unwrap();
    let loaded = alone(&Double::on(BackendName::OnnxRuntime));
    let (exits, counts) = (Arc::new(no_exits(None)), Arc::default());
    let ask = |within| {
        let joined = lane.join((number, file), (&loaded, &exits, &counts), item(1.0), within);
        joined.unwrap()
    };
    let asked = join_all([None, Some(HOUR / 2), None, None].map(ask)).await;
    let together = asked.into_iter().map(|done| done.unwrap().unwrap().together);
    assert_eq!(together.collect::<Vec<_>>(), [3, 1, 3, 3]);
}

#[tokio::test]
async fn where_all_of_a_model_would_be_late_an_early_exit_answers() {
    let (whole, early) = (
        Double::on(BackendName::OnnxRuntime),
        Double::on(BackendName::OnnxRuntime),
    );
    let said = [0.9, 1.0].map(|accuracy| ModelExit {
        output: accuracy.to_string(),
        accuracy,
    });
    let stops = early.clone();
    let exits = Arc::new(Exits::new(&said, Some(0.9), move |depth| {
        ready(Ok(alone(&stops).up_to(Some(depth)))).boxed()
    }));
    let (loaded, file, counts) = (alone(&whole), (Digest::of(b"one"), false), Arc::default());
    let exit = |depth, accuracy, time| Exit {
        depth,
        accuracy,
        times: vec![(1, time), (4, time)],
    };
    for (within, answers) in [(HOUR / 2, Some(1)), (3 * HOUR, None)] {
        let lane = Lane::new(1);
        let profile = vec![exit(1, 0.9, HOUR / 1000), exit(2, 1.0, HOUR)];
        let served = ServedModel::new(within, 4, profile).unwrap();
        let number = lane.admit(NAME, file, served).unwrap();
        let joined = lane.join((number, file), (&loaded, &exits, &counts), item(1.0), None);
        let done = joined.unwrap().await.unwrap().unwrap();
        assert_eq!((done.exit, done.together), (answers, 1));
        assert_eq!(done.outputs[0].1.view::<f32>().unwrap(), [2.0; 2]);
    }
    assert_eq!(
        (&early.sizes.lock()[..], &whole.sizes.lock()[..]),
        (&[1][..], &[1][..])
    );
}

#[tokio::test]
async fn exits_that_cannot_be_loaded_take_no_part_in_batches() {
    let (batches, model) = (batches(), Double::on(BackendName::OnnxRuntime));
    let said = [0.9, 1.0].map(|accuracy| ModelExit {
        output: accuracy.to_string(),
        accuracy,
    });
    let exits = |_: Option<f64>| {
        let load = |_: u32| ready(Err::<Loaded, _>(TaskError::invalid("no such output"))).boxed();
        Exits::new(&said, Some(0.0), load)
    };
    let enter = || batches.enter(NAME, Digest::of(b"one"), alone(&model), exits);
    enter().ask(item(1.0), None).await.unwrap();
    while batches.words(NAME).unwrap().contains("once measured") {
        tokio::task::yield_now().await;
    }
    assert_eq!(batches.words(NAME).unwrap(), "in batches of up to 4");
    for done in asked(&enter(), &[1.0, 2.0, 3.0, 4.0]).await {
        let done = done.unwrap();
        assert_eq!((done.exit, done.together), (None, 4));
    }
}

#[tokio::test]
async fn a_model_whose_batches_answer_something_else_is_never_run_in_batches() {
    let any = || Dim::Any("N".into());
    for (first, mixes, says) in [(any(), true, "output `y`"), (Dim::Fixed(1), false, "is not open")] {
        let (batches, model) = (batches(), Double::new(BackendName::OnnxRuntime, first, mixes));
        let loaded = measured(&batches, b"one", &model).await;
        let words = batches.words(NAME).unwrap();
        assert!(
            words.starts_with("not in batches") && words.contains(says),
            "{words}"
        );
        for done in asked(&loaded, &[1.0, 2.0, 3.0, 4.0]).await {
            assert_eq!(done.unwrap().together, 1);
        }
    }
}

#[tokio::test]
async fn requests_for_two_files_under_one_name_are_not_mixed() {
    let batches = batches();
    let models = [(); 2].map(|()| Double::on(BackendName::OnnxRuntime));
    let before = measured(&batches, b"one", &models[0]).await;
    let now = measured(&batches, b"other", &models[1]).await;
    // Who holds the one of before runs it alone.
    assert_eq!(before.ask(item(1.0), None).await.unwrap().together, 1);
    for done in asked(&now, &[1.0, 2.0, 3.0, 4.0]).await {
        assert_eq!(done.unwrap().together, 4);
    }
    assert_eq!(
        (&models[0].sizes.lock()[..], &models[1].sizes.lock()[..]),
        (&[1][..], &[4][..])
    );
}
