use super::*;
use crate::ask::Ask;
use karman_types::TaskId;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, split};

pub(crate) fn head(name: &str) -> CallHead {
    CallHead {
        ask: Ask::Call,
        name: name.into(),
        task: TaskId::from_parts(1, 2),
        attempt: 1,
        idempotency_key: None,
        within_ms: Some(50),
        chain: Vec::new(),
        content_type: "text/plain".into(),
        metadata: vec![("a".into(), "b".into())],
    }
}

pub(crate) fn link(size: usize) -> [(ReadHalf<DuplexStream>, WriteHalf<DuplexStream>); 2] {
    let (ours, theirs) = tokio::io::duplex(size);
    [split(ours), split(theirs)]
}

/// Any answer.
pub(crate) const fn any() -> Expects {
    Expects {
        most: u64::MAX,
        begun: None,
    }
}

pub(crate) async fn anyway(_: u64) {}

pub(crate) async fn echo(
    _: CallHead,
    request: TaskRequest,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let response = TaskResponse {
        content_type: request.content_type,
        metadata: request.metadata,
        body: request.body,
    };
    Ok((response, RemoteReport::default()))
}

#[tokio::test]
async fn bodies_of_every_size_come_back() {
    for length in [0, 1, HEAD as usize, HEAD as usize + 1, 3 << 20] {
        let [ours, theirs] = link(64 << 10);
        let body = Bytes::from(vec![7; length]);
        let mut any = any();
        let asking = ask(ours, head("echo"), body.clone().into(), &mut any);
        let (answer, served) = tokio::join!(asking, answer(theirs, |_, _| Ok(()), anyway, echo));
        served.unwrap();
        let (response, _) = answer.unwrap();
        assert_eq!(response.body, body);
        assert_eq!(response.metadata, head("").metadata);
    }
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_refused_before_it_is_read() {
    let [ours, theirs] = link(1 << 10);
    let mut any = any();
    let asking = ask(ours, head("echo"), Bytes::from(vec![7; 1 << 20]).into(), &mut any);
    let long = |_: &CallHead, body| Err(TaskError::limit(format!("{body} bytes")).with_field("body"));
    let (answer, _) = tokio::join!(asking, answer(theirs, long, anyway, echo));
    let refused = answer.unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("body"), "{refused:?}");
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_the_call() {
    let [ours, theirs] = link(64 << 10);
    let (started, wait) = futures::channel::oneshot::channel();
    let serving = tokio::spawn(answer(
        theirs,
        |_, _| Ok(()),
        anyway,
        async move |_, _| {
            let _ = started.send(());
            std::future::pending().await
        },
    ));
    let asking = tokio::spawn(async move { ask(ours, head("slow"), Body::default(), &mut any()).await });
    wait.await.unwrap();
    asking.abort();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_link_that_breaks_is_unavailable() {
    let [ours, theirs] = link(64 << 10);
    drop(theirs);
    let refused = ask(ours, head("echo"), Body::default(), &mut any())
        .await
        .unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Unavailable);
}

#[tokio::test]
async fn who_asks_hears_that_the_first_bytes_have_come() {
    let body = Bytes::from(vec![7; 3 * BEGINNING as usize]);
    let call = Call {
        head: head("echo"),
        body: body.len() as u64,
        trace: Carried::new(),
        tells_after: Some(BEGINNING),
    };
    let [mut ours, theirs] = link(64 << 10);
    let served = tokio::spawn(answer(theirs, |_, _| Ok(()), anyway, echo));
    let (first, rest) = body.split_at(BEGINNING as usize);
    ours.1.write_all(&CALL.encode(&call).unwrap()).await.unwrap();
    ours.1.write_all(first).await.unwrap();
    // The rest is not under way yet.
    assert!(matches!(ANSWER.read(&mut ours.0).await.unwrap(), Answer::Begun));
    ours.1.write_all(rest).await.unwrap();
    let (response, _) = receive(&mut ours.0, &mut any()).await.unwrap().unwrap();
    assert_eq!(response.body, body);
    drop(ours);
    served.await.unwrap().unwrap();

    for (length, tells) in [(BEGINNING - 1, false), (BEGINNING, true), (BEGINNING << 6, true)] {
        let [ours, theirs] = link(64 << 10);
        let (begun, mut word) = oneshot::channel();
        let mut expects = Expects {
            begun: Some(begun),
            ..any()
        };
        let body = Bytes::from(vec![7; length as usize]);
        let asking = ask(ours, head("echo"), body.clone().into(), &mut expects);
        let (answer, served) = tokio::join!(asking, answer(theirs, |_, _| Ok(()), anyway, echo));
        served.unwrap();
        assert_eq!(answer.unwrap().0.body, body);
        assert_eq!(word.try_recv().is_ok(), tells, "{length}");
    }
}

#[tokio::test]
async fn a_word_that_nobody_waits_for_is_no_answer() {
    let [mut ours, mut theirs] = link(64 << 10);
    theirs
        .1
        .write_all(&ANSWER.encode(&Answer::Begun).unwrap())
        .await
        .unwrap();
    let refused = receive(&mut ours.0, &mut any()).await;
    assert!(matches!(
        refused,
        Err(WireError::Malformed { frame: "answer", .. })
    ));
}
