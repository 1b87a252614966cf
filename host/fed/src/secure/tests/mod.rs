//! Whole rounds: all drop-out patterns, and what a party that lies gets.

mod attack;
mod changed;
mod dropout;
mod instance;
mod shares;

use super::*;
use ed25519_compact::{KeyPair, Seed};
use karman_types::{Digest, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A round and the identities of its members, in the roster's order.
pub(super) fn session(members: usize, graph: Graph, length: usize) -> (Arc<Session>, Vec<KeyPair>) {
    let first = Settings {
        round: Digest::of(b"round 1"),
        graph,
        seed: Digest::of(b"seed"),
        length,
        ring: Ring::BITS_32,
        least: 2,
    };
    session_of(members, first, |_| [0; 32])
}

/// The same with these settings, and the numbers that members use for it.
fn session_of(
    members: usize,
    settings: Settings,
    once: impl Fn(usize) -> [u8; 32],
) -> (Arc<Session>, Vec<KeyPair>) {
    let mut all: Vec<_> = (0..members)
        .map(|number| {
            let identity = KeyPair::from_seed(Seed::new(*Digest::of(&number.to_le_bytes()).as_bytes()));
            (NodeId::of_key(&*identity.pk), identity)
        })
        .collect();
    all.sort_by_key(|(node, _)| *node);
    let roster = all.iter().enumerate().map(|(place, (node, identity))| Member {
        node: *node,
        key: *identity.pk,
        once: once(place),
    });
    let session = Session::new(settings, roster.collect()).unwrap();
    (
        Arc::new(session),
        all.into_iter().map(|(_, identity)| identity).collect(),
    )
}

/// A round with its clients, step by step.
struct World {
    session: Arc<Session>,
    server: Server,
    clients: BTreeMap<NodeId, Client>,
    vectors: BTreeMap<NodeId, Vec<u64>>,
    /// What the coordinator has to say next.
    pending: Vec<(NodeId, ToClient)>,
}

impl World {
    /// All keys have arrived, of those who answer at all.
    fn new(members: usize, graph: Graph, seed: u64, joins: impl Fn(Position) -> bool) -> Self {
        Self::of(session(members, graph, 5), seed, joins)
    }

    /// The same in this round.
    fn of(
        (session, identities): (Arc<Session>, Vec<KeyPair>),
        seed: u64,
        joins: impl Fn(Position) -> bool,
    ) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = Self {
            server: Server::new(session.clone()),
            clients: BTreeMap::new(),
            vectors: BTreeMap::new(),
            pending: Vec::new(),
            session: session.clone(),
        };
        for (position, identity) in identities.into_iter().enumerate() {
            let Member { node, once, .. } = session.roster().members()[position];
            let entropy = std::array::from_fn(|_| random.u8(..));
            let pass = Pass::new(once);
            let (client, keys) = Client::join(session.clone(), node, identity, pass, entropy).unwrap();
            world.clients.insert(node, client);
            world
                .vectors
                .insert(node, (0..5).map(|_| u64::from(random.u32(..))).collect());
            if joins(position as Position) {
                world.server.receive(node, keys).unwrap();
            }
        }
        world
    }

    /// Closes steps up to this one, everybody answering.
    fn up_to(members: usize, graph: Graph, step: Step) -> Self {
        Self::new(members, graph, 1, |_| true).go_to(step)
    }

    /// Goes on to this step, everybody answering.
    fn go_to(mut self, step: Step) -> Self {
        while self.server.step() < step {
            self.close().unwrap();
            if self.server.step() < step {
                self.deliver(|_, _| true);
            }
        }
        self
    }

    fn close(&mut self) -> Result<Option<SecureSum>, Failure> {
        match self.server.close()? {
            Closed::Sum(sum) => Ok(Some(sum)),
            Closed::Next(messages) => {
                self.pending = messages;
                Ok(None)
            }
        }
    }

    /// What a client answers to what is pending for it.
    fn answer(&mut self, node: NodeId) -> Result<ToServer, Refusal> {
        let (_, message) = self.pending.iter().find(|(to, _)| *to == node).unwrap().clone();
        let client = self.clients.get_mut(&node).unwrap();
        match client.handle(message)? {
            Some(answer) => Ok(answer),
            None => client.mask(&self.vectors[&node]),
        }
    }

    /// Lets those answer that still do; a client that refuses has dropped out.
    fn deliver(&mut self, answers: impl Fn(NodeId, Step) -> bool) {
        let step = self.server.step();
        for node in self.pending.iter().map(|(to, _)| *to).collect::<Vec<_>>() {
            if answers(node, step)
                && let Ok(answer) = self.answer(node)
            {
                self.server.receive(node, answer).unwrap();
            }
        }
    }

    fn node(&self, position: Position) -> NodeId {
        self.session.roster().members()[usize::from(position)].node
    }

    /// The sum in the open.
    fn plain_sum(&self, of: &[NodeId]) -> Vec<u64> {
        let mut sum = vec![0_u64; 5];
        for node in of {
            for (element, other) in sum.iter_mut().zip(&self.vectors[node]) {
                *element = Ring::BITS_32.wrap(*element + other);
            }
        }
        sum
    }
}
