//! Keeps the tiles in which a small model on board sees water: only those are worth a larger model, or a journey.
//!
//! `nn` asks the node's model through `wasi:nn`, all tiles at once; this file keeps, drops and answers.

#[path = "../../answer.rs"]
mod answer;
#[path = "../../nn.rs"]
mod nn;

use answer::invalid;
use exports::karman::task::handler::{Error, Guest, Request, Response};
use serde::{Deserialize, Serialize};
use wasi::nn::tensor::{Tensor, TensorType};

wit_bindgen::generate!({ path: "wit", generate_all });

/// What runs when the workflow names no model in the metadata.
const DEFAULT_MODEL: &str = "flood-s";
/// The share of a tile that has to look like water.
const LEAST: f32 = 0.01;
/// Tiles of one picture.
const MOST_TILES: usize = 1024;

/// What `flood-tiles` gives. What the small model saw is added on the way.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Tiles {
    captured_ms: u64,
    pixel_area: f32,
    tile: usize,
    tiles: Vec<Tile>,
    places: Vec<[usize; 2]>,
    cloudy: usize,
    /// Tiles without water.
    #[serde(default)]
    dry: usize,
    /// Square kilometres of water that the small model saw.
    #[serde(default)]
    seen_km2: f32,
}

#[derive(Deserialize, Serialize)]
struct Tile {
    image: [Vec<Vec<Vec<u8>>>; 1],
}

struct Screen;

impl Guest for Screen {
    fn handle(request: Request) -> Result<Response, Error> {
        let told = |name: &str| {
            let mut told = request.metadata.iter();
            told.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        };
        let least = match told("least") {
            None => LEAST,
            Some(text) => (text.parse().ok())
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| invalid("least", format!("`{text}` is no share from 0 to 1")))?,
        };
        let tiles: Tiles = serde_json::from_slice(&request.body)
            .map_err(|error| invalid("tiles", format!("the tiles do not read: {error}")))?;
        let pixels = tiles.pixels().map_err(|message| invalid("tiles", message))?;
        let water = match tiles.tiles.len() {
            0 => Vec::new(),
            count => water(told("model").unwrap_or(DEFAULT_MODEL), count, tiles.tile, &pixels)?,
        };
        let kept = tiles.keep(&water, least);
        answer::json(&kept)
    }
}

/// Where the model of this name sees water, a byte for each pixel of each tile.
fn water(model: &str, count: usize, side: usize, pixels: &[u8]) -> Result<Vec<u8>, Error> {
    let shape = [count as u32, 3, side as u32, side as u32];
    let image = Tensor::new(&shape, TensorType::U8, pixels);
    let bytes = count * side * side;
    nn::compute(
        model,
        ("image", image),
        "water",
        TensorType::U8,
        bytes,
        "look for water",
    )
}

impl Tiles {
    /// All tiles one after the other.
    fn pixels(&self) -> Result<Vec<u8>, String> {
        let (count, places) = (self.tiles.len(), self.places.len());
        if count > MOST_TILES || count != places {
            return Err(format!(
                "{count} tiles at {places} places: at most {MOST_TILES}, each at one"
            ));
        }
        let side = self.tile;
        let mut pixels = Vec::new();
        for (tile, [row, column]) in self.tiles.iter().zip(&self.places) {
            let [channels] = &tile.image;
            let is_square =
                |channel: &Vec<Vec<u8>>| channel.len() == side && channel.iter().all(|row| row.len() == side);
            if channels.len() != 3 || !channels.iter().all(is_square) {
                return Err(format!(
                    "the tile at {row}, {column} has not 3 by {side} by {side} pixels"
                ));
            }
            pixels.extend(channels.iter().flatten().flatten());
        }
        Ok(pixels)
    }

    /// Those with water, which has a byte for each pixel of each tile.
    fn keep(self, water: &[u8], least: f32) -> Self {
        let pixels = self.tile.saturating_mul(self.tile);
        let of_tiles = water.chunks(pixels.max(1));
        let wet: Vec<usize> = of_tiles
            .map(|tile| tile.iter().filter(|pixel| **pixel != 0).count())
            .collect();
        let all: usize = wet.iter().sum();
        let is_kept = |place: usize| wet[place] as f32 >= (least * pixels as f32).max(1.0);
        let kept = (0..self.tiles.len()).filter(|place| is_kept(*place)).count();
        let (mut at, mut too) = (0.., 0..);
        let mut next = |_: &Tile| at.next().is_some_and(is_kept);
        let mut next_place = |_: &[usize; 2]| too.next().is_some_and(is_kept);
        Self {
            dry: self.tiles.len() - kept,
            seen_km2: all as f32 * self.pixel_area / 1e6,
            tiles: self.tiles.into_iter().filter(|tile| next(tile)).collect(),
            places: self
                .places
                .into_iter()
                .filter(|place| next_place(place))
                .collect(),
            ..self
        }
    }
}

export!(Screen);

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(count: usize) -> Tiles {
        let image = |value: usize| [vec![vec![vec![value as u8; 10]; 10]; 3]];
        Tiles {
            captured_ms: 5,
            pixel_area: 1e4,
            tile: 10,
            tiles: (0..count).map(|value| Tile { image: image(value) }).collect(),
            places: (0..count).map(|place| [0, place]).collect(),
            cloudy: 2,
            dry: 0,
            seen_km2: 0.0,
        }
    }

    #[test]
    fn tiles_with_enough_water_are_kept_with_their_places() {
        let mut water = vec![0; 300];
        water[..4].fill(1);
        water[200..250].fill(1);
        let kept = tiles(3).keep(&water, 0.05);
        assert_eq!((kept.dry, &kept.places[..], kept.cloudy), (2, &[[0, 2]][..], 2));
        assert_eq!(kept.tiles[0].image[0][0][0][0], 2);
        assert!((kept.seen_km2 - 0.54).abs() < 1e-6);
        // A single pixel is enough where nothing is asked for, none is not.
        assert_eq!(tiles(3).keep(&water, 0.0).places, [[0, 0], [0, 2]]);
    }

    #[test]
    fn tiles_of_another_size_are_refused() {
        assert_eq!(tiles(2).pixels().unwrap().len(), 600);
        let mut wrong = tiles(2);
        wrong.tile = 11;
        assert!(wrong.pixels().unwrap_err().contains("11"));
        wrong.tile = usize::MAX;
        assert!(wrong.pixels().is_err());
        // As many pixels in all, but cut otherwise.
        let mut wrong = tiles(2);
        let row = wrong.tiles[0].image[0][0].pop().unwrap();
        wrong.tiles[1].image[0][0].push(row);
        assert!(wrong.pixels().unwrap_err().contains("the tile at 0, 0"));
        let mut wrong = tiles(2);
        wrong.places.pop();
        assert!(wrong.pixels().is_err());
    }
}
