//! Masks the clouds of a picture and cuts the rest into tiles, so that nothing is computed or sent where nothing can be seen.
//!
//! A pixel is a cloud when it is bright in the visible bands: what nature has besides is darker by far. A tile that clouds hide for
//! the most part is dropped. The others come out as tensors, as the models take them.

#[path = "../../answer.rs"]
mod answer;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exports::karman::task::handler::{Error, Guest, Request, Response};
use serde::{Deserialize, Serialize};

wit_bindgen::generate!({ path: "wit", generate_all });

/// Pixels of a tile from side to side.
const TILE: usize = 32;
/// The most pixels of a picture from side to side.
const MOST_SIDE: usize = 1024;
/// How bright a cloud is at least, in green and in red.
const CLOUD: u8 = 128;
/// The share of a tile that clouds may hide.
const MOST_HIDDEN: f32 = 0.4;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Picture {
    captured_ms: u64,
    side: usize,
    pixel_area: f32,
    bands: String,
    truth: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Tiles {
    captured_ms: u64,
    pixel_area: f32,
    /// Pixels of a tile from side to side.
    tile: usize,
    tiles: Vec<Tile>,
    /// Row and column of each, counted in tiles.
    places: Vec<[usize; 2]>,
    /// Tiles that clouds hide.
    cloudy: usize,
    /// Of each tile, where a rehearsal knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<Vec<Tensor>>,
}

/// What a model takes.
#[derive(Serialize)]
struct Tile {
    image: Tensor,
}

/// One of one, channels, rows, columns.
type Tensor = [Vec<Vec<Vec<u8>>>; 1];

struct FloodTiles;

impl Guest for FloodTiles {
    fn handle(request: Request) -> Result<Response, Error> {
        let tiles = tiles(&request.body).map_err(|message| answer::invalid("picture", message))?;
        answer::json(&tiles)
    }
}

fn tiles(picture: &[u8]) -> Result<Tiles, String> {
    let picture: Picture =
        serde_json::from_slice(picture).map_err(|error| format!("the picture does not read: {error}"))?;
    let side = picture.side;
    if side == 0 || side > MOST_SIDE || !side.is_multiple_of(TILE) {
        return Err(format!(
            "a side of {side} is no multiple of {TILE} up to {MOST_SIDE}"
        ));
    }
    let bands = pixels(&picture.bands, 3 * side * side)?;
    let truth = picture.truth.as_deref().map(|truth| pixels(truth, side * side));
    let truth = truth.transpose()?;
    let mut tiles = Tiles {
        captured_ms: picture.captured_ms,
        pixel_area: picture.pixel_area,
        tile: TILE,
        tiles: Vec::new(),
        places: Vec::new(),
        cloudy: 0,
        truth: truth.is_some().then(Vec::new),
    };
    for place in 0..(side / TILE) * (side / TILE) {
        let place = [place / (side / TILE), place % (side / TILE)];
        let channels: Vec<_> = bands
            .chunks(side * side)
            .map(|band| cut(band, side, place))
            .collect();
        if hidden(&channels) > MOST_HIDDEN {
            tiles.cloudy += 1;
            continue;
        }
        tiles.tiles.push(Tile { image: [channels] });
        tiles.places.push(place);
        if let (Some(all), Some(truth)) = (&mut tiles.truth, &truth) {
            let mut seen = cut(truth, side, place);
            // Under a cloud nothing can be seen.
            seen.iter_mut()
                .flatten()
                .for_each(|pixel| *pixel = u8::from(*pixel == 1));
            all.push([vec![seen]]);
        }
    }
    Ok(tiles)
}

fn pixels(text: &str, count: usize) -> Result<Vec<u8>, String> {
    let pixels = STANDARD
        .decode(text)
        .map_err(|error| format!("pixels are no base64: {error}"))?;
    match pixels.len() == count {
        true => Ok(pixels),
        false => Err(format!(
            "there are {} pixels in the place of {count}",
            pixels.len()
        )),
    }
}

/// The rows of a tile.
fn cut(band: &[u8], side: usize, [row, column]: [usize; 2]) -> Vec<Vec<u8>> {
    let of = |y: usize| band[(row * TILE + y) * side + column * TILE..][..TILE].to_vec();
    (0..TILE).map(of).collect()
}

/// The share of a tile under clouds.
fn hidden(channels: &[Vec<Vec<u8>>]) -> f32 {
    let pixels = channels[0].iter().flatten().zip(channels[1].iter().flatten());
    let clouds = pixels.filter(|(green, red)| **green.min(red) >= CLOUD).count();
    clouds as f32 / (TILE * TILE) as f32
}

export!(FloodTiles);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A picture of 64 by 64 pixels whose green says in which tile a pixel lies; in one tile there are clouds.
    fn picture(truth: bool) -> Vec<u8> {
        let band = |number: usize| {
            (0..64 * 64).map(move |at| {
                let tile = at / 64 / TILE * 2 + at % 64 / TILE;
                if tile == 2 {
                    200
                } else {
                    (10 * number + tile) as u8
                }
            })
        };
        let bands: Vec<u8> = (1..=3).flat_map(band).collect();
        let mut picture = json!({
            "captured-ms": 5, "side": 64, "pixel-area": 1722.0, "bands": STANDARD.encode(&bands),
        });
        if truth {
            let there: Vec<u8> = (0..64 * 64).map(|at| (at % 3) as u8).collect();
            picture["truth"] = STANDARD.encode(there).into();
        }
        picture.to_string().into()
    }

    #[test]
    fn a_tile_under_clouds_is_dropped_and_the_others_are_cut_out() {
        let cut = tiles(&picture(false)).unwrap();
        assert_eq!((cut.cloudy, &cut.places[..]), (1, &[[0, 0], [0, 1], [1, 1]][..]));
        let [image] = &cut.tiles[1].image;
        assert_eq!((image.len(), image[0].len(), image[2][31][31]), (3, TILE, 31));
        assert!(cut.truth.is_none());
    }

    #[test]
    fn what_a_cloud_hides_is_no_water() {
        let truth = tiles(&picture(true)).unwrap().truth.unwrap();
        let [first] = &truth[0];
        assert_eq!((truth.len(), &first[0][0][..4]), (3, &[0, 1, 0, 0][..]));
    }

    #[test]
    fn wrong_pictures_say_what_is_wrong() {
        for (picture, says) in [
            (json!({}), "does not read"),
            (
                json!({ "captured-ms": 5, "side": 33, "pixel-area": 1, "bands": "" }),
                "33",
            ),
            (
                json!({ "captured-ms": 5, "side": 32, "pixel-area": 1, "bands": "AAAA" }),
                "3072",
            ),
        ] {
            let wrong = tiles(picture.to_string().as_bytes()).err().unwrap();
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}
