//! How long each layer of a model takes here, and how large everything is that crosses a cut.
//!
//! [`Profile::measure`] times every layer alone and the whole model. Where a model was never run, [`Regression::predict`]
//! gives a profile of the same form from the layers of other models, and every time in it says that it is predicted. Sizes are exact
//! in either; how far activations pack, only who has seen them can tell.
//!
//! A profile is plain data: it can be kept, sent to other nodes, and read without the model. It says how fast a machine is when nothing
//! special is the matter; heat and load are followed by who plans with it, from what requests take.

mod measure;
mod regression;

pub use measure::{ProfileOptions, sample, sample_inputs, time};
pub use regression::{Regression, RegressionError};

use crate::BackendName;
use crate::graph::{Graph, OpClass};
use karman_tensor::ElementType;
use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// Where a time comes from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Timed here.
    Measured {
        /// How often.
        runs: u32,
    },
    /// From a regression over other layers.
    Predicted {
        /// By how much half of the predictions of this kind were off, as a share of the truth, on layers that the regression
        /// had not seen; `None` where there were too few to tell.
        relative_error: Option<f64>,
    },
    /// Not timed; the time says 0.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// A time and its spread, in seconds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Timing {
    /// The median.
    pub seconds: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
    /// Where it comes from.
    pub origin: Origin,
}

/// The profile of one layer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LayerProfile {
    /// Its name.
    pub name: String,
    /// Its operators.
    pub op: String,
    /// Its class.
    pub class: OpClass,
    /// Whether it works on 8-bit tensors.
    pub eight_bit: bool,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Bytes of its weights.
    pub parameter_bytes: u64,
    /// Bytes that it takes from other layers or the input.
    pub bytes_in: u64,
    /// Bytes that it gives to other layers or the caller.
    pub bytes_out: u64,
    /// How long it takes alone.
    pub time: Timing,
}

impl LayerProfile {
    /// Whether there is a time of it alone.
    pub(crate) const fn is_timed(&self) -> bool {
        !matches!(self.time.origin, Origin::Unavailable { .. })
    }

    /// How much there is to do, roughly: operations and bytes, one for the other.
    fn work(&self) -> f64 {
        let all = [self.macs, self.bytes_in, self.bytes_out, self.parameter_bytes];
        all.iter().map(|one| *one as f64).sum::<f64>().max(1.0)
    }
}

/// What leads from one layer to others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EdgeProfile {
    /// The name of the tensor.
    pub name: String,
    /// What its elements are; only [`ElementType::F32`] is encoded on slow links.
    pub element: ElementType,
    /// Its bytes.
    pub bytes: u64,
    /// Those that are left when it is packed without loss, where that was tried: an activation of sample inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_bytes: Option<u64>,
    /// The layer that makes it; `None` for an input.
    pub from: Option<usize>,
    /// The layers that take it.
    pub to: Vec<usize>,
    /// Whether it is an output of the model.
    pub is_output: bool,
}

/// The profile of a model on a back-end of a node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Profile {
    /// The digest of the model.
    pub model: Digest,
    /// The back-end.
    pub backend: BackendName,
    /// Its version.
    pub version: String,
    /// The threads of one run.
    pub threads: u32,
    /// The items of one run.
    pub batch: u32,
    /// The layers, in order.
    pub layers: Vec<LayerProfile>,
    /// What leads from one to another.
    pub edges: Vec<EdgeProfile>,
    /// The whole model in one run.
    pub whole: Timing,
}

impl Profile {
    /// Whether every time was measured.
    pub fn is_measured(&self) -> bool {
        let times = self.layers.iter().map(|layer| &layer.time).chain([&self.whole]);
        times
            .into_iter()
            .all(|time| matches!(time.origin, Origin::Measured { .. }))
    }

    /// The seconds of each layer within a run of several: scaled so that they add up to the whole. A layer alone pays for the
    /// start of a run and for what a back-end would have fused across its borders. One that did not run alone takes as long for its work as the
    /// others take for theirs.
    pub fn seconds(&self) -> Vec<f64> {
        let timed = self.layers.iter().filter(|layer| layer.is_timed());
        let (time, work) = timed.fold((0.0, 0.0), |(time, work), layer| {
            (time + layer.time.seconds, work + layer.work())
        });
        let pace = if work > 0.0 { time / work } else { 1.0 };
        let own = |layer: &LayerProfile| match layer.is_timed() {
            true => layer.time.seconds,
            false => pace * layer.work(),
        };
        let alone: f64 = self.layers.iter().map(own).sum();
        let scale = match alone > 0.0 && self.whole.seconds > 0.0 {
            true => self.whole.seconds / alone,
            false => 1.0,
        };
        self.layers.iter().map(|layer| own(layer) * scale).collect()
    }

    /// A profile with sizes and this time for every layer.
    fn sized(
        graph: &Graph,
        batch: u32,
        mut time: impl FnMut(&LayerProfile) -> Timing,
    ) -> (Vec<LayerProfile>, Vec<EdgeProfile>) {
        let layers = graph.layers();
        let edges: Vec<EdgeProfile> = layers
            .edges
            .iter()
            .map(|between| {
                let edge = &graph.edges()[between.edge];
                EdgeProfile {
                    name: edge.info.name.clone(),
                    element: edge.info.element,
                    bytes: edge.bytes().at(batch),
                    packed_bytes: None,
                    from: between.from,
                    to: between.to.clone(),
                    is_output: edge.is_output,
                }
            })
            .collect();
        let (mut bytes_in, mut bytes_out) =
            (vec![0u64; layers.layers.len()], vec![0u64; layers.layers.len()]);
        for edge in &edges {
            let add = |all: &mut u64| *all = all.saturating_add(edge.bytes);
            edge.to.iter().for_each(|to| add(&mut bytes_in[*to]));
            edge.from.iter().for_each(|from| add(&mut bytes_out[*from]));
        }
        let profiles = layers.layers.iter().enumerate().map(|(at, layer)| {
            let eight_bit = |node: &usize| {
                let inputs = graph.nodes()[*node]
                    .inputs
                    .iter()
                    .map(|edge| graph.edges()[*edge].info.element);
                inputs
                    .into_iter()
                    .any(|element| matches!(element, ElementType::U8 | ElementType::I8))
            };
            let mut profile = LayerProfile {
                name: layer.name.clone(),
                op: layer.op.clone(),
                class: layer.class,
                eight_bit: layer.nodes.iter().any(eight_bit),
                macs: layer.macs.at(batch),
                parameter_bytes: layer.parameter_bytes,
                bytes_in: bytes_in[at],
                bytes_out: bytes_out[at],
                time: Timing::unavailable("not timed"),
            };
            profile.time = time(&profile);
            profile
        });
        (profiles.collect(), edges)
    }
}

impl Timing {
    fn unavailable(reason: impl Into<String>) -> Self {
        Self {
            seconds: 0.0,
            low: 0.0,
            high: 0.0,
            origin: Origin::Unavailable {
                reason: reason.into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(macs: u64, time: Timing) -> LayerProfile {
        LayerProfile {
            name: "conv".into(),
            op: "Conv".into(),
            class: OpClass::Convolution,
            eight_bit: false,
            macs,
            parameter_bytes: 0,
            bytes_in: 0,
            bytes_out: 0,
            time,
        }
    }

    fn profile(layers: Vec<LayerProfile>) -> Profile {
        Profile {
            model: Digest::of(b"model"),
            backend: BackendName::Tract,
            version: "1".into(),
            threads: 1,
            batch: 1,
            layers,
            edges: Vec::new(),
            whole: Timing::of(vec![8.0]),
        }
    }

    #[test]
    fn a_layer_that_did_not_run_alone_takes_its_share_by_its_work() {
        let timed = |macs, seconds| layer(macs, Timing::of(vec![seconds]));
        let all = profile(vec![timed(100, 1.0), timed(300, 3.0)]);
        assert_eq!(all.seconds(), [2.0, 6.0]);
        let untimed = layer(200, Timing::unavailable("no kernel"));
        let some = profile(vec![timed(100, 1.0), untimed.clone(), timed(100, 1.0)]);
        assert_eq!(some.seconds(), [2.0, 4.0, 2.0]);
        assert_eq!(profile(vec![untimed.clone(), untimed]).seconds(), [4.0, 4.0]);
    }
}
