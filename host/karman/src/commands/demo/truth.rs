use super::continuum::{Continuum, Who};
use bytes::Bytes;
use http::Method;
use karman_types::TaskError;
use serde::Deserialize;
use serde_json::{Value, json};

/// What to take a picture of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shot {
    pub(super) column: usize,
    pub(super) row: usize,
    /// Metres over the lowest place.
    pub(super) level: f64,
    pub(super) clouds: f64,
    pub(super) seed: u32,
}

impl Shot {
    /// The order for it.
    pub(super) fn order(&self) -> Value {
        json!({
            "column": self.column, "row": self.row, "level": self.level, "clouds": self.clouds, "seed": self.seed,
        })
    }
}

/// A picture in tiles, with what is really there, which nobody but the generator of the pictures knows.
#[derive(Deserialize)]
pub(super) struct Known {
    /// As the models take them.
    pub(super) tiles: Vec<Value>,
    places: Vec<[usize; 2]>,
    /// As the models would give it: one of one, one channel, rows, columns.
    pub(super) truth: Vec<[[Vec<Vec<u8>>; 1]; 1]>,
}

/// Takes the picture once more, by the same plugins on the satellite, with the truth.
///
/// # Errors
/// What a task says.
pub(super) fn known(continuum: &Continuum, shot: &Shot) -> Result<Known, TaskError> {
    let call = |task: &str, body: Bytes| {
        let path = format!("/tasks/{task}");
        let headers = [("content-type", "application/json"), ("karman-meta-truth", "yes")];
        let control = continuum.node(Who::Sat).control();
        Ok::<Bytes, TaskError>(control.send(Method::POST, &path, &headers, body)?.into_body())
    };
    let picture = call("flood-capture", shot.order().to_string().into())?;
    let tiles = call("flood-tiles", picture)?;
    serde_json::from_slice(&tiles).map_err(|error| TaskError::internal(format!("tiles do not read: {error}")))
}

/// Water in one tile, as an alert tells it.
#[derive(Deserialize)]
pub(super) struct Marked {
    place: [usize; 2],
    /// A hexadecimal digit for four pixels.
    water: String,
}

impl Known {
    /// Intersection over union of what was marked and what is there, over all tiles that clouds do not hide. A pixel under a cloud in
    /// one of them counts as dry, for nobody can see water there; so does a tile of which nothing was told.
    pub(super) fn overlap(&self, marked: &[Marked]) -> f64 {
        let (mut both, mut either) = (0u64, 0u64);
        for (place, [[rows]]) in self.places.iter().zip(&self.truth) {
            let told = marked.iter().find(|tile| tile.place == *place);
            let bits = told.map(|tile| bits(&tile.water)).unwrap_or_default();
            for (at, there) in rows.iter().flatten().enumerate() {
                let (there, found) = (*there != 0, bits.get(at) == Some(&true));
                both += u64::from(there && found);
                either += u64::from(there || found);
            }
        }
        match either {
            0 => 1.0,
            either => both as f64 / either as f64,
        }
    }
}

fn bits(digits: &str) -> Vec<bool> {
    let four = |digit: char| {
        let value = digit.to_digit(16).unwrap_or_default();
        (0..4).rev().map(move |bit| value >> bit & 1 == 1)
    };
    digits.chars().flat_map(four).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_compared_pixel_by_pixel() {
        let known = Known {
            tiles: Vec::new(),
            places: vec![[0, 0], [0, 1]],
            truth: vec![[[vec![vec![1, 1, 0, 0]]]], [[vec![vec![0, 0, 1, 0]]]]],
        };
        let marked = |place, water: &str| Marked {
            place,
            water: water.into(),
        };
        assert_eq!(known.overlap(&[marked([0, 0], "c"), marked([0, 1], "2")]), 1.0);
        assert_eq!(known.overlap(&[marked([0, 0], "a")]), 1.0 / 4.0);
        assert_eq!(known.overlap(&[]), 0.0);
    }
}
