//! Any bytes as what is said in a secure sum, at any step of it. Whatever a client says, the sum is right or fails, and nobody else is blamed
//! for that. What a coordinator says is refused, or is answered once; a client that has refused it still answers an honest one.
#![cfg_attr(fuzzing, no_main)]

use cbor4ii::serde::{from_slice, to_vec};
use ed25519_compact::{KeyPair, Seed};
use karman_fed::secure::{
    Client, Closed, Failure, Graph, Member, Pass, Ring, SecureSum, Server, Session, Settings, Step, ToClient,
    ToServer,
};
use karman_types::{Digest, NodeId};
use std::sync::Arc;

/// One liar among so many takes no more than its own part from the others.
const CLIENTS: u8 = 4;
const LENGTH: usize = 2;

struct Seat {
    node: NodeId,
    client: Client,
    vector: [u64; LENGTH],
    /// What it says next, if it is honest.
    says: Option<ToServer>,
}

struct Round {
    server: Server,
    /// The first is whoever lies, or is lied to.
    seats: Vec<Seat>,
    pending: Vec<(NodeId, ToClient)>,
}

impl Round {
    fn begun() -> Self {
        let invited: Vec<(NodeId, KeyPair, Pass)> = (1..=CLIENTS)
            .map(|number| {
                let identity = KeyPair::from_seed(Seed::new([number; 32]));
                (NodeId::of_key(&*identity.pk), identity, Pass::new([number; 32]))
            })
            .collect();
        let members = invited.iter().map(|(node, identity, pass)| Member {
            node: *node,
            key: *identity.pk,
            once: pass.shown(),
        });
        let settings = Settings {
            round: Digest::of(b"a round"),
            graph: Graph::Complete,
            seed: Digest::of(b"a seed"),
            length: LENGTH,
            ring: Ring::BITS_32,
            least: 2,
        };
        let session = Arc::new(Session::new(settings, members.collect()).expect("a round"));
        let mut seats = Vec::new();
        for (number, (node, identity, pass)) in (1..).zip(invited) {
            let joined = Client::join(session.clone(), node, identity, pass, [number; 32]);
            let (client, says) = joined.expect("it is invited");
            seats.push(Seat {
                node,
                client,
                vector: [number.into(), 10],
                says: Some(says),
            });
        }
        Self {
            server: Server::new(session),
            seats,
            pending: Vec::new(),
        }
    }

    /// All say what they have to say, the first perhaps something else; and the step is closed.
    fn close(&mut self, lie: Option<ToServer>) -> Result<Option<SecureSum>, Failure> {
        let liar = self.seats[0].node;
        if let Some(lie) = lie
            && self.server.receive(liar, lie).is_ok()
        {
            self.seats[0].says = None;
        }
        for seat in &mut self.seats {
            // Whoever has dropped out is not heard.
            if let Some(says) = seat.says.take() {
                let _ = self.server.receive(seat.node, says);
            }
        }
        match self.server.close()? {
            Closed::Sum(sum) => return Ok(Some(sum)),
            Closed::Next(messages) => self.pending = messages,
        }
        Ok(None)
    }

    /// All think of what to answer.
    fn answer(&mut self) {
        for (node, said) in std::mem::take(&mut self.pending) {
            let seat = self.seats.iter_mut().find(|seat| seat.node == node);
            let seat = seat.expect("it is in the round");
            seat.says = match seat.client.handle(said) {
                Ok(Some(says)) => Some(says),
                Ok(None) => seat.client.mask(&seat.vector).ok(),
                Err(_) => None,
            };
        }
    }

    fn plain(&self, survivors: &[NodeId]) -> Vec<u64> {
        let there = || self.seats.iter().filter(|seat| survivors.contains(&seat.node));
        (0..LENGTH)
            .map(|place| there().map(|seat| seat.vector[place]).sum())
            .collect()
    }
}

/// A client lies after so many honest steps.
fn to_server(steps: u8, lie: ToServer) {
    let mut round = Round::begun();
    for _ in 0..steps {
        assert_eq!(round.close(None), Ok(None), "all are honest");
        round.answer();
    }
    let in_vector = round.server.step() == Step::Mask;
    let mut lie = Some(lie);
    let ended = loop {
        match round.close(lie.take()) {
            Ok(None) => round.answer(),
            Ok(Some(sum)) => break Ok(sum),
            Err(failure) => break Err(failure),
        }
    };
    let liar = round.seats[0].node;
    match ended {
        // What its own vector is, is for each to say.
        Ok(_) if in_vector => {}
        Ok(sum) => assert_eq!(sum.elements, round.plain(&sum.survivors)),
        Err(failure) => assert!(failure.liar().is_none_or(|node| node == liar), "{failure}"),
    }
}

/// The coordinator lies to a client after so many honest steps and one more of which it says what came of it.
fn to_client(steps: u8, lie: ToClient) {
    let mut round = Round::begun();
    for _ in 0..steps {
        assert_eq!(round.close(None), Ok(None), "all are honest");
        round.answer();
    }
    assert_eq!(round.close(None), Ok(None), "all are honest");
    let Round { seats, pending, .. } = &mut round;
    let Seat { node, client, .. } = &mut seats[0];
    let before = client.step();
    if client.handle(lie).is_ok() {
        assert_ne!(client.step(), before, "it answers a step once");
        return;
    }
    assert_eq!(client.step(), before, "what is refused changes nothing");
    let honest = pending.iter().find(|(to, _)| *to == *node);
    let (_, honest) = honest.expect("it takes part").clone();
    assert!(client.handle(honest).is_ok(), "it is asked honestly");
}

fn check(bytes: &[u8]) {
    let Some((steps, message)) = bytes.split_first() else {
        return;
    };
    if let Ok(says) = from_slice::<ToServer>(message) {
        let written = to_vec(Vec::new(), &says).expect("what was read can be written");
        assert_eq!(from_slice::<ToServer>(&written).ok().as_ref(), Some(&says));
        to_server(steps % 5, says);
    }
    if let Ok(said) = from_slice::<ToClient>(message) {
        let written = to_vec(Vec::new(), &said).expect("what was read can be written");
        assert_eq!(from_slice::<ToClient>(&written).ok().as_ref(), Some(&said));
        to_client(steps % 4, said);
    }
}

karman_fuzz::target!(check);
