//! Stands for the camera of a satellite: an order to take a picture goes in, three bands of pixels come out.
//!
//! The picture is made by [`flood_scene`] from real terrain. With the metadata `truth` the answer has besides what is really there,
//! which no satellite knows: it is for those who train models, and for those who judge what was found.

#[path = "../../answer.rs"]
mod answer;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exports::karman::task::handler::{Error, Guest, Request, Response};
use flood_scene::{PIXEL_AREA, SIDE, Shot, take};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

wit_bindgen::generate!({ path: "wit", generate_all });

/// What to take a picture of: see [`Shot`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, remote = "Shot")]
struct Order {
    column: usize,
    row: usize,
    level: f32,
    clouds: f32,
    seed: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Picture {
    /// Milliseconds since 1970.
    captured_ms: u64,
    /// Pixels from side to side.
    side: usize,
    /// Square metres of a pixel.
    pixel_area: f32,
    /// Green, red and near infrared one after the other, a byte for a pixel, in base64.
    bands: String,
    /// For each pixel 1 where water can be seen, 2 where a cloud hides the ground, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<String>,
}

struct Capture;

impl Guest for Capture {
    fn handle(request: Request) -> Result<Response, Error> {
        let with_truth = request.metadata.iter().any(|(key, _)| key == "truth");
        let picture =
            picture(&request.body, with_truth).map_err(|message| answer::invalid("shot", message))?;
        answer::json(&picture)
    }
}

fn picture(order: &[u8], with_truth: bool) -> Result<Picture, String> {
    let mut order = serde_json::Deserializer::from_slice(order);
    let shot = Order::deserialize(&mut order).and_then(|shot| order.end().map(|()| shot));
    let shot = shot.map_err(|error| format!("the order does not read: {error}"))?;
    let scene = take(&shot)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Picture {
        captured_ms: now.as_millis() as u64,
        side: SIDE,
        pixel_area: PIXEL_AREA,
        bands: STANDARD.encode(scene.bands.concat()),
        truth: with_truth.then(|| STANDARD.encode(scene.truth())),
    })
}

export!(Capture);

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &[u8] = br#"{ "column": 128, "row": 255, "level": 12, "clouds": 0.3, "seed": 7 }"#;

    #[test]
    fn a_picture_has_three_bands_and_the_truth_only_on_demand() {
        let taken = picture(ORDER, false).unwrap();
        assert_eq!(STANDARD.decode(&taken.bands).unwrap().len(), 3 * SIDE * SIDE);
        assert!(taken.truth.is_none());
        let truth = STANDARD
            .decode(picture(ORDER, true).unwrap().truth.unwrap())
            .unwrap();
        assert!(truth.contains(&1) && truth.contains(&2));
    }

    #[test]
    fn wrong_orders_say_what_is_wrong() {
        for (order, says) in [
            (&b"{"[..], "does not read"),
            (&[ORDER, b"7"].concat(), "does not read"),
            (
                br#"{ "column": 128, "row": 255, "level": 12, "clouds": 0.3 }"#,
                "seed",
            ),
            (
                br#"{ "column": 900, "row": 255, "level": 12, "clouds": 0.3, "seed": 7 }"#,
                "column 900",
            ),
        ] {
            let wrong = picture(order, false).err().unwrap();
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}
