//! Any bytes as a letter of a round whose updates go from node to node, or as an answer to one: a typed error, or what reads the same once
//! it is written again. A client that is told so holds nothing that the descriptors do not say.
#![cfg_attr(fuzzing, no_main)]

use karman_fed::swarm::{Answer, Descriptor, Inventory, Layout, Letter, Message, Peer, SwarmSettings};
use karman_types::Digest;

const LAYOUT: Layout = Layout { chunk: 4, chunks: 2 };
const CLIENTS: u8 = 3;

fn descriptors() -> Vec<Descriptor> {
    let of = |client: u8| {
        let chunks = LAYOUT.cut(&[client + 1; 8]).expect("it fits");
        Descriptor::of(Digest::of(&[client]), 1, &chunks)
    };
    let mut all: Vec<_> = (0..CLIENTS).map(of).collect();
    all.sort_by_cached_key(Descriptor::digest);
    all
}

fn check(bytes: &[u8]) {
    if let Ok(answer) = Answer::read(bytes) {
        let written = answer.write().expect("what was read is not too long");
        let again = Answer::read(&written).expect("what was written is read");
        assert_eq!(again.write().expect("as before"), written);
    }
    let Ok(letter) = Letter::read(bytes) else {
        return;
    };
    let written = letter.write().expect("what was read is not too long");
    let again = Letter::read(&written).expect("what was written is read");
    assert_eq!(again.write().expect("as before"), written);
    tell(letter.message);
}

fn tell(message: Message) {
    let all = descriptors();
    let settings = SwarmSettings {
        layout: LAYOUT,
        ..SwarmSettings::default()
    };
    let own = all[0].digest();
    let mut peer = Peer::new(&settings, 0, &own, all.clone()).expect("a round");
    let nothing = || Inventory::none(u32::from(CLIENTS) * LAYOUT.chunks);
    match message {
        Message::Slot(transfers) => transfers.iter().for_each(|transfer| {
            let _ = peer.told(transfer);
        }),
        Message::Swarm(hood) => {
            let neighbours = hood.neighbours.iter().map(|(client, _)| *client);
            let _ = peer.check_end(neighbours, true);
            if peer.swarm(hood.neighbours, 1).is_ok() {
                let exchange = peer.exchange().expect("it has begun");
                let asked = exchange.ask(100);
                assert!(
                    asked.len() <= 2 * 2,
                    "it has two of six chunks, and asks for each once"
                );
            }
        }
        Message::Chunk { chunk, bytes } => {
            if peer.received(1, chunk, &bytes) == Ok(true) {
                let digest = Digest::of(&bytes);
                assert!(all.iter().any(|one| one.chunks.contains(&digest)));
            }
        }
        Message::Want(chunks) | Message::Has(chunks) => {
            peer.swarm([(1, nothing())], 1).expect("lists that fit");
            let exchange = peer.exchange().expect("it has begun");
            for chunk in chunks {
                let _ = exchange.asked(1, chunk);
                let _ = exchange.has(1, chunk);
            }
            while let Some((to, chunk)) = exchange.serve(|_| true) {
                assert!(to == 1 && exchange.held().contains(chunk));
            }
        }
        Message::Open(_)
        | Message::Begin(_)
        | Message::Go { .. }
        | Message::Report { .. }
        | Message::End
        | Message::Relay { .. }
        | Message::Sealed(_) => {}
    }
    assert!(peer.rebuilt().iter().all(|(update, _)| *update == 0));
}

karman_fuzz::target!(check);
