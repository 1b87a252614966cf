//! A member with every right to the buckets brings what tasks would write that are not its own.

use super::sites::Sites;
use crate::support::member::Member;
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, RemoteReport, Serve, membership};
use karman_tasks::{AttemptId, Batch, Commit, CommitError, Epoch, Operation, Verdict};
use karman_types::{Digest, NodeId, Offer, TaskError, TaskId, TaskRequest, TaskResponse};
use std::pin::Pin;
use std::sync::Arc;

struct Nothing;

impl Serve for Nothing {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(0)
    }

    fn serve(
        &self,
        _: Arc<membership::Member>,
        _: CallHead,
        _: TaskRequest,
    ) -> Pin<Box<dyn Future<Output = Result<(TaskResponse, RemoteReport), TaskError>> + Send>> {
        Box::pin(async { Err(TaskError::unavailable("nothing")) })
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }

    fn offer(&self) -> Option<Offer> {
        None
    }
}

#[test]
fn who_owns_no_task_writes_nothing_in_its_name() {
    let sites = Sites::new(3, None);
    sites[0].deploy("tally");
    sites.name_keepers();
    let invite = [
        "mesh",
        "invite",
        "--tier",
        "edge",
        "--right",
        "bucket-write:*",
        "--right",
        "call:*",
    ];
    let word = sites[0].home.run(invite).ok().out();
    let member = Member::join(&word, |_| Nothing);
    member.meets(&sites[0].id);
    let home: NodeId = sites[0].id.parse().unwrap();
    let bring = |task: TaskId, key: &str| {
        let set = Operation::Set {
            bucket: "tally".into(),
            key: "forged".into(),
            value: Bytes::from_static(b"1000"),
        };
        let commit = Commit {
            attempt: AttemptId {
                task,
                run: 0,
                number: 1,
            },
            key: key.into(),
            fingerprint: Digest::of(b"anything"),
            epoch: Epoch::FIRST,
            batch: Batch {
                home,
                reads: Vec::new(),
                operations: vec![set],
            },
            response: TaskResponse::from(Bytes::from(vec![0; 1 << 20])),
        };
        let body = cbor4ii::serde::to_vec(Vec::new(), &commit).unwrap();
        let (answer, _) = member
            .runtime
            .block_on(async {
                let peer = member.mesh.node(home).await.unwrap();
                let head = CallHead::new(Ask::Commit, "buckets", task);
                member.mesh.call(peer, head, Bytes::from(body)).await
            })
            .unwrap();
        let verdict: Result<Verdict, CommitError> = cbor4ii::serde::from_slice(&answer.body).unwrap();
        verdict
    };
    let unknown = TaskId::from_parts(1, 1);
    assert_eq!(bring(unknown, "coming"), Err(CommitError::Unowned(unknown)));
    // The key is as free as before.
    let task: TaskId = sites.keep("coming").parse().unwrap();
    assert_eq!(bring(task, "coming"), Err(CommitError::Unowned(task)));
    assert_eq!(sites[0].counted("forged"), 0);
}
