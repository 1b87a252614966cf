use super::*;
use crate::access::{Access, CallerLimits, Revoked};
use crate::config::GatewayLimits;
use futures::FutureExt;
use http::HeaderMap;
use karman_mesh::membership::{Issuer, RootKey, Terms, UnixTime};
use karman_node::{JoinOptions, LogRing, NodeConfig, RuntimeOptions};
use karman_types::{Tier, from_toml};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
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

/// Anybody may ask for a list; a search asks every node in reach.
#[tokio::test(flavor = "multi_thread")]
async fn the_mesh_is_not_searched_for_who_may_run_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let node = invited(folder.path()).await;
    let admission = Admission::new(&GatewayLimits::default());
    let inference = Inference::new(node, Duration::from_secs(60), admission);
    let open: [Right; 3] = ["call:*", "flow:*", "http:*"].map(|right| right.parse().unwrap());
    let revoked = Revoked::of(folder.path());
    let access = Access::new(Vec::new(), open.into(), CallerLimits::default(), revoked, 1);
    let anyone = access.caller(&HeaderMap::new(), Ipv4Addr::LOCALHOST.into());
    let listed = inference.list(&anyone.unwrap()).now_or_never();
    assert!(listed.expect("somebody is asked").unwrap().is_empty());
}
