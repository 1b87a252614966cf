//! What is asked for: two workflows over our own models, who may serve their tasks, and what they are asked.

use super::flood::{Tile, tiles};
use super::registered::{Grid, Registered};
use crate::digits::{Digit, accuracy, held_out};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::Value;

/// Before the names of the models in the cloud: the edge has others.
pub(super) const CLOUD: &str = "cloud-";
/// The tasks of the workflow over tiles.
const SCREEN: usize = 0;
const SEGMENT: usize = 1;

/// A workflow, with all that it is asked.
pub(super) struct Workload {
    /// In the names of its rows.
    pub(super) name: &'static str,
    pub(super) tasks: &'static [&'static str],
    /// From small to large.
    pub(super) models: &'static [&'static str],
    /// Where the files of its models are.
    pub(super) folder: &'static str,
    /// Each model on each tier: those of the edge first. They may serve every task.
    pub(super) candidates: Vec<Candidate>,
    /// How accurate each model is in each task, as its training found; empty where that is measured.
    pub(super) recorded: Vec<Vec<f64>>,
    questions: Vec<Question>,
    /// How many of the questions are there for measuring only.
    apart: usize,
}

/// One that may answer a request.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// `digits-m@edge`.
    pub(super) name: String,
    /// Its place among the models of the workload.
    pub(super) model: usize,
    pub(super) price: f64,
    /// By which the edge is asked for it.
    pub(super) path: String,
}

/// An input whose answers can be judged.
pub(super) enum Question {
    Digit(Digit),
    Tile(Tile),
}

impl Workload {
    /// Which digit is it? One task, three models.
    pub(super) fn digits(registered: &Registered) -> Result<Self> {
        let models = &["digits-s", "digits-m", "digits-l"];
        let recorded = models
            .iter()
            .map(|model| accuracy(model).map(|known| vec![known]));
        Ok(Self {
            name: "live",
            tasks: &["classify"],
            models,
            folder: "tests/models",
            candidates: candidates(models, &registered.digits)?,
            recorded: recorded.collect::<Result<_>>()?,
            questions: held_out()?.into_iter().map(Question::Digit).collect(),
            apart: 0,
        })
    }

    /// Is there water in a tile, and if so, where? Two tasks, two models.
    pub(super) fn flood(registered: &Registered) -> Result<Self> {
        let models = &["flood-s", "flood-l"];
        let asked = registered.tiles;
        let tiles = tiles(asked.seed, asked.examples + asked.requests)?;
        Ok(Self {
            name: "flood",
            tasks: &["screen", "segment"],
            models,
            folder: "plugins/flood/models",
            candidates: candidates(models, &registered.flood)?,
            recorded: Vec::new(),
            questions: tiles.into_iter().map(Question::Tile).collect(),
            apart: asked.examples,
        })
    }

    /// What profiles are measured with.
    pub(super) fn examples(&self) -> &[Question] {
        match self.apart {
            0 => &self.questions,
            apart => &self.questions[..apart],
        }
    }

    /// What runs are asked.
    pub(super) fn requests(&self) -> &[Question] {
        &self.questions[self.apart..]
    }

    /// A model in the cloud.
    pub(super) fn in_cloud(&self, model: usize) -> Result<&Candidate> {
        let in_cloud = self.candidates.get(self.models.len() + model);
        in_cloud.with_context(|| format!("{}: the cloud has no model {model}", self.name))
    }
}

impl Question {
    pub(super) const fn body(&self) -> &Bytes {
        match self {
            Self::Digit(digit) => &digit.request,
            Self::Tile(tile) => &tile.request,
        }
    }

    /// Whether a request with it comes to a task, if everybody is right.
    pub(super) fn comes_to(&self, task: usize) -> bool {
        match self {
            Self::Tile(tile) if task == SEGMENT => tile.is_wet(),
            _ => true,
        }
    }

    /// Whether an answer to a task is right.
    pub(super) fn is_right(&self, task: usize, answer: &Value) -> Result<bool> {
        match self {
            Self::Digit(digit) => digit.is_right(answer),
            Self::Tile(tile) if task == SCREEN => Ok(Tile::is_said_wet(answer)? == tile.is_wet()),
            Self::Tile(tile) => tile.is_drawn(answer),
        }
    }

    /// The task that follows this answer, if one does.
    pub(super) fn next(&self, task: usize, answer: &Value) -> Result<Option<usize>> {
        match self {
            Self::Tile(_) if task == SCREEN => Ok(Tile::is_said_wet(answer)?.then_some(SEGMENT)),
            _ => Ok(None),
        }
    }
}

/// Each model on each tier.
fn candidates(models: &[&str], grid: &Grid) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for (tier, before, prices) in [
        ("edge", "", &grid.edge_prices),
        ("cloud", CLOUD, &grid.cloud_prices),
    ] {
        let (known, priced) = (models.len(), prices.len());
        ensure!(known == priced, "{tier}: {priced} prices for {known} models");
        let of_tier = models.iter().zip(prices).enumerate();
        candidates.extend(of_tier.map(|(place, (model, price))| Candidate {
            name: format!("{model}@{tier}"),
            model: place,
            price: *price,
            path: format!("/tasks/model/{before}{model}"),
        }));
    }
    Ok(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_model_is_on_each_tier_at_a_price() {
        let registered = Registered::read().unwrap();
        let all = candidates(&["digits-s", "digits-m", "digits-l"], &registered.digits).unwrap();
        let names: Vec<&str> = all.iter().map(|candidate| candidate.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "digits-s@edge",
                "digits-m@edge",
                "digits-l@edge",
                "digits-s@cloud",
                "digits-m@cloud",
                "digits-l@cloud"
            ]
        );
        assert_eq!(all[4].path, "/tasks/model/cloud-digits-m");
        assert!(all[4].price > all[1].price);
        assert!(candidates(&["digits-s"], &registered.digits).is_err());
    }

    #[test]
    fn a_tile_in_which_water_is_seen_is_looked_at_again() {
        let mut registered = Registered::read().unwrap();
        (registered.tiles.examples, registered.tiles.requests) = (2, 4);
        let workload = Workload::flood(&registered).unwrap();
        assert_eq!((workload.examples().len(), workload.requests().len()), (2, 4));
        let [wet, dry] = workload.examples() else {
            panic!("two examples");
        };
        let row = |pixel: u8| vec![pixel; 32];
        let all = |pixel: u8| json!({ "water": [[vec![row(pixel); 32]]] });
        for (question, is_wet) in [(wet, true), (dry, false)] {
            assert!(question.comes_to(SCREEN));
            assert_eq!(question.comes_to(SEGMENT), is_wet);
            assert_eq!(question.is_right(SCREEN, &all(1)).unwrap(), is_wet);
            assert_eq!(question.next(SCREEN, &all(1)).unwrap(), Some(SEGMENT));
            assert_eq!(question.next(SCREEN, &all(0)).unwrap(), None);
            assert_eq!(question.next(SEGMENT, &all(1)).unwrap(), None);
        }
        assert_eq!(workload.in_cloud(1).unwrap().name, "flood-l@cloud");
    }
}
