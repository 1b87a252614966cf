use super::*;
use crate::access::{Access, CallerLimits, Revoked};
use crate::config::GatewayLimits;
use futures::FutureExt;
use http::HeaderMap;
use karman_mesh::membership::{Issuer, RootKey, Terms, UnixTime};
use karman_mesh::wall_clock;
use karman_node::{JoinOptions, LogRing, NodeConfig, RuntimeOptions};
use karman_types::{ErrorKind, Tier, from_toml};
use std::net::Ipv4Addr;
use std::path::Path;

/// A node with a mesh, of which it is about to become a member.
async fn invited(folder: &Path) -> Node {
    let options = RuntimeOptions {
        state: folder.join("state"),
        cache: folder.join("cache"),
        program: None,
    };
    let config = "tier = \"edge\"\n[mesh]\nlisten = \"127.0.0.1:0\"\nfind-neighbours = false\n";
    let config: NodeConfig = from_toml(config).unwrap();
    let node = Node::start(config, options, LogRing::default()).await.unwrap();
    let now = wall_clock();
    let now = UnixTime::from_seconds(now.as_secs());
    let later = now.after(Duration::from_secs(3600));
    let (root, terms) = (RootKey::generate().unwrap(), Terms::usual(Tier::Edge, later));
    let nobody = vec!["/ip4/127.0.0.1/tcp/1".to_owned()];
    let invitation = Issuer::root(&root).invite(&terms, later, None, nobody, now);
    let options = JoinOptions {
        invitation: Some(invitation.unwrap()),
        links: None,
    };
    assert!(node.join(options).await.unwrap().is_some());
    node
}

/// A node without a mesh.
async fn alone(folder: &Path) -> Node {
    let options = RuntimeOptions {
        state: folder.join("state"),
        cache: folder.join("cache"),
        program: None,
    };
    let config: NodeConfig = from_toml("tier = \"edge\"\n").unwrap();
    Node::start(config, options, LogRing::default()).await.unwrap()
}

/// What answers, and a caller who may do this.
fn answering(node: Node, folder: &Path, open: &[&str]) -> (Inference, Arc<Caller>) {
    let admission = Admission::new(&GatewayLimits::default());
    let open = open.iter().map(|right| right.parse().unwrap()).collect();
    let revoked = Revoked::of(folder);
    let access = Access::new(Vec::new(), open, CallerLimits::default(), revoked, 1);
    let anyone = access.caller(&HeaderMap::new(), Ipv4Addr::LOCALHOST.into());
    let metrics = Metrics::new(admission.clone(), Arc::new(access));
    let inference = Inference::new(node, Duration::from_secs(60), admission, Arc::new(metrics));
    (inference, anyone.unwrap())
}

/// Anybody may ask for a list; a search asks every node in reach.
#[tokio::test(flavor = "multi_thread")]
async fn the_mesh_is_not_searched_for_who_may_run_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let node = invited(folder.path()).await;
    let (inference, anyone) = answering(node, folder.path(), &["call:*", "flow:*", "http:*"]);
    let listed = inference.list(&anyone, false).now_or_never();
    assert!(listed.expect("somebody is asked").unwrap().is_empty());
}

const MODEL: &[u8] = include_bytes!("../../../../tests/models/digits-s.onnx");

#[tokio::test(flavor = "multi_thread")]
async fn a_list_tells_versions_and_which_models_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let node = alone(folder.path()).await;
    let store = node.runtime().home().store().unwrap();
    // As it was before a back-end could no longer run it.
    for (name, file) in [("digits-s", MODEL), ("broken", b"no model")] {
        store.models().add(name, file, None, Default::default()).unwrap();
    }
    let (inference, anyone) = answering(node, folder.path(), &["infer:*"]);
    let described = inference.describe(&anyone, "digits-s", None).await.unwrap();
    let refused = inference.describe(&anyone, "broken", None).await.unwrap_err();
    let mut listed = inference.list(&anyone, false).await.unwrap();
    listed.retain(|listed| !listed.name.contains('/'));
    let [broken, digits] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(broken.state(), ("UNAVAILABLE", refused.error.message));
    assert_eq!(digits.state(), ("READY", String::new()));
    assert_eq!(
        (&digits.name[..], &digits.version),
        ("digits-s", &described.version)
    );
    let ready = inference.list(&anyone, true).await.unwrap();
    assert!(ready.iter().all(|listed| listed.name != "broken"), "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_for_a_model_are_told_as_such_and_only_what_there_is_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let node = alone(folder.path()).await;
    let store = node.runtime().home().store().unwrap();
    store
        .models()
        .add("digits-s", MODEL, None, Default::default())
        .unwrap();
    let (inference, anyone) = answering(node.clone(), folder.path(), &["infer:*"]);
    let ask = async |model: &str, input: &str| {
        let question = Question {
            model: model.to_owned(),
            version: None,
            inputs: vec![(input.to_owned(), Value::Bytes(Bytes::from_static(b"a")))],
            wanted: Vec::new(),
            objectives: Objectives::default(),
        };
        inference.infer(&anyone, question).await.unwrap_err().error
    };
    for input in ["x", TASK_INPUT] {
        let error = ask("digits-s", input).await;
        assert!(
            error.message.contains("is a model: it takes `image` of FP32"),
            "{error}"
        );
    }
    for (input, field) in [("x", "model"), (TASK_INPUT, "task")] {
        let error = ask("no-such-model", input).await;
        assert_eq!(error.field.as_deref(), Some(field), "{error}");
    }
    let image = Tensor::from_slice([1, 1, 8, 8], &[0.5_f32; 64]).unwrap();
    let typo = Question {
        model: "digits-s".to_owned(),
        version: None,
        inputs: vec![("image".to_owned(), Value::Tensor(image))],
        wanted: vec!["typo".to_owned()],
        objectives: Objectives::default(),
    };
    let error = inference.infer(&anyone, typo).await.unwrap_err().error;
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    let shown = inference.metrics.show(&node).into_body();
    let shown = axum::body::to_bytes(shown, usize::MAX).await.unwrap();
    let shown = String::from_utf8_lossy(&shown);
    let counted = "karman_inference_requests_total{model=\"digits-s\",outcome=\"invalid\"} 3\n";
    assert!(
        shown.contains(counted) && !shown.contains("no-such-model"),
        "{shown}"
    );
}
