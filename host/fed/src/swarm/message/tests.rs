//! What is read, and what is refused by name.

use super::*;
use crate::swarm::chunk::Layout;

fn letter(message: Message) -> Letter {
    Letter {
        round: Digest::of(b"round"),
        message,
    }
}

fn shown(client: usize) -> Shown {
    Shown {
        key: [client as u8; 32].into(),
        membership: Bytes::from_static(b"signed"),
        signature: [client as u8; 64].into(),
    }
}

fn beginning(clients: usize, me: Client) -> Message {
    let layout = Layout { chunk: 4, chunks: 2 };
    let descriptor =
        |client: usize| Descriptor::of(Digest::of(&[client as u8]), 1, &layout.cut(&[1]).unwrap());
    let place = |client: usize| Place {
        node: NodeId::of_key(&[client as u8]),
        mailbox: [client as u8; 32].into(),
    };
    Message::Begin(Beginning {
        me,
        clients: (0..clients).map(place).collect(),
        descriptors: (0..3).map(descriptor).collect(),
        shown: (0..clients).map(shown).collect(),
    })
}

#[test]
fn what_is_written_is_read() {
    let mut held = Inventory::none(70);
    held.insert(69);
    let messages = [
        Message::Open(Opening {
            settings: SwarmSettings::default(),
            numbers: 1 << 20,
        }),
        beginning(3, 2),
        Message::Swarm(Neighbourhood {
            neighbours: vec![(1, held.clone())],
            known: held.clone(),
            covered: true,
        }),
        Message::Go {
            slot_ms: 1_000,
            within_ms: 60_000,
        },
        Message::Chunk {
            chunk: 7,
            bytes: Bytes::from(vec![5; 300]),
        },
        Message::Relay {
            to: 3,
            sealed: Bytes::from_static(b"sealed"),
        },
        Message::Sealed(Bytes::from_static(b"sealed")),
        Message::End,
    ];
    for message in messages {
        let letter = letter(message);
        assert_eq!(Letter::read(&letter.write().unwrap()), Ok(letter));
    }
    let here = Answer::Here {
        descriptor: Descriptor::of(Digest::of(b"one"), 1, &[vec![1; 4]]),
        mailbox: [3; 32].into(),
        link: Link { up: 1, down: 4 },
        shown: shown(3),
    };
    for answer in [here, Answer::Held(held), Answer::NotHere(vec![4]), Answer::Done] {
        assert_eq!(Answer::read(&answer.write().unwrap()), Ok(answer));
    }
}

#[test]
fn what_no_round_can_have_is_refused_by_name() {
    let refused = |message| Letter::read(&letter(message).write().unwrap()).unwrap_err();
    let most = Letter::MOST_CHUNKS;
    let too_many = MessageError::TooMany {
        what: "chunks",
        have: most + 1,
        most,
    };
    assert_eq!(refused(Message::Want(vec![0; most + 1])), too_many);
    // However many there are: none but the first of them are kept.
    assert_eq!(refused(Message::Has(vec![0; 3 * most])), too_many);
    let most = SwarmSettings::MOST_CLIENTS;
    let gone = refused(Message::Report {
        gone: vec![0; 2 * most],
    });
    let too_many = MessageError::TooMany {
        what: "clients that have left",
        have: most + 1,
        most,
    };
    assert_eq!(gone, too_many);
    assert!(matches!(
        refused(beginning(3, 3)),
        MessageError::Clients { me: 3, .. }
    ));
    assert!(matches!(
        refused(beginning(2, 0)),
        MessageError::Clients { clients: 2, .. }
    ));
    let Message::Begin(mut unshown) = beginning(3, 0) else {
        panic!("it begins otherwise")
    };
    unshown.shown.truncate(1);
    let shown = MessageError::Shown { shown: 1, clients: 3 };
    assert_eq!(refused(Message::Begin(unshown)), shown);
    let long = Opening {
        settings: SwarmSettings::default(),
        numbers: u32::MAX,
    };
    assert!(matches!(
        refused(Message::Open(long)),
        MessageError::Chunk(ChunkError::TooLong { .. })
    ));
    assert!(matches!(
        Letter::read(b"\xff"),
        Err(MessageError::Malformed { what: "letter", .. })
    ));
    assert!(matches!(
        Answer::read(b""),
        Err(MessageError::Malformed { what: "answer", .. })
    ));
    let length = Letter::MOST + 1;
    assert_eq!(
        Letter::read(&vec![0; length]),
        Err(MessageError::TooLong { length })
    );
}
