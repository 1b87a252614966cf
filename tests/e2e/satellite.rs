//! A satellite, the ground that owns it, and a station that only the satellite reaches. Contacts come from recorded elements;
//! passes are sped up forty times and the time between them is cut short. The links are real ones, cut and healed.

mod node;

pub(crate) use node::Node;

use crate::internet::{Internet, Place};
use crate::support::{Home, guest, padded, root};
use karman_mesh::membership::UnixTime;
use karman_mesh::{BundleHead, Envelope, Parcel, Standing, open_bundle, wall_clock, write_bundle};
use karman_space::{Time, read_elements};
use karman_store::{Bundle, BundleState, NodeKeys, Store};
use karman_types::{Digest, NodeId, Tier};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

const GROUND: Place = Place::Internet(1);
const SATELLITE: Place = Place::Internet(2);
const STATION: Place = Place::Internet(3);
/// How much faster passes go by than they did.
const FASTER: u32 = 40;
/// What is left of the time between two passes.
const BETWEEN: Duration = Duration::from_secs(3);
/// The time in which the satellite is tampered with.
const TAMPERING: Duration = Duration::from_secs(20);
const UPDATE: usize = 5 << 20;

/// One pass: who, and from when until when, by the recorded elements.
struct Pass {
    with: Place,
    length: Duration,
}

fn recorded(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("KARMAN_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let path = folder.join("stardust").join(name);
    path.exists().then_some(path)
}

/// The passes of a recorded satellite over Graz, three of them, then one over Tokyo, then one over Graz, as the tool computes
/// them.
fn passes(elements: &std::path::Path) -> Vec<Pass> {
    let satellites = read_elements(&std::fs::read_to_string(elements).unwrap()).unwrap();
    let satellite = &satellites[0];
    let home = Home::new();
    let folder = home.path().join("config/karman");
    std::fs::create_dir_all(&folder).unwrap();
    let [above, graz, tokyo] =
        ["above", "graz", "tokyo"].map(|name| NodeId::of_key(name.as_bytes()).to_string());
    let config = format!(
        "[mesh.orbits]\nelements = {elements:?}\nup = \"2 Mbit/s\"\ndown = \"8 Mbit/s\"\n\
         satellites = {{ \"{}\" = \"{above}\" }}\n\
         [[mesh.orbits.stations]]\nnode = \"{graz}\"\nlatitude = 47.0707\nlongitude = 15.4409\nmask = 25\n\
         [[mesh.orbits.stations]]\nnode = \"{tokyo}\"\nlatitude = 35.6895\nlongitude = 139.6917\nmask = 25\n",
        satellite.name()
    );
    std::fs::write(folder.join("node.toml"), config).unwrap();
    let from = satellite.epoch().to_string();
    let printed = home
        .run(["mesh", "contacts", "--from", &from, "--for", "3d", "--json"])
        .ok()
        .out();
    let contacts: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let time = |value: &Value| value.as_str().unwrap().parse::<Time>().unwrap();
    let mut left = contacts.iter().filter(|contact| contact["to"] == above.as_str());
    let mut chosen = Vec::new();
    for (station, with) in [
        (&graz, GROUND),
        (&graz, GROUND),
        (&graz, GROUND),
        (&tokyo, STATION),
        (&graz, GROUND),
    ] {
        let long = Duration::from_secs(120);
        let contact = left
            .find(|contact| {
                contact["from"] == station.as_str()
                    && time(&contact["end"]).since(time(&contact["start"])) > long
            })
            .expect("it passes");
        let length = time(&contact["end"]).since(time(&contact["start"]));
        println!(
            "{} of {} over {station}: {length:.0?}",
            contact["start"],
            satellite.name()
        );
        chosen.push(Pass {
            with,
            length: length / FASTER,
        });
    }
    chosen
}

pub(crate) fn now() -> Time {
    let since = wall_clock();
    Time::from_unix_micros(since.as_micros() as i64)
}

/// Waits for an instant.
pub(crate) fn at(time: Time) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::sleep(time.since(now())).await });
}

#[test]
fn an_update_crosses_three_passes_and_what_waits_on_board_stays_sealed() {
    let Some(elements) = recorded("starlink_250.tle") else {
        eprintln!("SKIPPED: no recorded elements; name the folder of recorded data in KARMAN_DATA");
        return;
    };
    let passes = passes(&elements);
    let internet = Internet::new(&[GROUND, SATELLITE, STATION]).and_then(Internet::with_sky);
    let internet = match internet {
        Ok(internet) => internet,
        Err(why) => {
            eprintln!("SKIPPED: no networks of our own ({why})");
            return;
        }
    };

    // Before the launch all meet.
    let mut ground = Node::start(&internet, GROUND, "cloud", None);
    let invite = |tier: &str| ground.home.run(["mesh", "invite", "--tier", tier]).ok().out();
    let (above, below) = (invite("space"), invite("edge"));
    let mut satellite = Node::start(&internet, SATELLITE, "space", Some(&above));
    let mut station = Node::start(&internet, STATION, "edge", Some(&below));
    for (one, other) in [(&ground, &satellite), (&ground, &station), (&satellite, &station)] {
        one.until("two nodes do not meet", |one| one.has_met(other));
        other.until("two nodes do not meet", |other| other.has_met(one));
    }
    for node in [&mut ground, &mut satellite, &mut station] {
        node.down();
    }
    internet.part(GROUND, STATION);
    internet.part(GROUND, SATELLITE);
    internet.part(SATELLITE, STATION);

    // What two passes carry is not enough, what three carry is, with what is lost when they end.
    let open: f64 = passes[..3].iter().map(|pass| pass.length.as_secs_f64()).sum();
    let kbit = (UPDATE as f64 * 8.0 / 1000.0 / (0.72 * open)) as u64;
    internet.slow(SATELLITE, kbit);
    let mut start = now() + Duration::from_secs(12);
    let mut windows = Vec::new();
    let mut plan = String::new();
    for (number, pass) in passes.iter().enumerate() {
        let end = start + pass.length;
        let with = if pass.with == GROUND {
            ground.id
        } else {
            station.id
        };
        plan.push_str(&format!(
            "[[contact]]\nfrom = \"{with}\"\nto = \"{}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"{kbit} kbit/s\"\n\
             both-ways = true\n",
            satellite.id
        ));
        windows.push((pass.with, start, end));
        start = end + if number == 2 { TAMPERING } else { BETWEEN };
    }
    for node in [&mut ground, &mut satellite, &mut station] {
        std::fs::write(node.home.path().join("contacts.toml"), &plan).unwrap();
        node.up(&internet, &[]);
    }
    let update = padded(&ground.home, UPDATE);
    let update_digest = Digest::of(&std::fs::read(&update).unwrap());
    let forged = Digest::of(&std::fs::read(guest("tally")).unwrap());
    let to_satellite = ground.deploy_later(&update, &satellite, &[]);
    let to_station = ground.deploy_later(&guest("hostile"), &station, &["--priority", "expedited"]);
    assert!(windows[0].1 > now(), "it took too long to come up");

    let pass = |number: usize| {
        let (with, start, end) = windows[number];
        at(start - Duration::from_millis(50));
        internet.join(SATELLITE, with);
        at(end);
        internet.part(SATELLITE, with);
        println!("pass {number} of {:?} with {with} is over", end.since(start));
    };
    for number in 0..3 {
        assert!(!satellite.has_plugin(update_digest), "one pass less was enough");
        pass(number);
    }
    println!(
        "ground:\n{}\nsatellite:\n{}",
        ground.said("a bundle"),
        satellite.said("fetched")
    );
    satellite.until("the update is not there", |node| node.has_plugin(update_digest));
    let leaves = ground.said("a bundle leaves");
    let delays = delays_of(&leaves);
    let of_update = leaves
        .lines()
        .filter(|line| line.contains(&to_satellite[..8]))
        .count();
    println!("the update left in {of_update} contacts; first bytes {delays:?} ms after their starts");
    assert_eq!(of_update, 3, "{leaves}");

    let (found, sealed) = tamper(&internet, &mut satellite, &ground, &station);
    assert_eq!(found, to_station, "the bundle for the station waits on board");
    assert!(
        !sealed.windows(6).any(|window| window == b"hostil"),
        "it can be read on board"
    );
    assert!(windows[3].1 > now(), "the tampering took too long");
    pass(3);
    pass(4);
    for bundle in [&to_satellite, &to_station] {
        assert_eq!(
            ground.bundle(bundle)["state"],
            "delivered",
            "{}",
            ground.home.control("/mesh/bundles")
        );
    }
    station.until("the station has nothing", |node| {
        node.home
            .control("/status")
            .to_string()
            .contains("\"name\":\"hostile\"")
    });
    station.until("what was forged is not refused", |node| {
        node.home
            .control("/mesh/bundles")
            .to_string()
            .matches("refused")
            .count()
            >= 3
    });
    let refused = station.home.control("/mesh/bundles").to_string();
    assert!(refused.contains("has no right `deploy:tally`"), "{refused}");
    assert!(refused.contains("changed on the way"), "{refused}");
    assert!(refused.contains("has been done already"), "{refused}");
    assert!(!station.has_plugin(forged), "what was forged runs");

    println!("satellite:\n{}", satellite.said("a bundle leaves"));
    let on_board = delays_of(&satellite.said("a bundle leaves"));
    // A machine that is busy with something else may be late once.
    let mut delays: Vec<u64> = delays.into_iter().chain(on_board).collect();
    delays.sort_unstable();
    let median = delays[delays.len() / 2];
    assert!(
        median < 1000,
        "bundles left {delays:?} ms after the starts of their contacts"
    );
}

/// How long after the start of its contact each bundle left.
fn delays_of(lines: &str) -> Vec<u64> {
    let delay = |line: &str| line.rsplit_once("since_contact_ms=")?.1.parse().ok();
    lines.lines().filter_map(delay).collect()
}

/// On board somebody looks into what waits, and makes three bundles: one that asks for more than a satellite may, one that is the waiting one
/// with a bit changed, and one that brings the same as the waiting one a second time.
fn tamper(internet: &Internet, satellite: &mut Node, ground: &Node, station: &Node) -> (String, Vec<u8>) {
    satellite.down();
    let store = Store::open(satellite.home.path().join("state")).unwrap();
    let waiting = store.bundles().list().unwrap();
    let waiting = waiting
        .iter()
        .find(|bundle| bundle.state == BundleState::Waiting && bundle.destination == station.id)
        .unwrap();
    let bytes = store.blobs().read(&waiting.digest).unwrap();
    let (head, sealed) = open_bundle(&bytes).unwrap();
    let standing = Standing::open(store.clone(), Tier::Space, None, None).unwrap();
    let unread = Envelope::open(&sealed, &standing).unwrap_err();
    assert!(unread.message.contains("not sealed to this node"), "{unread:?}");

    let component = std::fs::read(guest("tally")).unwrap();
    let envelope = Envelope {
        to: station.id,
        not_after: UnixTime::from_seconds(head.expires_ms() / 1000),
        chain: Vec::new(),
        parcel: Parcel::Deploy {
            name: "tally".into(),
            downgrade: false,
        },
        content: Digest::of(&component),
    };
    let key = NodeKeys::open(station.home.path().join("state"))
        .unwrap()
        .node()
        .public();
    let forged = envelope.seal(&key, &component, &standing).unwrap();
    let mut changed = sealed.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    for payload in [forged, changed, sealed.to_vec()] {
        // They go after what waits.
        let head = BundleHead {
            source: ground.id,
            priority: 0,
            ..head.clone()
        };
        let bytes = write_bundle(&head, &payload).unwrap();
        let bundle = Bundle {
            digest: Digest::of(&bytes),
            size: bytes.len() as u64,
            priority: head.priority,
            ..waiting.clone()
        };
        assert!(store.bundles().keep(&bundle, &bytes).unwrap());
    }
    let found = (waiting.digest.to_string(), sealed.to_vec());
    drop((standing, store));
    satellite.up(internet, &[]);
    found
}
