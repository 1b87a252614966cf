//! Tiles of pictures of a valley in which a river rises, and the truth about them.
//!
//! They are made as the plugins `flood-capture` and `flood-tiles` make them, of the south of the terrain, by which no model was trained.

use anyhow::{Context, Error, Result, bail};
use bytes::Bytes;
use fastrand::Rng;
use flood_scene::{COLUMNS, ROWS, SIDE, Scene, Shot, take};
use serde_json::{Value, json};

/// Pixels of a tile from side to side, and all.
const TILE: usize = 32;
const AREA: usize = TILE * TILE;
/// The share of a tile that clouds may hide.
const MOST_HIDDEN: f64 = 0.4;
/// The share of a tile that has to be water to be worth a closer look: that of `flood.toml`.
const LEAST: f64 = 0.01;
/// What a drawing and the truth have in common at least, of what either marks.
const OVERLAP: f64 = 0.8;
/// Metres that the river rises, from and to, and how cloudy it is at most: as in training.
const LEVELS: (f32, f32) = (4.0, 45.0);
const MOST_CLOUDS: f32 = 0.6;
/// Pictures that are taken at most for so many tiles: a third of all tiles has water.
const PICTURES_PER_TILE: usize = 2;
/// A pixel that a cloud hides, in the truth about a picture.
const HIDDEN: u8 = 2;

/// A tile as a request.
pub(super) struct Tile {
    pub(super) request: Bytes,
    /// Where water can be seen.
    water: Vec<bool>,
}

/// So many tiles, of which every second has water.
///
/// # Errors
/// The pictures have too few tiles with water, or without.
pub(super) fn tiles(seed: u64, count: usize) -> Result<Vec<Tile>> {
    let mut rng = Rng::with_seed(seed);
    let (mut wet, mut dry) = (Vec::new(), Vec::new());
    let half = count.div_ceil(2);
    for _ in 0..PICTURES_PER_TILE * count {
        let shot = Shot {
            column: rng.usize(..=COLUMNS - SIDE),
            row: ROWS - SIDE,
            level: LEVELS.0 + (LEVELS.1 - LEVELS.0) * rng.f32(),
            clouds: MOST_CLOUDS * rng.f32(),
            seed: rng.u32(..),
        };
        for tile in of_picture(&take(&shot).map_err(Error::msg)?)? {
            let kind = if tile.is_wet() { &mut wet } else { &mut dry };
            if kind.len() < half {
                kind.push(tile);
            }
        }
        if wet.len() == half && dry.len() == half {
            let both = wet.into_iter().zip(dry);
            return Ok(both.flat_map(|(wet, dry)| [wet, dry]).take(count).collect());
        }
    }
    bail!(
        "of {count} tiles {} have water and {} have none",
        wet.len(),
        dry.len()
    )
}

/// Those that clouds do not hide.
fn of_picture(scene: &Scene) -> Result<Vec<Tile>> {
    let truth = scene.truth();
    let mut tiles = Vec::new();
    for place in 0..(SIDE / TILE) * (SIDE / TILE) {
        let place = (place / (SIDE / TILE), place % (SIDE / TILE));
        let seen = cut(&truth, place).concat();
        let hidden = seen.iter().filter(|pixel| **pixel == HIDDEN).count();
        if hidden as f64 > MOST_HIDDEN * AREA as f64 {
            continue;
        }
        let bands = scene.bands.each_ref().map(|band| cut(band, place));
        tiles.push(Tile {
            request: serde_json::to_vec(&json!({ "image": [bands] }))?.into(),
            water: seen.into_iter().map(|pixel| pixel == 1).collect(),
        });
    }
    Ok(tiles)
}

/// The rows of a tile.
fn cut(pixels: &[u8], (row, column): (usize, usize)) -> Vec<Vec<u8>> {
    let of = |y: usize| pixels[(row * TILE + y) * SIDE + column * TILE..][..TILE].to_vec();
    (0..TILE).map(of).collect()
}

impl Tile {
    /// Whether there is enough water to look closer.
    pub(super) fn is_wet(&self) -> bool {
        is_enough(&self.water)
    }

    /// Whether an answer says so.
    pub(super) fn is_said_wet(answer: &Value) -> Result<bool> {
        Ok(is_enough(&marked(answer)?))
    }

    /// Whether an answer marks the water.
    pub(super) fn is_drawn(&self, answer: &Value) -> Result<bool> {
        let marked = marked(answer)?;
        let count = |holds: fn(bool, bool) -> bool| {
            let pixels = self.water.iter().zip(&marked);
            pixels.filter(|(there, found)| holds(**there, **found)).count() as f64
        };
        let (both, either) = (count(|one, other| one && other), count(|one, other| one || other));
        Ok(both >= OVERLAP * either)
    }
}

fn is_enough(water: &[bool]) -> bool {
    water.iter().filter(|pixel| **pixel).count() as f64 >= LEAST * AREA as f64
}

/// Where an answer sees water.
fn marked(answer: &Value) -> Result<Vec<bool>> {
    let [[rows]]: [[Vec<Vec<u8>>; 1]; 1] =
        serde_json::from_value(answer["water"].clone()).context("an answer without the water of a tile")?;
    let pixels: Vec<bool> = rows.into_iter().flatten().map(|pixel| pixel != 0).collect();
    match pixels.len() {
        AREA => Ok(pixels),
        other => bail!("an answer of {other} pixels to a tile of {AREA}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(wet: usize) -> Value {
        let rows: Vec<Vec<u8>> = (0..TILE)
            .map(|row| {
                (0..TILE)
                    .map(|column| u8::from(row * TILE + column < wet))
                    .collect()
            })
            .collect();
        json!({ "water": [[rows]] })
    }

    fn tile(wet: usize) -> Tile {
        Tile {
            request: Bytes::new(),
            water: (0..AREA).map(|at| at < wet).collect(),
        }
    }

    #[test]
    fn every_second_tile_has_water_and_a_seed_gives_the_same_ones() {
        let some = tiles(3, 7).unwrap();
        let wet: Vec<bool> = some.iter().map(Tile::is_wet).collect();
        assert_eq!(wet, [true, false, true, false, true, false, true]);
        let image: Value = serde_json::from_slice(&some[0].request).unwrap();
        assert_eq!(image["image"][0].as_array().unwrap().len(), 3);
        assert_eq!(image["image"][0][2][TILE - 1].as_array().unwrap().len(), TILE);
        assert_eq!(tiles(3, 7).unwrap()[6].request, some[6].request);
        assert_ne!(tiles(4, 7).unwrap()[6].request, some[6].request);
    }

    #[test]
    fn an_answer_is_judged_by_what_is_there() {
        assert!(tile(11).is_wet() && !tile(10).is_wet());
        assert!(Tile::is_said_wet(&answer(11)).unwrap() && !Tile::is_said_wet(&answer(10)).unwrap());
        // Four fifths in common are enough, whichever side marks more; nothing and nothing are the same.
        assert!(tile(100).is_drawn(&answer(80)).unwrap() && tile(80).is_drawn(&answer(100)).unwrap());
        assert!(!tile(100).is_drawn(&answer(79)).unwrap() && !tile(0).is_drawn(&answer(1)).unwrap());
        assert!(tile(0).is_drawn(&answer(0)).unwrap());
        assert!(Tile::is_said_wet(&json!({ "water": [[[[1]]]] })).is_err());
        assert!(tile(0).is_drawn(&json!({})).is_err());
    }
}
