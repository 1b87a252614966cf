//! Where a network may stop early.

use crate::{Model, ModelInfo, StoreError};
use serde::{Deserialize, Serialize};

/// The most exits of one model.
const MOST: usize = 16;

/// An output of a model that answers the same question as its last one, with less work and less often right.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ModelExit {
    /// The output in its file.
    pub output: String,
    /// The share of right answers, from 0 to 1.
    pub accuracy: f64,
}

impl ModelExit {
    /// Under which they stand in what is known of a model.
    pub const KEY: &str = "exits";

    /// The exits in what is known of a model, from shallow to deep: a list of `output` and `accuracy`. The last one is that
    /// of the whole model. Empty where nothing is said of them, or nothing that reads.
    pub fn all_of(info: &ModelInfo) -> Vec<Self> {
        read(info).unwrap_or_default()
    }

    /// By which a model is asked for up to one of its exits, 1 the shallowest: `digits-l:1`.
    pub fn name(model: &str, depth: u32) -> String {
        format!("{model}:{depth}")
    }

    /// The model and the exit in such a name.
    pub fn parse(name: &str) -> Option<(&str, u32)> {
        let (model, depth) = name.rsplit_once(':')?;
        let depth: u32 = depth.parse().ok()?;
        // Nothing has two names.
        (depth > 0 && Self::name(model, depth) == name).then_some((model, depth))
    }
}

impl Model {
    /// The names by which it is asked for up to its early exits.
    pub fn exit_names(&self) -> impl Iterator<Item = String> {
        let early = ModelExit::all_of(&self.info).len().saturating_sub(1) as u32;
        (1..=early).map(move |depth| ModelExit::name(&self.name, depth))
    }
}

/// Whether what is said of exits is as it has to be.
pub(crate) fn check(model: &str, info: &ModelInfo) -> Result<(), StoreError> {
    read(info).map(drop).map_err(|problem| StoreError::Exits {
        name: model.into(),
        problem,
    })
}

fn read(info: &ModelInfo) -> Result<Vec<ModelExit>, String> {
    let Some(value) = info.get(ModelExit::KEY) else {
        return Ok(Vec::new());
    };
    let exits = Vec::<ModelExit>::deserialize(value).map_err(|error| error.to_string())?;
    if exits.len() > MOST {
        return Err(format!("there are {}; {MOST} is the most", exits.len()));
    }
    for (at, ModelExit { output, accuracy }) in exits.iter().enumerate() {
        if !(0.0..=1.0).contains(accuracy) {
            return Err(format!(
                "the accuracy of `{output}` is {accuracy}, which is no share from 0 to 1"
            ));
        }
        if exits[..at].iter().any(|before| before.output == *output) {
            return Err(format!("`{output}` stands there twice"));
        }
    }
    Ok(exits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn info(exits: Value) -> ModelInfo {
        ModelInfo::from([(ModelExit::KEY.to_owned(), exits)])
    }

    #[test]
    fn the_exits_of_the_digit_family_read_as_they_are_recorded() {
        let record = include_str!("../../../tests/models/models.json");
        let record: Value = serde_json::from_str(record).unwrap();
        let models = record["models"].as_array().unwrap();
        let early = |model: &Value| {
            let held = Model {
                name: model["name"].as_str().unwrap().to_owned(),
                digest: karman_types::Digest::of(b"x"),
                bytes: 1,
                info: info(model["exits"].clone()),
            };
            check(&held.name, &held.info).unwrap();
            held.exit_names().collect::<Vec<_>>()
        };
        let names: Vec<String> = models.iter().flat_map(early).collect();
        assert_eq!(names, ["digits-l:1", "digits-l:2"]);
    }

    #[test]
    fn a_name_is_that_of_one_exit() {
        for (name, depth) in [("digits-l", 1), ("a:b", 12)] {
            let whole = ModelExit::name(name, depth);
            assert_eq!(ModelExit::parse(&whole), Some((name, depth)));
        }
        for none in [
            "digits-l",
            "digits-l:",
            "digits-l:0",
            "digits-l:01",
            "digits-l:+1",
            "a:b",
        ] {
            assert_eq!(ModelExit::parse(none), None, "{none}");
        }
    }

    #[test]
    fn exits_that_cannot_be_are_refused() {
        let exit = |output: &str, accuracy: f64| json!({ "output": output, "accuracy": accuracy });
        for (wrong, says) in [
            (json!("exit_1"), "invalid type"),
            (json!([{ "output": "a" }]), "accuracy"),
            (json!([exit("a", 1.5)]), "1.5"),
            (json!([exit("a", 0.5), exit("a", 0.6)]), "twice"),
            (json!(vec![exit("a", 0.5); MOST + 1]), "17"),
        ] {
            let error = check("digits-l", &info(wrong.clone())).unwrap_err().to_string();
            assert!(error.contains("digits-l") && error.contains(says), "{error}");
            assert!(ModelExit::all_of(&info(wrong)).is_empty());
        }
    }
}
