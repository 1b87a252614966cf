//! What a satellite sees of a valley while a river rises: pictures made from real terrain, with the truth about every pixel.
//!
//! Water stands in the [`terrain`] up to a level, in all cells that it can reach from the lowest one. Light, soil, plants, mud,
//! clouds with their shadows and the sensor's noise come from [`noise`] and the rules in [`render`], by the seed alone. Nothing but
//! additions, multiplications, divisions and roots is used, which are exact everywhere: the same [`Shot`] gives the same bytes in
//! a Wasm sandbox and on any machine, so that the models are trained on what the plugin takes.
//!
//! | file | what |
//! |---|---|
//! | `terrain` | heights between the measured ones, and where water stands |
//! | `noise` | randomness that belongs to a place |
//! | `render` | what the sensor makes of it |
//!
//! ```
//! use flood_scene::{Shot, take};
//!
//! let shot = Shot { column: 128, row: 255, level: 12.0, clouds: 0.3, seed: 7 };
//! let scene = take(&shot).unwrap();
//! assert_eq!((scene.bands[0].len(), scene.water.len()), (flood_scene::SIDE * flood_scene::SIDE, flood_scene::SIDE * flood_scene::SIDE));
//! assert!(scene.water.contains(&true));
//! ```

mod noise;
mod render;
mod terrain;

pub use terrain::{COLUMNS, PIXEL_AREA, ROWS};

/// Pixels of a picture from side to side.
pub const SIDE: usize = 128;

/// What to take a picture of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shot {
    /// The first column of the terrain, in pixels from the west; at most [`COLUMNS`] - [`SIDE`].
    pub column: usize,
    /// The first row, in pixels from the north; at most [`ROWS`] - [`SIDE`].
    pub row: usize,
    /// How high the water stands over the lowest place in the picture, in metres; 0 to 200.
    pub level: f32,
    /// How cloudy it is, from 0 to 1.
    pub clouds: f32,
    /// Everything that chance decides.
    pub seed: u32,
}

/// A picture, and what is really there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Green, red and near infrared, row by row from the north, 0 dark to 255.
    pub bands: [Vec<u8>; 3],
    /// Where water stands.
    pub water: Vec<bool>,
    /// Where a cloud hides the ground.
    pub cloud: Vec<bool>,
}

impl Scene {
    /// For each pixel 1 where water can be seen, 2 where a cloud hides the ground, else 0.
    pub fn truth(&self) -> Vec<u8> {
        let pixels = self.water.iter().zip(&self.cloud);
        pixels
            .map(|(water, cloud)| if *cloud { 2 } else { u8::from(*water) })
            .collect()
    }
}

/// Takes a picture.
///
/// # Errors
/// What lies outside the terrain, or is no number in its bounds, in words.
pub fn take(shot: &Shot) -> Result<Scene, String> {
    let inside = shot.column <= COLUMNS - SIDE && shot.row <= ROWS - SIDE;
    if !inside {
        let (columns, rows) = (COLUMNS - SIDE, ROWS - SIDE);
        return Err(format!(
            "column {} and row {} are not within {columns} and {rows}",
            shot.column, shot.row
        ));
    }
    if !(0.0..=200.0).contains(&shot.level) {
        return Err(format!("a level of {} m is not within 0 and 200", shot.level));
    }
    if !(0.0..=1.0).contains(&shot.clouds) {
        return Err(format!("clouds of {} are not within 0 and 1", shot.clouds));
    }
    let heights = terrain::window(shot.column, shot.row);
    let depth = terrain::fill(&heights, shot.level);
    Ok(render::render(shot, &heights, &depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOT: Shot = Shot {
        column: 128,
        row: 255,
        level: 20.0,
        clouds: 0.4,
        seed: 7,
    };

    #[test]
    fn the_same_shot_gives_the_same_bytes_and_another_seed_others() {
        let one = take(&SHOT).unwrap();
        assert_eq!(one, take(&SHOT).unwrap());
        let other = take(&Shot { seed: 8, ..SHOT }).unwrap();
        assert_eq!(one.water, other.water);
        assert_ne!(one.bands, other.bands);
    }

    #[test]
    fn more_water_covers_what_less_covered() {
        let low = take(&Shot { level: 5.0, ..SHOT }).unwrap();
        let high = take(&SHOT).unwrap();
        assert!(low.water.iter().zip(&high.water).all(|(low, high)| !low || *high));
        let count = |scene: &Scene| scene.water.iter().filter(|water| **water).count();
        assert!(count(&high) > count(&low) && count(&low) > 0);
    }

    #[test]
    fn clouds_come_with_what_is_asked_for() {
        let hidden = |clouds: f32| {
            let scene = take(&Shot { clouds, ..SHOT }).unwrap();
            scene.cloud.iter().filter(|cloud| **cloud).count()
        };
        assert_eq!(hidden(0.0), 0);
        assert!(hidden(0.3) < hidden(0.6));
    }

    #[test]
    fn the_truth_says_of_each_pixel_what_can_be_seen() {
        let scene = Scene {
            water: vec![false, true, false, true],
            cloud: vec![false, false, true, true],
            ..Default::default()
        };
        assert_eq!(scene.truth(), [0, 1, 2, 2]);
    }

    #[test]
    fn water_is_darker_in_the_infrared_than_land() {
        let scene = take(&Shot { clouds: 0.0, ..SHOT }).unwrap();
        let mean = |wet: bool| {
            let pixels = scene.bands[2].iter().zip(&scene.water);
            let those: Vec<f32> = pixels
                .filter(|(_, water)| **water == wet)
                .map(|(value, _)| f32::from(*value))
                .collect();
            those.iter().sum::<f32>() / those.len() as f32
        };
        assert!(mean(true) * 1.5 < mean(false), "{} {}", mean(true), mean(false));
    }

    #[test]
    fn what_is_outside_is_refused() {
        for shot in [
            Shot {
                column: COLUMNS,
                ..SHOT
            },
            Shot {
                row: ROWS - SIDE + 1,
                ..SHOT
            },
            Shot {
                level: f32::NAN,
                ..SHOT
            },
            Shot { level: 201.0, ..SHOT },
            Shot { clouds: 1.5, ..SHOT },
        ] {
            assert!(take(&shot).is_err(), "{shot:?}");
        }
    }
}
