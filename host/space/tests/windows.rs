//! Contact windows of an orbit met everywhere, looked at from all sides.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_space::{
    Crosslink, Geodetic, GroundLink, PositionError, Rate, Satellite, Span, Station, Time, Track, WindowError,
    read_elements,
};
use karman_types::NodeId;
use std::time::Duration;

/// The International Space Station of 20 September 2008, an example met everywhere (Wikipedia, "Two-line element
/// set").
const ISS: &str = "ISS (ZARYA)
1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927
2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537
";

const DAY: Duration = Duration::from_secs(86_400);

const GRAZ: (f64, f64, f64) = (47.0707, 15.4409, 0.35);

/// To which the edge of a window is found.
const EDGE: Duration = Duration::from_millis(100);

fn node(n: u8) -> NodeId {
    NodeId::of_key(&[n])
}

fn graz(mask_deg: f64) -> Station {
    let place = Geodetic::new(GRAZ.0, GRAZ.1, GRAZ.2).unwrap();
    Station {
        node: node(1),
        place,
        mask_deg,
    }
}

/// The line with the checksum that it should have: the sum of its digits, where `-` counts as 1.
fn checked(line: &str) -> String {
    let digits = line[..68]
        .chars()
        .map(|c| if c == '-' { 1 } else { c.to_digit(10).unwrap_or(0) });
    format!("{}{}", &line[..68], digits.sum::<u32>() % 10)
}

/// The day after the epoch.
fn day(satellite: &Satellite) -> Span {
    let from = satellite.epoch();
    Span::new(from, from + DAY, Span::STEP).unwrap()
}

const DOWN: GroundLink = GroundLink {
    up: Rate(0),
    down: Rate(1_000_000),
};

/// Looking each second finds the same passes.
#[test]
fn a_satellite_is_above_the_mask_within_contacts_only() {
    let iss = &read_elements(ISS).unwrap()[0];
    let station = graz(10.0);
    let track = Track::new(node(0), iss, day(iss)).unwrap();
    let contacts = track.ground_contacts(&station, DOWN).unwrap();
    // 47° N sees an orbit inclined by 52° on four to seven of its sixteen rounds, for up to seven minutes.
    assert!((4..=7).contains(&contacts.len()), "{}", contacts.len());
    let elevation = |at| station.place.elevation_deg(iss.position(at).unwrap());
    for second in 0..86_400 {
        let at = iss.epoch() + Duration::from_secs(second);
        let near = |edge: Time| edge.since(at).max(at.since(edge)) <= EDGE;
        let planned = contacts.iter().any(|c| c.is_open(at));
        let is_edge = contacts.iter().any(|c| near(c.start) || near(c.end));
        assert!(
            planned == (elevation(at) >= 10.0) || is_edge,
            "{at}: {planned}, {} deg",
            elevation(at)
        );
    }
    for contact in contacts {
        assert_eq!((contact.from, contact.to), (node(0), node(1)));
        let length = contact.end.since(contact.start).as_secs();
        assert!((10..450).contains(&length), "{contact}: {length} s");
        for edge in [contact.start, contact.end] {
            assert!(
                (10.0..10.1).contains(&elevation(edge)),
                "{contact}: {} deg",
                elevation(edge)
            );
            let range_km = station.place.ecef().range_km(iss.position(edge).unwrap());
            assert!(
                contact.delay.as_secs_f64() >= range_km / 299_792.458,
                "{contact}: {range_km} km"
            );
        }
        // 10 degrees above the horizon, 340 to 370 km high: about 1200 km away.
        assert!(
            (3_700..4_500).contains(&contact.delay.as_micros()),
            "{contact}: {:?}",
            contact.delay
        );
    }
}

#[test]
fn a_window_that_is_open_at_the_ends_of_the_span_stops_there() {
    let iss = &read_elements(ISS).unwrap()[0];
    let track = Track::new(node(0), iss, day(iss)).unwrap();
    let link = GroundLink {
        up: Rate(1_000),
        down: Rate(1_000_000),
    };
    let all = track.ground_contacts(&graz(-90.0), link).unwrap();
    assert_eq!(all.len(), 2);
    for (contact, rate) in all.iter().zip([Rate(1_000), Rate(1_000_000)]) {
        assert_eq!(
            (contact.start, contact.end, contact.rate),
            (iss.epoch(), iss.epoch() + DAY, rate)
        );
    }
    assert!(track.ground_contacts(&graz(90.0), link).unwrap().is_empty());
}

/// A satellite that flies the same orbit some degrees behind is seen all the time, one on the other side never.
#[test]
fn satellites_see_each_other_unless_the_earth_is_between() {
    let behind = |degrees: f64| {
        let mut lines = ISS.lines();
        let [name, line1, line2] = [(); 3].map(|()| lines.next().unwrap());
        let anomaly = format!("{:8.4}", (325.0288 - degrees).rem_euclid(360.0));
        Satellite::from_lines(name, line1, &checked(&line2.replace("325.0288", &anomaly))).unwrap()
    };
    let iss = &read_elements(ISS).unwrap()[0];
    let track = Track::new(node(0), iss, day(iss)).unwrap();
    let link = Crosslink {
        rate: Rate(1_000_000_000),
        grazing_km: 80.0,
        max_range_km: 5_000.0,
    };
    let windows = |degrees, link| {
        let other = behind(degrees);
        let other = Track::new(node(1), &other, day(iss)).unwrap();
        track.crosslink_contacts(&other, link).unwrap()
    };
    let near = windows(20.0, link);
    assert_eq!(near.len(), 2, "both directions of one contact");
    assert_eq!((near[0].start, near[0].end), (iss.epoch(), iss.epoch() + DAY));
    // The chord of 20 degrees at 6,720 km is 2,340 km; the orbit is not quite a circle.
    assert!(
        (7_700..8_000).contains(&near[0].delay.as_micros()),
        "{:?}",
        near[0].delay
    );
    assert!(windows(180.0, link).is_empty());
    assert!(
        windows(
            20.0,
            Crosslink {
                max_range_km: 2_000.0,
                ..link
            }
        )
        .is_empty()
    );
}

#[test]
fn what_cannot_be_searched_is_named() {
    let iss = &read_elements(ISS).unwrap()[0];
    let (from, step) = (iss.epoch(), Span::STEP);
    let span = |until, step| Span::new(from, until, step).map(|_| ()).unwrap_err();
    assert_eq!(span(from, step), WindowError::Empty { from, until: from });
    let error = span(from + Duration::from_secs(1), Duration::ZERO).to_string();
    assert_eq!(error, "the step is 0ns, but at least 100ms is needed: take 10s");
    let error = span(from + Duration::from_secs(10_000_001), step);
    assert_eq!(error, WindowError::TooMany { samples: 1_000_001 });

    let track = Track::new(node(0), iss, day(iss)).unwrap();
    let error = track.ground_contacts(&graz(f64::NAN), DOWN).unwrap_err();
    assert!(
        matches!(
            error,
            WindowError::Number {
                field: "the mask in degrees",
                ..
            }
        ),
        "{error}"
    );
    let short = Span::new(from, from + Duration::from_secs(60), step).unwrap();
    let short = Track::new(node(1), iss, short).unwrap();
    let link = Crosslink {
        rate: Rate(1),
        grazing_km: 80.0,
        max_range_km: 5_000.0,
    };
    assert_eq!(track.crosslink_contacts(&short, link), Err(WindowError::Spans));

    let late = Span::new(
        from,
        from + 2 * Satellite::MAX_AGE,
        3_600 * Duration::from_secs(1),
    )
    .unwrap();
    assert!(matches!(
        Track::new(node(0), iss, late),
        Err(PositionError::Stale { .. })
    ));
}
