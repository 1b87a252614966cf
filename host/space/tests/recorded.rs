//! A recorded constellation: 250 Starlink satellites and 85 cities, from the authors of Stardust (Apache-2.0).
//!
//! The data are no part of the repository. They are looked for in the folder that `KARMAN_DATA` names, else in
//! `shared/data` beside the checkout.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_space::{
    Bundle, ContactPlan, Crosslink, Geodetic, GroundLink, Rate, Satellite, Span, Station, Track,
    earliest_arrival, read_elements,
};
use karman_types::NodeId;
use std::path::PathBuf;
use std::time::Duration;

const MASK_DEG: f64 = 25.0;

fn recorded(name: &str) -> Option<String> {
    let folder = std::env::var_os("KARMAN_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join("stardust").join(name);
    let text = std::fs::read_to_string(&path);
    if let Err(error) = &text {
        eprintln!(
            "SKIPPED: {}: {error}; name the folder of recorded data in KARMAN_DATA",
            path.display()
        );
    }
    text.ok()
}

/// `- Name: Graz`, `Lat: 47.0707`, `Lon: 15.4409` and more, for each city.
fn stations(text: &str) -> Vec<(String, Station)> {
    let field = |block: &str, key: &str| {
        let value = block
            .lines()
            .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        value.unwrap().trim().to_owned()
    };
    let city = |block: &str| {
        let degrees = |key| field(block, key).parse::<f64>().unwrap();
        let name = field(block, "Name");
        let place = Geodetic::new(degrees("Lat"), degrees("Lon"), 0.0).unwrap();
        let node = NodeId::of_key(name.as_bytes());
        (
            name,
            Station {
                node,
                place,
                mask_deg: MASK_DEG,
            },
        )
    };
    text.split("- Name")
        .skip(1)
        .map(|block| city(&format!("Name{block}")))
        .collect()
}

fn newest(satellites: &[Satellite]) -> karman_space::Time {
    satellites.iter().map(Satellite::epoch).max().unwrap()
}

#[test]
fn starlink_flies_at_550_km() {
    let Some(text) = recorded("starlink_250.tle") else {
        return;
    };
    let satellites = read_elements(&text).unwrap();
    assert_eq!(satellites.len(), 250);
    assert_eq!(satellites[0].name(), "STARLINK-1008");
    let from = newest(&satellites);
    let mut heights: Vec<f64> = Vec::new();
    for satellite in &satellites {
        for minute in (0..1440).step_by(7) {
            let at = from + Duration::from_secs(60 * minute);
            heights.push(satellite.position(at).unwrap().geodetic().height_km());
        }
    }
    heights.sort_by(f64::total_cmp);
    let [least, median, most] = [0, heights.len() / 2, heights.len() - 1].map(|i| heights[i]);
    println!("height over a day: {least:.0} to {most:.0} km, median {median:.0} km");
    assert!((540.0..560.0).contains(&median), "{median} km");
    assert!(least > 200.0 && most < 600.0, "{least} to {most} km");
}

#[test]
fn passes_are_as_long_as_geometry_allows_and_carry_data_across_the_sea() {
    let (Some(text), Some(cities)) = (recorded("starlink_250.tle"), recorded("ground_stations.yml")) else {
        return;
    };
    let satellites: Vec<_> = read_elements(&text).unwrap().into_iter().step_by(5).collect();
    let cities = stations(&cities);
    assert!(cities.len() > 80, "{}", cities.len());
    let from = newest(&satellites);
    let span = Span::new(from, from + Duration::from_secs(2 * 3600), Span::STEP).unwrap();
    let tracks: Vec<_> = satellites
        .iter()
        .map(|satellite| Track::new(NodeId::of_key(satellite.name().as_bytes()), satellite, span).unwrap())
        .collect();

    let link = GroundLink {
        up: Rate(20_000_000),
        down: Rate(100_000_000),
    };
    let mut contacts = Vec::new();
    for (satellite, track) in satellites.iter().zip(&tracks) {
        for (city, station) in &cities {
            for contact in track.ground_contacts(station, link).unwrap() {
                // 25 degrees at 560 km is 8.6 degrees of the Earth's arc to each side, at 3.6 degrees a minute.
                let length = contact.end.since(contact.start).as_secs_f64();
                assert!(length < 300.0, "{city}, {}: {length} s", satellite.name());
                // 25 degrees at 360 to 560 km is 800 to 1,150 km.
                assert!(
                    contact.delay < Duration::from_micros(3_900),
                    "{city}: {:?}",
                    contact.delay
                );
                for edge in [contact.start, contact.end] {
                    let elevation = station.place.elevation_deg(satellite.position(edge).unwrap());
                    assert!(elevation >= MASK_DEG, "{city}, {}: {elevation}", satellite.name());
                    let cut = edge == from || edge == from + Duration::from_secs(2 * 3600);
                    assert!(
                        cut || elevation < MASK_DEG + 0.1,
                        "{city}, {}: {elevation}",
                        satellite.name()
                    );
                }
                contacts.push(contact);
            }
        }
    }
    let ground = contacts.len();
    let laser = Crosslink {
        rate: Rate(1_000_000_000),
        grazing_km: 80.0,
        max_range_km: 5_000.0,
    };
    for (index, track) in tracks.iter().enumerate() {
        for other in &tracks[..index] {
            contacts.extend(track.crosslink_contacts(other, laser).unwrap());
        }
    }
    let crosslinks = contacts.len() - ground;

    let node = |name: &str| cities.iter().find(|(city, _)| city == name).unwrap().1.node;
    let bundle = Bundle {
        source: node("Graz"),
        destination: node("Tokyo"),
        bytes: 10_000_000,
        sent: from,
        expires: from + Duration::from_secs(2 * 3600),
        split: false,
    };
    let all = ContactPlan::new(contacts.clone()).unwrap();
    let carried = ContactPlan::new(contacts.into_iter().take(ground).collect()).unwrap();
    let with_lasers = earliest_arrival(&all, &bundle).unwrap();
    let without = earliest_arrival(&carried, &bundle).unwrap();
    println!(
        "{ground} contacts with the ground, {crosslinks} between satellites; 10 MB from Graz to Tokyo in {:?} ({} hops), \
         without lasers in {:?} ({} hops)",
        with_lasers.arrival.since(from),
        with_lasers.hops.len(),
        without.arrival.since(from),
        without.hops.len()
    );
    assert!(with_lasers.arrival <= without.arrival);
}
