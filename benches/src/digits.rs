//! The digits that no model was trained with, and what is known of the models.

use crate::given;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

/// A record of `digits.bin`: 64 levels of ink, 0 to 16, and a label.
const RECORD: usize = 65;

/// A digit as a request, with its label.
pub(crate) struct Digit {
    pub(crate) request: Bytes,
    label: usize,
}

impl Digit {
    /// Whether an answer says what it is.
    pub(crate) fn is_right(&self, answer: &Value) -> Result<bool> {
        let probabilities: Vec<f64> = serde_json::from_value(answer["probabilities"][0].clone())
            .context("an answer without the probabilities of digits")?;
        let best = (0..probabilities.len())
            .max_by(|one, other| probabilities[*one].total_cmp(&probabilities[*other]));
        Ok(best == Some(self.label))
    }
}

/// Every digit that was held back: `digit-7-0042.png` is the 42nd of all.
pub(crate) fn held_out() -> Result<Vec<Digit>> {
    let file = given::read("tests/data/digits.bin")?;
    let (records, _) = file.as_chunks::<RECORD>();
    let mut digits = Vec::new();
    for entry in std::fs::read_dir("tests/data/digits")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let place = name.strip_suffix(".png").and_then(|name| name.rsplit('-').next());
        let place: usize = place.context("a file that is no digit")?.parse()?;
        let record = records
            .get(place)
            .with_context(|| format!("{name} is not in digits.bin"))?;
        digits.push((place, digit(record)?));
    }
    // A folder is read in any order.
    digits.sort_by_key(|(place, _)| *place);
    ensure!(!digits.is_empty(), "tests/data/digits is empty");
    Ok(digits.into_iter().map(|(_, digit)| digit).collect())
}

fn digit(record: &[u8; RECORD]) -> Result<Digit> {
    let rows: Vec<Vec<f64>> = record[..64]
        .chunks(8)
        .map(|row| row.iter().map(|ink| f64::from(*ink) / 16.0).collect())
        .collect();
    Ok(Digit {
        request: serde_json::to_vec(&json!({ "image": [[rows]] }))?.into(),
        label: usize::from(record[RECORD - 1]),
    })
}

/// The first so many digits, pixel by pixel.
pub(crate) fn pixels(images: usize) -> Result<Vec<f32>> {
    let file = given::read("tests/data/digits.bin")?;
    let (records, _) = file.as_chunks::<RECORD>();
    let ink = records.iter().take(images).flat_map(|record| &record[..64]);
    Ok(ink.map(|ink| f32::from(*ink) / 16.0).collect())
}

/// The same as one request in the words of the Open Inference Protocol.
pub(crate) fn together(images: usize) -> Result<Bytes> {
    let pixels = pixels(images)?;
    let input = json!({ "name": "image", "shape": [images, 1, 8, 8], "datatype": "FP32", "data": pixels });
    Ok(serde_json::to_vec(&json!({ "inputs": [input] }))?.into())
}

#[derive(Deserialize)]
struct Trained {
    models: Vec<TrainedModel>,
}

#[derive(Deserialize)]
struct TrainedModel {
    name: String,
    exits: Vec<TrainedExit>,
}

#[derive(Deserialize)]
struct TrainedExit {
    output: String,
    accuracy: f64,
}

/// The outputs of a model from shallow to deep, each with the share of digits held back that it gets right, as training found.
pub(crate) fn exits(model: &str) -> Result<Vec<(String, f64)>> {
    let trained: Trained = serde_json::from_slice(&given::read("tests/models/models.json")?)?;
    let known = trained.models.into_iter().find(|known| known.name == model);
    let known = known.with_context(|| format!("models.json does not know {model}"))?;
    let exits = known.exits.into_iter();
    Ok(exits.map(|exit| (exit.output, exit.accuracy)).collect())
}

/// That share of its last output.
pub(crate) fn accuracy(model: &str) -> Result<f64> {
    let exits = exits(model)?;
    let (_, accuracy) = exits.last().with_context(|| format!("{model} has no exits"))?;
    Ok(*accuracy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_digit_is_the_answer() {
        let mut record = [0; RECORD];
        record[RECORD - 1] = 2;
        let digit = digit(&record).unwrap();
        let answer = |probabilities: [f64; 4]| json!({ "probabilities": [probabilities] });
        assert!(digit.is_right(&answer([0.1, 0.2, 0.6, 0.1])).unwrap());
        assert!(!digit.is_right(&answer([0.1, 0.5, 0.3, 0.1])).unwrap());
        assert!(digit.is_right(&json!({})).is_err());
    }
}
