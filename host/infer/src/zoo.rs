//! Well-known networks, generated: the true architectures with random weights, scaled so that what flows through them neither
//! dies out nor grows.
//!
//! For tests, benches and studies of speed and of cutting, where what a network has learned does not matter but its layers,
//! sizes and branches do. Batch normalisation is folded into the convolutions, as exporters do. The same [`Variant`] gives the
//! same bytes.
//!
//! ```
//! use karman_infer::graph::Graph;
//! use karman_infer::zoo::{Architecture, Variant};
//! use karman_infer::ModelLimits;
//!
//! let small = Variant { input: 32, narrower: 16, ..Variant::default() };
//! let graph = Graph::read(Architecture::MobileNetV2.generate(&small), &ModelLimits::default())?;
//! assert_eq!(graph.edges()[0].info.to_string(), "image f32 [N, 3, 32, 32]");
//! # Ok::<(), karman_infer::InferError>(())
//! ```

mod alexnet;
mod build;
mod mobilenet;
mod resnet;
mod vgg;

use build::Builder;
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;

/// How a network is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Variant {
    /// Rows and columns of the image. Default 224. Where the network ends in a fully connected layer over a map, that layer
    /// is as wide as the map is.
    pub input: u32,
    /// Channels and hidden neurons are the published ones divided by this. Default 1.
    pub narrower: u32,
    /// Classes. Default 1000.
    pub classes: u32,
    /// Of the random weights. Default 2026.
    pub seed: u64,
    /// Whether weights and activations have 8 bits, in the QDQ form that quantisers write: what each layer takes goes through
    /// `QuantizeLinear` and `DequantizeLinear`. Default not.
    pub quantized: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            input: 224,
            narrower: 1,
            classes: 1000,
            seed: 2026,
            quantized: false,
        }
    }
}

/// A published network for images.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Architecture {
    /// Krizhevsky 2014 ("one weird trick"), as torchvision has it.
    AlexNet,
    /// Simonyan and Zisserman 2014, configuration D.
    Vgg16,
    /// Sandler et al. 2018, width 1.0.
    MobileNetV2,
    /// He et al. 2015, with the stride in the 3x3 convolutions ("v1.5").
    ResNet50,
}

impl Architecture {
    /// Every network.
    pub const ALL: [Self; 4] = [Self::AlexNet, Self::Vgg16, Self::MobileNetV2, Self::ResNet50];

    /// Its name: `resnet50`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlexNet => "alexnet",
            Self::Vgg16 => "vgg16",
            Self::MobileNetV2 => "mobilenetv2",
            Self::ResNet50 => "resnet50",
        }
    }

    /// The least input whose maps do not vanish on the way.
    pub const fn least_input(self) -> u32 {
        match self {
            Self::AlexNet => 63,
            Self::Vgg16 | Self::MobileNetV2 | Self::ResNet50 => 32,
        }
    }

    /// The network as an ONNX file with weights: `image` f32 `[N, 3, input, input]` to `scores` f32 `[N, classes]`. An input below
    /// [`Architecture::least_input`] is taken as that, and at least one channel is left of every layer.
    pub fn generate(self, variant: &Variant) -> Bytes {
        let input = variant.input.max(self.least_input());
        let mut builder = Builder::new(self.as_str(), input, variant);
        match self {
            Self::AlexNet => alexnet::build(&mut builder),
            Self::Vgg16 => vgg::build(&mut builder),
            Self::MobileNetV2 => mobilenet::build(&mut builder),
            Self::ResNet50 => resnet::build(&mut builder),
        }
        builder.finish()
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not one of {}",
                Self::ALL.map(Self::as_str).join(", ")
            )
        })
    }
}
