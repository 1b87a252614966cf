//! Adds up the water that was found in the tiles of a picture, and sounds the siren where it is too much.
//!
//! The siren is another task, `siren`, wherever in the mesh it is. One that does not answer is told in the alert, and holds back
//! nothing: the words for people are here already.

#[path = "../../answer.rs"]
mod answer;

use answer::invalid;
use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::invoke;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

wit_bindgen::generate!({ path: "wit", generate_all });

/// Square kilometres of water that wake people up, where the workflow names none in the metadata.
const ALARM_KM2: f32 = 1.0;

/// What the tasks before it gave.
#[derive(Deserialize)]
struct Found {
    screen: Screened,
    segment: Vec<Segmented>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Screened {
    captured_ms: u64,
    pixel_area: f32,
    places: Vec<[usize; 2]>,
    cloudy: usize,
    dry: usize,
    seen_km2: f32,
}

/// Water in a tile: one of one, one channel, rows, columns.
#[derive(Deserialize)]
struct Segmented {
    water: [[Vec<Vec<u8>>; 1]; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Alert {
    captured_ms: u64,
    /// When this was known here, in milliseconds since 1970.
    known_ms: u64,
    flooded_km2: f32,
    /// What the small model on board had seen.
    seen_km2: f32,
    alarm: bool,
    /// What the siren answered, or why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    siren: Option<Value>,
    cloudy: usize,
    dry: usize,
    tiles: Vec<Tile>,
}

#[derive(Serialize)]
struct Tile {
    /// Row and column, counted in tiles.
    place: [usize; 2],
    /// A hexadecimal digit for four pixels, row by row.
    water: String,
}

struct FloodAlert;

impl Guest for FloodAlert {
    fn handle(request: Request) -> Result<Response, Error> {
        let told = request.metadata.iter().find(|(key, _)| key == "alarm-km2");
        let alarm_at = match told {
            None => ALARM_KM2,
            Some((_, text)) => (text.parse().ok())
                .filter(|area: &f32| *area >= 0.0)
                .ok_or_else(|| invalid("alarm-km2", format!("`{text}` is no area")))?,
        };
        let found: Found = serde_json::from_slice(&request.body)
            .map_err(|error| invalid("found", format!("what was found does not read: {error}")))?;
        let mut alert = alert(found, alarm_at).map_err(|message| invalid("found", message))?;
        if alert.alarm {
            alert.siren = Some(sound(&alert));
        }
        answer::json(&alert)
    }
}

fn alert(found: Found, alarm_at: f32) -> Result<Alert, String> {
    let (places, count) = (found.screen.places.len(), found.segment.len());
    if places != count {
        return Err(format!("there are {count} tiles at {places} places"));
    }
    let rows = |tile: &Segmented| -> usize {
        let [[rows]] = &tile.water;
        rows.iter().flatten().filter(|pixel| **pixel != 0).count()
    };
    let pixels: usize = found.segment.iter().map(rows).sum();
    let flooded_km2 = pixels as f32 * found.screen.pixel_area / 1e6;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let tiles = found.screen.places.iter().zip(&found.segment);
    Ok(Alert {
        captured_ms: found.screen.captured_ms,
        known_ms: now.as_millis() as u64,
        flooded_km2,
        seen_km2: found.screen.seen_km2,
        alarm: flooded_km2 >= alarm_at,
        siren: None,
        cloudy: found.screen.cloudy,
        dry: found.screen.dry,
        tiles: tiles
            .map(|(place, tile)| Tile {
                place: *place,
                water: hexadecimal(tile),
            })
            .collect(),
    })
}

fn hexadecimal(tile: &Segmented) -> String {
    let [[rows]] = &tile.water;
    let pixels: Vec<u8> = rows.iter().flatten().copied().collect();
    let digit = |four: &[u8]| {
        let bits = four
            .iter()
            .fold(0, |bits, pixel| bits << 1 | u32::from(*pixel != 0));
        char::from_digit(bits << (4 - four.len()), 16).unwrap_or('0')
    };
    pixels.chunks(4).map(digit).collect()
}

/// What the siren answers.
fn sound(alert: &Alert) -> Value {
    let words = format!(
        "Flood: {:.1} square kilometres are under water",
        alert.flooded_km2
    );
    let request = invoke::Request {
        content_type: "text/plain".into(),
        metadata: Vec::new(),
        body: words.into_bytes(),
    };
    match invoke::call("siren", &request) {
        Ok(response) => read(&response.body),
        Err(error) => json!({ "failed": format!("{error:?}") }),
    }
}

/// What the siren said, as it goes into the alert. What does not read says nothing of a siren that was sounded.
fn read(answer: &[u8]) -> Value {
    let told = serde_json::from_slice(answer).ok();
    told.filter(Value::is_object)
        .unwrap_or_else(|| json!({ "failed": "its answer does not read" }))
}

export!(FloodAlert);

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tiles: usize) -> Found {
        let water = json!({ "water": [[[[1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]]] });
        let found = json!({
            "screen": {
                "captured-ms": 5, "pixel-area": 1e5, "places": [[0, 1], [2, 3]], "cloudy": 1, "dry": 4, "seen-km2": 0.9,
                "tiles": "are not looked at",
            },
            "segment": vec![water; tiles],
        });
        serde_json::from_value(found).unwrap()
    }

    #[test]
    fn water_is_added_up_and_too_much_is_an_alarm() {
        let told = alert(found(2), 1.0).unwrap();
        assert!((told.flooded_km2 - 1.0).abs() < 1e-6 && told.alarm);
        assert_eq!((told.tiles[1].place, &told.tiles[1].water[..]), ([2, 3], "b03"));
        assert!(!alert(found(2), 1.5).unwrap().alarm);
    }

    #[test]
    fn an_answer_that_does_not_read_is_a_failure() {
        assert_eq!(read(br#"{ "sounded-ms": 7 }"#), json!({ "sounded-ms": 7 }));
        for answer in [&b"wee-oo"[..], b"null", b"7", b""] {
            assert_eq!(read(answer), json!({ "failed": "its answer does not read" }));
        }
    }

    #[test]
    fn a_tile_without_a_place_is_refused() {
        assert!(alert(found(1), 1.0).err().unwrap().contains("1 tiles at 2"));
    }
}
