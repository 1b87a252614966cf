use super::super::testing::{conducted, described, frame};
use super::super::wire::{Answer, Order, Work};
use super::*;
use futures::future::BoxFuture;
use karman_fed::Update;
use karman_types::ErrorKind;
use std::time::Duration;

/// Clients that do what they are asked.
struct Honest;

impl Clients for Honest {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        async move {
            Ok(match order.work {
                Work::Begin { .. } => Answer::Begun {
                    model: vec![("weight".into(), frame(&[0.0, 0.0]))],
                },
                Work::Train { .. } => Answer::Trained(Box::new(Update {
                    frames: vec![frame(&[1.0, -1.0])],
                    samples: 10,
                    steps: 3,
                    loss: 0.5,
                })),
                other => return Err(TaskError::invalid(format!("nobody is asked {other:?}"))),
            })
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_run_whose_checkpoint_was_not_written_goes_on_from_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let record = described("");
    record.write(&store).unwrap();
    let (mut conductor, _handle) = conducted(record, &store, Arc::new(Honest));
    conductor.begin().await.unwrap();
    let on_disk = || Record::read(&store, "x").unwrap().unwrap();
    while on_disk().checkpoint.is_none() {
        let event = conductor.next().await;
        conductor.feed(event).await.unwrap();
    }
    let begun = on_disk();

    // By the time that the run breaks off the disk writes again.
    let failure = Some(Failure::Unsaved("no space left on device".into()));
    let ended = conductor.act(Action::Finished { version: 1, failure }).await;
    let error = ended.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("no space left on device"), "{error}");
    drop(conductor);
    let kept = on_disk();
    assert!(!kept.has_ended(), "{:?}", kept.log);
    assert_eq!(kept.log, begun.log);

    let (conductor, handle) = conducted(kept, &store, Arc::new(Honest));
    conductor.drive().await.unwrap();
    let log = handle.status(0).log;
    assert!(
        matches!(
            log.last(),
            Some(FedEvent::Finished {
                version: 4,
                failure: None
            })
        ),
        "{log:?}"
    );
    let numbers = on_disk().model().unwrap().numbers;
    let off = numbers
        .iter()
        .zip([4.0, -4.0])
        .map(|(number, wanted)| (number - wanted).abs());
    assert!(off.fold(0.0, f32::max) < 1e-5, "{numbers:?}");
}

/// Clients of whom nothing can be asked without a panic.
struct Broken;

impl Clients for Broken {
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        Honest.ask(order, time)
    }

    fn windows(&self, _: Clock) -> karman_fed::Windows {
        panic!("a contact plan that does not add up");
    }
}

#[tokio::test]
async fn a_run_that_panics_is_not_shown_as_if_it_went_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let record = described("");
    record.write(&store).unwrap();
    let (conductor, handle) = conducted(record, &store, Arc::new(Broken));
    let error = conductor.drive().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    let status = handle.status(0);
    assert!(!status.running);
    let last = status.log.last();
    assert!(
        matches!(last, Some(FedEvent::Finished { failure: Some(why), .. }) if why.contains("failed in the host")),
        "{last:?}"
    );
    // What is on the disk goes on when the node is started anew.
    assert!(!Record::read(&store, "x").unwrap().unwrap().has_ended());
}
