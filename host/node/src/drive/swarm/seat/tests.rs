//! What a client takes from whom, without a network.

mod leaving;

use super::*;
use crate::drive::swarm::errands::What;
use bytes::Bytes;
use karman_fed::swarm::{
    Cover, Descriptor, Gate, Inventory, Layout, Neighbourhood, Place, Shown, SwarmSettings,
};
use karman_mesh::Mailbox;
use karman_types::ErrorKind;
use tempfile::TempDir;

const LAYOUT: Layout = Layout { chunk: 4, chunks: 2 };

fn node(client: u8) -> NodeId {
    NodeId::of_key(&[client; 32])
}

/// With the round and the mailbox in place of a signature of them.
fn shown(client: u8, round: Digest, mailbox: &[u8; 32]) -> Shown {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(round.as_bytes());
    signature[32..].copy_from_slice(mailbox);
    Shown {
        key: [client; 32].into(),
        membership: Bytes::from_static(b"member"),
        signature: signature.into(),
    }
}

/// A mesh of which everybody is a member that shows anything, as node 0 sees it.
struct Village;

impl Members for Village {
    fn me(&self) -> NodeId {
        node(0)
    }

    fn shows(&self, round: Digest, mailbox: &Mailbox) -> Result<Shown, TaskError> {
        Ok(shown(0, round, mailbox.address()))
    }

    fn who(&self, it: &Shown, round: Digest, mailbox: &[u8; 32]) -> Result<NodeId, TaskError> {
        let signed = it.signature == shown(0, round, mailbox).signature;
        match signed && !it.membership.is_empty() {
            true => Ok(NodeId::of_key(&*it.key)),
            false => Err(TaskError::denied("it is no member with this mailbox").with_field("clients")),
        }
    }
}

fn entry(update: Vec<f32>, protection: f64) -> SwarmEntry {
    SwarmEntry {
        name: "flood".into(),
        lead: node(9),
        update,
        weight: 1,
        rule: None,
        link: Link { up: 1, down: 1 },
        patience: Duration::ZERO,
        neglect: Duration::from_millis(100),
        protection,
        disk: 16,
    }
}

/// A client that has begun a round with another one, the chunks of the other, and the number of the first of them.
fn begun(folder: &TempDir) -> (Seat, Digest, Vec<Vec<u8>>, Chunk) {
    begun_with(folder, 0.0, Cover::OfSwarm(0.1))
}

/// The same, in a round with this cover and this least protection.
fn begun_with(folder: &TempDir, protection: f64, cover: Cover) -> (Seat, Digest, Vec<Vec<u8>>, Chunk) {
    let entry = entry(vec![0.5; 2], protection);
    let seat = Seat::new(entry, folder.path(), oneshot::channel().0).unwrap();
    let round = Digest::of(b"round");
    let settings = SwarmSettings {
        layout: LAYOUT,
        cover,
        ..SwarmSettings::default()
    };
    let opening = Opening { settings, numbers: 2 };
    let opened = seat.open(round, opening, &Village).unwrap();
    let Answer::Here {
        descriptor: own,
        mailbox,
        ..
    } = opened
    else {
        panic!("it takes no part")
    };
    let chunks = LAYOUT.cut(&[7; 8]).unwrap();
    let other = Descriptor::of(Digest::of(b"other"), 1, &chunks);
    let place = |client: u8| Place {
        node: node(client),
        mailbox,
    };
    let shown = |client: u8| shown(client, round, &mailbox);
    let mut descriptors = vec![own, other.clone()];
    descriptors.sort_by_cached_key(Descriptor::digest);
    let first = descriptors.iter().position(|one| *one == other).unwrap() as Chunk * LAYOUT.chunks;
    let beginning = Beginning {
        me: 0,
        clients: vec![place(0), place(1)],
        descriptors: descriptors.clone(),
        shown: vec![shown(0), shown(1)],
    };
    let more = Beginning {
        clients: vec![place(0), place(1), place(2)],
        descriptors: [&descriptors[..], &descriptors[..1]].concat(),
        shown: (0..3).map(shown).collect(),
        ..beginning.clone()
    };
    let full = seat.begin(round, more, &Village).unwrap_err();
    assert_eq!(full.kind, ErrorKind::Limit, "{full}");
    let led = Beginning {
        clients: vec![place(0), place(9)],
        ..beginning.clone()
    };
    let stranger = Beginning {
        shown: vec![
            shown(0),
            Shown {
                membership: Bytes::new(),
                ..shown(1)
            },
        ],
        ..beginning.clone()
    };
    let another = Beginning {
        shown: vec![shown(0), shown(2)],
        ..beginning.clone()
    };
    let moved = Beginning {
        clients: vec![
            place(0),
            Place {
                mailbox: [3; 32].into(),
                ..place(1)
            },
        ],
        ..beginning.clone()
    };
    for wrong in [led, stranger, another, moved] {
        let denied = seat.begin(round, wrong, &Village).unwrap_err();
        assert_eq!(denied.kind, ErrorKind::Denied, "{denied}");
        assert_eq!(denied.field.as_deref(), Some("clients"));
    }
    seat.begin(round, beginning, &Village).unwrap();
    (seat, round, chunks, first)
}

#[test]
fn only_what_is_right_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, chunks, first) = begun(&folder);
    let shelf = seat.playing(round, |playing| Ok(playing.shelf())).unwrap();
    for wrong in [&b"evil"[..], b"", b"longer"] {
        let error = seat.keep(round, 1, first, wrong).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    assert_ne!(
        shelf.get(first).ok().as_deref(),
        Some(&b"evil"[..]),
        "it was written"
    );
    assert_eq!(seat.held(), LAYOUT.chunks);
    assert!(
        seat.keep(round, 1, 2 * LAYOUT.chunks, &chunks[0]).is_err(),
        "there is no such chunk"
    );
    for _ in 0..2 {
        seat.keep(round, 1, first, &chunks[0]).unwrap();
        assert_eq!(shelf.get(first).unwrap(), chunks[0]);
        assert_eq!(seat.held(), LAYOUT.chunks + 1);
    }
    // Sealed, it is the same.
    let (_, mailbox) = seat.playing(round, |playing| Ok(playing.mailbox())).unwrap();
    let seal = |plain: &[u8]| Mailbox::seal(mailbox.address(), round.as_bytes(), plain).unwrap();
    let plain = [&(first + 1).to_le_bytes()[..], &chunks[1]].concat();
    for wrong in [seal(&plain[..3]), seal(&plain[..7]), plain.clone()] {
        assert!(seat.unseal(round, &wrong).is_err(), "{wrong:?}");
    }
    seat.unseal(round, &seal(&plain)).unwrap();
    assert_eq!(seat.held(), LAYOUT.chunks + 2);
}

#[test]
fn who_does_not_lead_says_little_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, own) = exchanging(&folder);
    let led = seat.longest(node(9));
    assert!(
        (seat.longest(node(1))..Letter::MOST / 100).contains(&led),
        "{led} is much among two"
    );
    let message = Message::Has(vec![Chunk::MAX; Letter::MOST_CHUNKS]);
    let list = Letter { round, message }.write().unwrap().len();
    let longest = seat.longest(node(1));
    assert!((list..2 * list).contains(&longest), "{list} {longest}");
    let want = |count| seat.playing(round, |playing| playing.wanted(node(1), &vec![own[0]; count]));
    assert_eq!(want(4), Ok(Answer::Done));
    assert_eq!(want(100_000).unwrap_err().kind, ErrorKind::Limit);
}

/// A client in the exchange with the other one, which has nothing yet.
fn exchanging(folder: &TempDir) -> (Seat, Digest, Vec<Chunk>) {
    let (seat, round, _, first) = begun(folder);
    let hood = Neighbourhood {
        neighbours: vec![(1, Inventory::none(2 * LAYOUT.chunks))],
        known: Inventory::none(2 * LAYOUT.chunks),
        covered: true,
    };
    seat.playing(round, |playing| playing.swarm(hood)).unwrap();
    let own = LAYOUT.chunks - first;
    (seat, round, (own..own + LAYOUT.chunks).collect())
}

#[test]
fn who_is_busy_is_told_later_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, own) = exchanging(&folder);
    let step = |busy: &[Client]| {
        let busy = busy.iter().copied().collect();
        let link = Link { up: 1, down: 1 };
        seat.playing(round, |playing| playing.step(link, &busy)).unwrap()
    };
    let asked = seat.playing(round, |playing| playing.wanted(node(1), &own[..1]));
    assert_eq!(asked, Ok(Answer::Done));
    for _ in 0..3 {
        assert_eq!(step(&[1]), []);
    }
    let to = |what| Errand { to: 1, what };
    let told = to(What::Has(own.clone()));
    assert_eq!(step(&[]), [told.clone(), to(What::Chunk(own[0]))]);
    assert_eq!(step(&[]), []);
    // What did not arrive is told again.
    let missed = |has: &[Chunk]| {
        let missed = seat.playing(round, |playing| {
            playing.missed(1, has.to_vec());
            Ok(playing.has_left(1))
        });
        missed.unwrap()
    };
    assert!(!missed(&own));
    assert_eq!(step(&[]), [told]);
}

#[test]
fn a_client_that_misses_some_letters_of_a_slot_has_not_left() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, _) = exchanging(&folder);
    let misses = || {
        let missed = seat.playing(round, |playing| {
            playing.step(Link { up: 1, down: 1 }, &BTreeSet::new())?;
            // However many letters were under way when its link broke.
            (0..9).for_each(|_| playing.missed(1, Vec::new()));
            Ok(playing.has_left(1))
        });
        missed.unwrap()
    };
    assert!(!misses() && !misses());
    seat.playing(round, |playing| {
        playing.answered(1);
        Ok(())
    })
    .unwrap();
    assert!(!misses() && !misses(), "it has answered meanwhile");
    assert!(misses());
}

#[test]
fn a_round_that_does_not_hide_what_is_ones_own_is_not_entered() {
    let folder = tempfile::tempdir().unwrap();
    let seat = Seat::new(entry(vec![0.5; 20], 0.2), folder.path(), oneshot::channel().0).unwrap();
    let good = SwarmSettings {
        layout: Layout { chunk: 8, chunks: 10 },
        cover: Cover::OfUpdate(0.3),
        ..SwarmSettings::default()
    };
    let refused = |change: fn(&mut SwarmSettings)| {
        let mut settings = good;
        change(&mut settings);
        let opening = Opening {
            settings,
            numbers: 20,
        };
        let error = seat.open(Digest::of(b"round"), opening, &Village).unwrap_err();
        (error.kind, error.field)
    };
    let denied = (ErrorKind::Denied, Some("settings.gate".to_owned()));
    assert_eq!(refused(|settings| settings.gate = Gate::Open), denied);
    assert_eq!(refused(|settings| settings.gate = Gate::Throttled), denied);
    assert_eq!(refused(|settings| settings.cover = Cover::OfUpdate(0.2)), denied);
    assert_eq!(refused(|settings| settings.on_offer = 9), denied);
    let invalid = (ErrorKind::Invalid, Some("settings".to_owned()));
    assert_eq!(refused(|settings| settings.spray = f64::NAN), invalid);
    assert_eq!(refused(|settings| settings.lags = 0), invalid);
    let opening = Opening {
        settings: good,
        numbers: 20,
    };
    assert!(seat.open(Digest::of(b"round"), opening, &Village).is_ok());
}

#[test]
fn nothing_is_passed_on_to_oneself_or_from_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let (seat, round, ..) = begun(&folder);
    let relay = |from, to| seat.playing(round, |playing| playing.relay(from, to, b"sealed"));
    assert_eq!(relay(node(1), 1), Ok(node(1)));
    assert_eq!(relay(node(1), 0).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(relay(node(1), 2).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(relay(node(5), 1).unwrap_err().kind, ErrorKind::Denied);
}

#[test]
fn a_round_opens_once_however_often_it_is_asked_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout {
        chunk: 4096,
        chunks: 4,
    };
    let opening = Opening {
        settings: SwarmSettings {
            layout,
            ..SwarmSettings::default()
        },
        numbers: 4096,
    };
    let seat = Seat::new(entry(vec![0.5; 4096], 0.0), folder.path(), oneshot::channel().0).unwrap();
    let open = |round: &[u8]| seat.open(Digest::of(round), opening, &Village).unwrap();
    let answers: Vec<Answer> = std::thread::scope(|threads| {
        let asked: Vec<_> = (0..8).map(|_| threads.spawn(|| open(b"one"))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let first = &answers[0];
    assert!(answers.iter().all(|answer| answer == first), "two pseudonyms");
    // Another round takes its place; what was said of the first one is forgotten.
    assert_ne!(&open(b"two"), first);
    assert_ne!(&open(b"one"), first);
}
