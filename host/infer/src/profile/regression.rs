//! The time of a layer from what it computes, moves and holds: one line for each class of operators, as in Neurosurgeon
//! (Kang et al., ASPLOS 2017), fitted to the layers that were timed on this machine.

use super::{LayerProfile, Origin, Profile, Timing};
use crate::BackendName;
use crate::graph::{Graph, OpClass};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A constant, multiply-accumulates, bytes taken, bytes given, bytes of weights.
const FEATURES: usize = 5;

/// Fewer layers of a class than this are predicted from all classes together.
const LEAST: usize = 5;

/// Profiles that no regression can be made of.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegressionError {
    /// No layer was timed.
    #[error("no layer of the {profiles} profiles was timed: profile a model here first")]
    Empty {
        /// How many were given.
        profiles: usize,
    },
    /// Times of different back-ends or threads.
    #[error("the profiles are of different back-ends or numbers of threads")]
    Mixed,
}

/// Predicts the time of layers that were never run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Regression {
    backend: BackendName,
    version: String,
    threads: u32,
    /// One for each class that was seen often enough, 8-bit layers for themselves.
    lines: Vec<(OpClass, bool, Line)>,
    /// For all other layers.
    any: Line,
    /// The whole of a model over the sum of its layers: the median over the profiles.
    whole: f64,
}

impl Regression {
    /// Fits to the layers that these profiles have timed.
    ///
    /// # Errors
    /// [`RegressionError`].
    pub fn fit(profiles: &[&Profile]) -> Result<Self, RegressionError> {
        let empty = RegressionError::Empty {
            profiles: profiles.len(),
        };
        let first = *profiles.first().ok_or_else(|| empty.clone())?;
        if profiles
            .iter()
            .any(|p| (p.backend, p.threads) != (first.backend, first.threads))
        {
            return Err(RegressionError::Mixed);
        }
        let samples: Vec<&LayerProfile> = profiles
            .iter()
            .flat_map(|profile| &profile.layers)
            .filter(|layer| matches!(layer.time.origin, Origin::Measured { .. }))
            .filter(|layer| layer.time.seconds.is_finite() && layer.time.seconds > 0.0)
            .collect();
        if samples.is_empty() {
            return Err(empty);
        }
        let mut classes: BTreeMap<(OpClass, bool), Vec<&LayerProfile>> = BTreeMap::new();
        for layer in &samples {
            classes
                .entry((layer.class, layer.eight_bit))
                .or_default()
                .push(layer);
        }
        // Without a layer the sum is too small.
        let complete = profiles
            .iter()
            .filter(|profile| profile.layers.iter().all(LayerProfile::is_timed));
        let mut ratios: Vec<f64> = complete
            .map(|profile| {
                let sum: f64 = profile.layers.iter().map(|layer| layer.time.seconds).sum();
                profile.whole.seconds / sum
            })
            .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            .collect();
        Ok(Self {
            backend: first.backend,
            version: first.version.clone(),
            threads: first.threads,
            lines: classes
                .into_iter()
                .filter(|(_, layers)| layers.len() >= LEAST)
                .map(|((class, eight_bit), layers)| (class, eight_bit, Line::fit(&layers)))
                .collect(),
            any: Line::fit(&samples),
            whole: median(&mut ratios).unwrap_or(1.0),
        })
    }

    /// The time of one layer.
    pub fn time(&self, layer: &LayerProfile) -> Timing {
        let line = self
            .lines
            .iter()
            .find(|(class, eight_bit, _)| (*class, *eight_bit) == (layer.class, layer.eight_bit));
        let line = line.map_or(&self.any, |(_, _, line)| line);
        let seconds = line.at(layer);
        let spread = line.relative_error.unwrap_or(1.0);
        Timing {
            seconds,
            low: seconds * (1.0 - spread).max(0.0),
            high: seconds * (1.0 + spread),
            origin: Origin::Predicted {
                relative_error: line.relative_error,
            },
        }
    }

    /// The profile of a model that was never run here.
    pub fn predict(&self, graph: &Graph, batch: u32) -> Profile {
        let (layers, edges) = Profile::sized(graph, batch, |layer| self.time(layer));
        let sum =
            |of: fn(&Timing) -> f64| layers.iter().map(|layer| of(&layer.time)).sum::<f64>() * self.whole;
        let whole = Timing {
            seconds: sum(|time| time.seconds),
            low: sum(|time| time.low),
            high: sum(|time| time.high),
            origin: Origin::Predicted {
                relative_error: self.any.relative_error,
            },
        };
        Profile {
            model: graph.digest(),
            backend: self.backend,
            version: self.version.clone(),
            threads: self.threads,
            batch,
            layers,
            edges,
            whole,
        }
    }
}

/// Seconds for each unit of each feature, none below zero.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Line {
    per: [f64; FEATURES],
    relative_error: Option<f64>,
}

impl Line {
    fn fit(layers: &[&LayerProfile]) -> Self {
        Self {
            per: least_squares(layers.iter().copied()),
            relative_error: held_out_error(layers),
        }
    }

    fn at(&self, layer: &LayerProfile) -> f64 {
        dot(&self.per, &features(layer))
    }
}

fn features(layer: &LayerProfile) -> [f64; FEATURES] {
    [
        1.0,
        layer.macs as f64,
        layer.bytes_in as f64,
        layer.bytes_out as f64,
        layer.parameter_bytes as f64,
    ]
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Non-negative least squares on relative errors, by coordinate descent: each step is exact in one coordinate, so that the error
/// never grows. With five unknowns this needs no solver.
fn least_squares<'a>(layers: impl Iterator<Item = &'a LayerProfile>) -> [f64; FEATURES] {
    const SWEEPS: usize = 2000;
    let (mut gram, mut right) = ([[0.0; FEATURES]; FEATURES], [0.0; FEATURES]);
    for layer in layers {
        let row = features(layer).map(|feature| feature / layer.time.seconds);
        for i in 0..FEATURES {
            right[i] += row[i];
            for j in 0..FEATURES {
                gram[i][j] += row[i] * row[j];
            }
        }
    }
    let mut per = [0.0; FEATURES];
    for _ in 0..SWEEPS {
        for i in 0..FEATURES {
            if gram[i][i] > 0.0 {
                let others = dot(&gram[i], &per) - gram[i][i] * per[i];
                per[i] = ((right[i] - others) / gram[i][i]).max(0.0);
            }
        }
    }
    per
}

/// The median relative error on layers that were left out of the fit, a fifth of them at a time.
fn held_out_error(layers: &[&LayerProfile]) -> Option<f64> {
    const FOLDS: usize = 5;
    if layers.len() < FOLDS {
        return None;
    }
    let mut errors = Vec::new();
    for fold in 0..FOLDS {
        let (held, fitted): (Vec<_>, Vec<_>) =
            layers.iter().enumerate().partition(|(at, _)| at % FOLDS == fold);
        let per = least_squares(fitted.into_iter().map(|(_, layer)| *layer));
        errors.extend(
            held.into_iter()
                .map(|(_, layer)| (dot(&per, &features(layer)) / layer.time.seconds - 1.0).abs()),
        );
    }
    median(&mut errors)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
