//! What the sensor makes of it: the light that comes back in each band, dimmed by slopes and cloud shadows, hidden by clouds,
//! blurred, noisy, in steps.

use crate::noise::{grain, rough};
use crate::{SIDE, Scene, Shot};

/// Reflectance in green, red and near infrared.
type Light = [f32; 3];

/// The brightest reflectance that the sensor tells apart.
const BRIGHTEST: f32 = 0.6;
/// How far the shadow of a cloud lies from it, in pixels to the west and north: the sun stands in the south-east.
const SHADOW: (usize, usize) = (11, 7);
/// What of the light a full shadow leaves.
const IN_SHADOW: f32 = 0.35;
/// The sensor's noise, from side to side.
const NOISE: f32 = 0.05;
/// How thick a cloud must be to hide the ground.
const HIDES: f32 = 0.5;

/// Draws of their own for everything that chance decides.
#[derive(Clone, Copy)]
enum Draw {
    Plants = 1,
    Soil,
    Mud,
    Clouds,
    Sensor,
}

pub(crate) fn render(shot: &Shot, heights: &[f32], depth: &[f32]) -> Scene {
    let seed = |draw: Draw| shot.seed.wrapping_mul(31).wrapping_add(draw as u32 * 0x1000_0193);
    // Plants and soil belong to the place, clouds and mud to the day.
    let thickness = |column: usize, row: usize| {
        let clouds = rough(seed(Draw::Clouds), column as f32, row as f32, 60.0);
        ((clouds - 0.9 + 0.75 * shot.clouds) * 8.0).clamp(0.0, 1.0) * f32::from(u8::from(shot.clouds > 0.0))
    };
    let light = |at: usize| {
        let (column, row) = (at % SIDE, at / SIDE);
        let (east, south) = ((shot.column + column) as f32, (shot.row + row) as f32);
        let mud = rough(seed(Draw::Mud), column as f32, row as f32, 30.0);
        let ground = land(east, south, slope(heights, column, row));
        let seen = match depth[at] {
            0.0 => ground,
            // Plants stand out of shallow water.
            deep => mix(water(mud), ground, 0.45 * (1.0 - deep / 3.0).max(0.0)),
        };
        let shadow = thickness(column + SHADOW.0, row + SHADOW.1);
        let lit = seen.map(|value| value * (1.0 - (1.0 - IN_SHADOW) * shadow));
        mix(lit, [0.56, 0.55, 0.58], thickness(column, row))
    };
    let seen: Vec<Light> = (0..SIDE * SIDE).map(light).collect();
    let sensed = |band: usize| {
        let of = |at: usize| {
            let (column, row) = (at % SIDE, at / SIDE);
            let noise = [0, 1].map(|draw| {
                let place = ((3 * column + band) as u32, (2 * row + draw) as u32);
                grain(seed(Draw::Sensor), place.0, place.1) - 0.5
            });
            let value = blurred(&seen, band, column, row) + NOISE * (noise[0] + noise[1]) / 2.0;
            ((value / BRIGHTEST).clamp(0.0, 1.0) * 255.0 + 0.5) as u8
        };
        (0..SIDE * SIDE).map(of).collect()
    };
    let hidden: Vec<bool> = (0..SIDE * SIDE)
        .map(|at| thickness(at % SIDE, at / SIDE) > HIDES)
        .collect();
    Scene {
        bands: [0, 1, 2].map(sensed),
        water: depth.iter().map(|depth| *depth > 0.0).collect(),
        cloud: hidden,
    }
}

fn mix(one: Light, other: Light, share: f32) -> Light {
    [0, 1, 2].map(|band| one[band] + share * (other[band] - one[band]))
}

/// How much light a slope gets: 1 on flat ground, less where it turns from the sun.
fn slope(heights: &[f32], column: usize, row: usize) -> f32 {
    let height = |column: usize, row: usize| heights[row * SIDE + column];
    let (west, east) = (column.saturating_sub(1), (column + 1).min(SIDE - 1));
    let (north, south) = (row.saturating_sub(1), (row + 1).min(SIDE - 1));
    let rise = (height(east, row) - height(west, row)) / ((east - west) as f32 * 37.2);
    let fall = (height(column, south) - height(column, north)) / ((south - north) as f32 * 46.3);
    let towards_sun = 1.0 - 1.1 * rise - 0.8 * fall;
    (towards_sun / (1.0 + rise * rise + fall * fall).sqrt()).clamp(0.15, 1.4)
}

/// Forest, fields, bare and wet soil, roofs. It is the same in every picture.
fn land(east: f32, south: f32, lit: f32) -> Light {
    let plants = rough(Draw::Plants as u32, east, south, 24.0);
    let soil = rough(Draw::Soil as u32, east, south, 36.0);
    let bare = ((soil - 0.62) * 9.0).clamp(0.0, 1.0);
    // Dark wet soil and burnt ground are hard to tell from water.
    let wet = ((0.36 - soil) * 9.0).clamp(0.0, 1.0);
    let roofs = if grain(77, east as u32, south as u32) > 0.992 {
        0.16
    } else {
        0.0
    };
    let green = [0.05 + 0.04 * plants, 0.04 + 0.03 * plants, 0.14 + 0.24 * plants];
    let ground = mix(green, [0.12, 0.15, 0.22], bare);
    let ground = mix(ground, [0.045, 0.05, 0.075], 0.85 * wet);
    ground.map(|value| (value + roofs) * lit)
}

/// Clear water is dark; mud makes it brown.
fn water(mud: f32) -> Light {
    let mud = ((mud - 0.3) * 2.2).clamp(0.0, 1.0);
    [0.05 + 0.06 * mud, 0.03 + 0.10 * mud, 0.02 + 0.09 * mud]
}

/// A pixel gets some of what belongs to its neighbours.
fn blurred(seen: &[Light], band: usize, column: usize, row: usize) -> f32 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (dy, down) in [0.5f32, 1.0, 0.5].into_iter().enumerate() {
        for (dx, across) in [0.5f32, 1.0, 0.5].into_iter().enumerate() {
            let (x, y) = (column + dx, row + dy);
            if (1..=SIDE).contains(&x) && (1..=SIDE).contains(&y) {
                sum += down * across * seen[(y - 1) * SIDE + x - 1][band];
                weights += down * across;
            }
        }
    }
    sum / weights
}
