//! A keeper that sends again what was true once: nothing comes of it, it is counted, and what is kept goes on.

use super::sites::{PATIENCE, Site, Sites};
use crate::support::pause;
use bytes::Bytes;
use karman_mesh::membership::{Invitation, Member};
use karman_mesh::{Ask, CallHead, Mesh, MeshOptions, PeerId, RemoteReport, Serve, Standing};
use karman_store::Store;
use karman_types::{NodeId, Offer, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Served = Result<(TaskResponse, RemoteReport), TaskError>;

/// Takes what keepers send and drained nodes hand over, and answers none of it.
struct Listens(UnboundedSender<Bytes>, NodeId);

impl Serve for Listens {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(64 << 20)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        head: CallHead,
        request: TaskRequest,
    ) -> Pin<Box<dyn Future<Output = Served> + Send>> {
        if let Ask::Keep { .. } | Ask::TakeOver = head.ask {
            let _ = self.0.send(request.body);
        }
        Box::pin(async { Err(TaskError::unavailable("it listens, and no more")) })
    }

    fn offer(&self) -> Option<Offer> {
        Some(Offer {
            node: self.1,
            tier: Tier::Fog,
            cores: 1,
            memory: 1 << 30,
            tasks: Vec::new(),
            models: Vec::new(),
        })
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }
}

/// A member that keeps what it has heard to send it again.
pub(super) struct Hostile {
    threads: Runtime,
    mesh: Mesh,
    pub(super) id: NodeId,
    heard: UnboundedReceiver<Bytes>,
    kept: Vec<Bytes>,
    _folder: TempDir,
}

impl Hostile {
    pub(super) fn join(word: &str) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (id, seed) = (store.node_key().id(), *store.node_key().seed());
        let invitation: Invitation = word.parse().unwrap();
        let options = MeshOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            entrances: invitation
                .addresses()
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            find_neighbours: false,
            links: None,
        };
        let standing = Arc::new(Standing::open(store, Tier::Fog, Some(invitation), None).unwrap());
        let (sender, heard) = unbounded_channel();
        let inside = threads.enter();
        let mesh = Mesh::start(options, &seed, standing, Arc::new(Listens(sender, id))).unwrap();
        drop(inside);
        threads.block_on(mesh.admitted(PATIENCE)).unwrap();
        Self {
            threads,
            mesh,
            id,
            heard,
            kept: Vec::new(),
            _folder: folder,
        }
    }

    pub(super) fn peer(&self, site: &Site) -> PeerId {
        let node: NodeId = site.id.parse().unwrap();
        self.threads.block_on(self.mesh.node(node)).unwrap()
    }

    /// The messages of this name that it has heard so far; waits until there is one that fits.
    pub(super) fn heard(&mut self, name: &str, fits: impl Fn(&Bytes) -> bool) -> Bytes {
        let started = Instant::now();
        loop {
            while let Ok(body) = self.heard.try_recv() {
                self.kept.push(body);
            }
            // The name of a variant, or of the first field, is the key of a map, at the beginning.
            let named = |body: &&Bytes| {
                body.get(2..)
                    .is_some_and(|rest| rest.starts_with(name.as_bytes()))
            };
            if let Some(found) = self.kept.iter().filter(named).find(|body| fits(body)) {
                return found.clone();
            }
            assert!(started.elapsed() < PATIENCE, "no `{name}` is heard");
            pause();
        }
    }

    pub(super) fn sends(&self, to: PeerId, ask: Ask, name: &str, task: TaskId, body: Bytes) -> Served {
        let head = CallHead {
            within_ms: Some(20_000),
            ..CallHead::new(ask, name, task)
        };
        self.threads.block_on(self.mesh.call(to, head, body))
    }

    fn keeps(&self, to: PeerId, body: &Bytes) -> Served {
        let keep = Ask::Keep { snapshot: false };
        self.sends(to, keep, "keepers", TaskId::from_parts(0, 0), body.clone())
    }
}

#[test]
fn what_a_keeper_sends_again_changes_nothing_and_is_counted() {
    let mut sites = Sites::new(2, None);
    for site in [&sites[0], &sites[1]] {
        site.deploy("tally");
        site.deploy("tiny");
    }
    let word = sites[0].home.run(["mesh", "invite", "--tier", "fog"]).ok().out();
    let mut evil = Hostile::join(&word);
    let ids = [sites[0].id.clone(), sites[1].id.clone(), evil.id.to_string()];
    let name = |sites: &Sites| {
        let order = ["mesh", "keepers"]
            .into_iter()
            .chain(ids.iter().map(String::as_str));
        sites[0].home.run(order).ok();
    };
    name(&sites);
    sites.keep("first");
    let (append, charter) = (
        evil.heard("Append", |_| true),
        evil.heard("Charter", |body| body.len() > 100),
    );

    // The charter is another, and whoever leads does so for another term.
    name(&sites);
    let later = evil.heard("Charter", |body| body.len() > 100 && *body != charter);
    for n in [0, 1] {
        sites.kill(n);
        sites.up(n, None);
    }
    sites.keep("second");

    for n in [0, 1] {
        let to = evil.peer(&sites[n]);
        sites[n].soon(|site| {
            let _ = evil.keeps(to, &append);
            site.refused("old-term") > 0
        });
        evil.keeps(to, &later).unwrap();
        assert_eq!(sites[n].refused("old-charter"), 0);
        evil.keeps(to, &charter).unwrap();
        assert_eq!(sites[n].refused("old-charter"), 1);
    }
    sites.keep("third");

    // An attempt of an owner that is one no longer.
    let (to, task) = (evil.peer(&sites[1]), TaskId::from_parts(1, 7));
    let attempt = |epoch| Ask::Attempt {
        run: 1,
        epoch,
        home: None,
    };
    evil.sends(to, attempt(2), "tiny", task, "12".into()).unwrap();
    let refused = evil.sends(to, attempt(1), "tiny", task, "12".into()).unwrap_err();
    assert!(refused.message.contains("epoch 1 is over"), "{refused}");
    assert_eq!(sites[1].refused("old-epoch"), 1);
    sites.keep("fourth");
    let status = sites[0].home.control("/mesh/keepers");
    assert_eq!(
        (&status["charter"], &status["majority"]),
        (&2.into(), &true.into())
    );
}
