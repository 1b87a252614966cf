use super::*;
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
        let asking = ask(ours, head("echo"), body.clone().into(), u64::MAX);
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
    let asking = ask(ours, head("echo"), Bytes::from(vec![7; 1 << 20]).into(), u64::MAX);
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
    let asking = tokio::spawn(ask(ours, head("slow"), Body::default(), u64::MAX));
    wait.await.unwrap();
    asking.abort();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_link_that_breaks_is_unavailable() {
    let [ours, theirs] = link(64 << 10);
    drop(theirs);
    let refused = ask(ours, head("echo"), Body::default(), u64::MAX)
        .await
        .unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Unavailable);
}
