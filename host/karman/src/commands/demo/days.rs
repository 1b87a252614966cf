use super::continuum::{Continuum, Who};
use super::mission::shot;
use super::truth::{Known, Shot, known};
use crate::control::Control;
use bytes::Bytes;
use http::Method;
use karman_types::TaskError;
use serde_json::{Value, json};

/// Pictures of other days.
const PICTURES: usize = 4;

/// Pictures of days by which nobody has learnt anything, with the truth about them: what the model on board is judged by.
pub(super) struct Days {
    /// All their tiles, in the words of the Open Inference Protocol.
    request: Bytes,
    /// For each pixel of them whether there is water.
    truth: Vec<u8>,
    pub(super) tiles: usize,
    /// What the model on board that the satellite was launched with makes of them.
    pub(super) before: f64,
}

impl Days {
    /// Takes the pictures, and has the satellite's model look at them.
    ///
    /// # Errors
    /// What the satellite says.
    pub(super) fn take(continuum: &Continuum) -> Result<Self, TaskError> {
        let (mut images, mut truth) = (Vec::new(), Vec::new());
        for number in 0..PICTURES {
            let other = Shot {
                seed: 9000 + number as u32,
                level: 10.0 + 8.0 * number as f64,
                ..shot(number)
            };
            let Known {
                tiles, truth: there, ..
            } = known(continuum, &other)?;
            images.extend(tiles.iter().map(|tile| tile["image"][0].clone()));
            for [[rows]] in &there {
                truth.extend(rows.iter().flatten());
            }
        }
        let tiles = images.len();
        let request = json!({ "inputs": [
            { "name": "image", "shape": [tiles, 3, 32, 32], "datatype": "UINT8", "data": images },
        ] });
        let mut days = Self {
            request: request.to_string().into(),
            truth,
            tiles,
            before: 0.0,
        };
        days.before = days.overlap(continuum.node(Who::Sat).control())?;
        Ok(days)
    }

    /// Intersection over union of what the satellite's model sees in them and what is there, over all pixels.
    ///
    /// # Errors
    /// What the satellite says.
    pub(super) fn overlap(&self, sat: &Control) -> Result<f64, TaskError> {
        let answer: Value = sat.order(Method::POST, "/models/flood-s/run", self.request.clone())?;
        let found = answer["outputs"][0]["data"].as_array();
        let found = found.filter(|found| found.len() == self.truth.len());
        let found =
            found.ok_or_else(|| TaskError::internal("the model on board gives other pixels than it got"))?;
        overlap(found, &self.truth)
            .ok_or_else(|| TaskError::internal("there is no water in the pictures of other days"))
    }
}

/// Intersection over union of pixels in which there is water; nothing where neither side has any.
pub(super) fn overlap(found: &[Value], truth: &[u8]) -> Option<f64> {
    let (mut both, mut either) = (0u64, 0u64);
    for (found, there) in found.iter().zip(truth) {
        let (found, there) = (found.as_u64() == Some(1), *there != 0);
        both += u64::from(found && there);
        either += u64::from(found || there);
    }
    (either > 0).then(|| both as f64 / either as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_compared_one_by_one() {
        let found = [1, 1, 0, 0].map(Value::from);
        assert_eq!(overlap(&found, &[1, 0, 1, 0]), Some(1.0 / 3.0));
        assert_eq!(overlap(&found, &[1, 1, 0, 0]), Some(1.0));
        assert_eq!(overlap(&found[2..], &[0, 0]), None);
    }
}
