//! The screen that ships, over drives of a fleet.

use super::registered::Screening;
use crate::plugins::{Tool, engine};
use anyhow::{Context, Result};
use karman_study::interval::bootstrap;
use karman_study::report::{Report, Target};
use pothole_learn::fleet::{Drive, Habits};
use pothole_learn::road::{Kind, RATE_HZ};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::ops::Range;

const CLASSES: [&str; 2] = ["a", "b"];
const KINDS: [Kind; 3] = [Kind::Pothole, Kind::Manhole, Kind::Bump];
/// Seconds that an event may begin behind a thing, and end before it.
const AROUND_S: (f64, f64) = (1.0, 0.1);
/// Seconds driven on behind the last thing.
const AFTER_S: f64 = 5.0;

/// What the plugin answers, as far as it matters here.
#[derive(Deserialize)]
struct Answer {
    events: Vec<Event>,
    samples: u64,
    samples_to_send: u64,
}

#[derive(Deserialize)]
struct Event {
    start_s: f64,
    end_s: f64,
}

/// What was found and sent on the roads of one class, in one fleet.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Screened {
    /// Of each of [`KINDS`]: found, and how many there were.
    things: [(u64, u64); 3],
    samples: u64,
    sent: u64,
}

pub(super) fn cells() -> Vec<String> {
    let mut cells = Vec::new();
    for class in CLASSES {
        cells.extend(KINDS.map(|kind| format!("screen_recall.{}.{class}", kind.name())));
        cells.push(format!("screen_bytes_saved.{class}"));
    }
    cells
}

pub(super) fn study(report: &mut Report, setting: &Screening, seeds: Range<u64>) -> Result<()> {
    let screen = Tool::load(&engine()?, "event-screen")?;
    let screen = screen.context("event-screen is not built: run `cargo xtask guests event-screen`")?;
    let fleets: Vec<[Screened; 2]> = seeds
        .map(|seed| fleet(&screen, setting, seed))
        .collect::<Result<_>>()?;
    for (at, class) in CLASSES.into_iter().enumerate() {
        // On class B shallow ones may drown in the road.
        let target = |bound: f64| match class {
            "a" => Target::AtLeast(bound),
            _ => Target::Shown,
        };
        for (place, kind) in KINDS.into_iter().enumerate() {
            let found = bootstrap(&fleets, |fleets| {
                let of = |fleet: &[Screened; 2]| fleet[at].things[place];
                let found: u64 = fleets.iter().map(|fleet| of(fleet).0).sum();
                found as f64 / fleets.iter().map(|fleet| of(fleet).1).sum::<u64>().max(1) as f64
            });
            let key = format!("screen_recall.{}.{class}", kind.name());
            let target = match kind {
                Kind::Pothole => target(0.98),
                _ => Target::Shown,
            };
            report.estimate(&key, found, "share", target);
        }
        let saved = bootstrap(&fleets, |fleets| {
            let sent: u64 = fleets.iter().map(|fleet| fleet[at].sent).sum();
            let samples: u64 = fleets.iter().map(|fleet| fleet[at].samples).sum();
            1.0 - sent as f64 / samples.max(1) as f64
        });
        report.estimate(
            &format!("screen_bytes_saved.{class}"),
            saved,
            "share",
            target(0.95),
        );
    }
    report.keep_raw("screened", &fleets);
    Ok(())
}

/// By class of road.
fn fleet(screen: &Tool, setting: &Screening, seed: u64) -> Result<[Screened; 2]> {
    let mut classes = [Screened::default(); 2];
    for vehicle in 0..setting.vehicles {
        let habits = Habits::of(seed, vehicle);
        let screened = &mut classes[usize::from(!habits.is_on_class_a())];
        let road = habits.road(Drive::Long, setting.every_s, setting.seconds);
        let things = road.things().to_vec();
        let mut csv = String::from("time_s,acceleration_m_s2,speed_km_h\n");
        for point in road.take(((setting.seconds + AFTER_S) * RATE_HZ) as usize) {
            let (time_s, speed) = (point.time_s, point.speed_km_h);
            writeln!(csv, "{time_s:.2},{:.3},{speed:.1}", point.acceleration_m_s2)?;
        }
        let answer: Answer = serde_json::from_slice(&screen.answer(csv.into_bytes())?)?;
        screened.samples += answer.samples;
        screened.sent += answer.samples_to_send;
        for thing in things {
            let Some(place) = KINDS.iter().position(|kind| *kind == thing.kind) else {
                continue;
            };
            let is_it = |event: &Event| {
                event.start_s <= thing.at_s + AROUND_S.0 && event.end_s >= thing.at_s - AROUND_S.1
            };
            let (found, there) = &mut screened.things[place];
            *found += u64::from(answer.events.iter().any(is_it));
            *there += 1;
        }
    }
    Ok(classes)
}
