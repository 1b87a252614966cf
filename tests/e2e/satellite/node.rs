//! A node at a place of the internet that can be cut off.

use crate::internet::{Internet, Place};
use crate::support::{Home, Server, until};
use karman_types::{Digest, NodeId};
use serde_json::Value;
use std::fmt::from_fn;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Node {
    place: Place,
    pub(crate) home: Home,
    server: Option<Server>,
    pub(crate) id: NodeId,
}

impl Node {
    pub(crate) fn start(internet: &Internet, place: Place, tier: &str, join: Option<&str>) -> Self {
        let home = Home::new();
        let folder = home.path().join("config/karman");
        std::fs::create_dir_all(&folder).unwrap();
        let contacts = home.path().join("contacts.toml");
        std::fs::write(&contacts, "").unwrap();
        let config = format!("tier = \"{tier}\"\n[mesh]\ncontacts = {contacts:?}\n");
        std::fs::write(folder.join("node.toml"), config).unwrap();
        if join.is_none() {
            home.run(["mesh", "init"]).ok();
        }
        let mut node = Self {
            place,
            home,
            server: None,
            id: NodeId::of_key(b""),
        };
        node.up(internet, &join.map_or(vec![], |word| vec!["--join", word]));
        let status = node.home.control("/status");
        node.id = status["node"].as_str().unwrap().parse().unwrap();
        node
    }

    pub(crate) fn up(&mut self, internet: &Internet, more: &[&str]) {
        let arguments = [&["node", "up", "--listen", "127.0.0.1:0"], more].concat();
        let command = self.home.command(arguments);
        self.server = Some(self.home.started(internet.inside(self.place, &command)));
    }

    /// Cuts its power, and starts it again.
    pub(crate) fn kill(&mut self, internet: &Internet) {
        self.server.take().unwrap().kill();
        self.up(internet, &[]);
    }

    pub(crate) fn down(&mut self) {
        let (code, said) = self.server.take().unwrap().stop();
        assert_eq!(code, 0, "{said}");
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let what = from_fn(|f| {
            let bundles = self.home.control("/mesh/bundles");
            write!(f, "{what}\n{bundles}\n{}", self.said(""))
        });
        until(PATIENCE, what, || is(self));
    }

    pub(crate) fn has_met(&self, other: &Self) -> bool {
        self.home.run(["mesh", "ping", &other.id.to_string()]).code == 0
    }

    pub(super) fn has_plugin(&self, digest: Digest) -> bool {
        let status = self.home.control("/status").to_string();
        status.contains(&digest.to_string())
    }

    pub(super) fn bundle(&self, digest: &str) -> Value {
        let bundles = self.home.control("/mesh/bundles");
        let mut bundles = bundles.as_array().unwrap().iter();
        bundles
            .rfind(|bundle| bundle["bundle"] == digest)
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// What its log says that begins so.
    pub(crate) fn said(&self, begin: &str) -> String {
        self.home.said(begin)
    }

    /// Leaves a plugin for another node, and answers the bundle that it is in.
    pub(super) fn deploy_later(&self, file: &std::path::Path, on: &Self, more: &[&str]) -> String {
        let (file, on) = (file.to_str().unwrap(), on.id.to_string());
        let arguments = [&["deploy", file, "--on", &on, "--wait", "1h", "--json"], more].concat();
        let sent: Value = serde_json::from_str(&self.home.run(arguments).ok().out()).unwrap();
        println!("{sent}");
        sent["bundle"].as_str().unwrap().to_owned()
    }
}
