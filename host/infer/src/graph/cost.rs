//! What a node costs.

use super::Scaled;
use super::raw::RawNode;
use super::shapes::{Fact, Known};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the time of a node depends on, and how: one regression is made for each class.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpClass {
    /// Convolutions over several channels.
    Convolution,
    /// Convolutions of each channel for itself.
    DepthwiseConvolution,
    /// Products of matrices: fully connected layers, attention.
    MatrixProduct,
    /// Recurrent layers.
    Recurrent,
    /// Maxima and means over windows or whole maps.
    Pooling,
    /// Functions of one element: ReLU, sigmoid.
    Activation,
    /// Arithmetic on the elements of several tensors.
    Elementwise,
    /// Means and variances: batch and layer normalisation, softmax.
    Normalization,
    /// Elements moved, not computed: reshape, transpose, concatenate.
    Movement,
    /// To and from 8 bits.
    Quantization,
    /// Anything else.
    Other,
}

impl OpClass {
    /// Every class.
    pub const ALL: [Self; 11] = [
        Self::Convolution,
        Self::DepthwiseConvolution,
        Self::MatrixProduct,
        Self::Recurrent,
        Self::Pooling,
        Self::Activation,
        Self::Elementwise,
        Self::Normalization,
        Self::Movement,
        Self::Quantization,
        Self::Other,
    ];

    /// As it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Convolution => "convolution",
            Self::DepthwiseConvolution => "depthwise convolution",
            Self::MatrixProduct => "matrix product",
            Self::Recurrent => "recurrent",
            Self::Pooling => "pooling",
            Self::Activation => "activation",
            Self::Elementwise => "elementwise",
            Self::Normalization => "normalization",
            Self::Movement => "movement",
            Self::Quantization => "quantization",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for OpClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(super) fn class(node: &RawNode<'_>, known: &Known<'_>) -> OpClass {
    match node.op {
        "Conv" | "ConvTranspose" | "ConvInteger" | "QLinearConv" => {
            let channels = |fact: &Fact| fact.one.get(1).copied();
            let depthwise = weight(node)
                .and_then(|name| channels(known.get(name).ok()?))
                .is_some_and(|of_one_group| of_one_group == 1)
                && fact(node, known, 0).and_then(channels).is_some_and(|all| all > 1);
            match depthwise {
                true => OpClass::DepthwiseConvolution,
                false => OpClass::Convolution,
            }
        }
        "Gemm" | "MatMul" | "MatMulInteger" | "QLinearMatMul" | "Einsum" | "Attention" => {
            OpClass::MatrixProduct
        }
        "LSTM" | "GRU" | "RNN" => OpClass::Recurrent,
        "MaxPool" | "AveragePool" | "LpPool" | "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool"
        | "ReduceMean" | "ReduceMax" | "ReduceSum" | "ReduceMin" => OpClass::Pooling,
        "Relu" | "LeakyRelu" | "PRelu" | "Clip" | "Sigmoid" | "HardSigmoid" | "Tanh" | "Elu" | "Selu"
        | "Gelu" | "HardSwish" | "Mish" | "Softplus" | "Softsign" | "ThresholdedRelu" | "Celu" | "Erf"
        | "Exp" | "Log" | "Sqrt" | "Neg" | "Abs" => OpClass::Activation,
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" | "Sum" | "Mean" | "Where" => {
            OpClass::Elementwise
        }
        "BatchNormalization"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "LRN"
        | "Softmax"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization" => OpClass::Normalization,
        "Reshape" | "Flatten" | "Transpose" | "Concat" | "Split" | "Slice" | "Gather" | "Squeeze"
        | "Unsqueeze" | "Expand" | "Tile" | "Pad" | "Identity" | "Dropout" | "Cast" | "DepthToSpace"
        | "SpaceToDepth" | "Shape" | "Resize" => OpClass::Movement,
        "QuantizeLinear" | "DequantizeLinear" | "DynamicQuantizeLinear" => OpClass::Quantization,
        _ => OpClass::Other,
    }
}

/// Multiply-accumulates; 0 for operators that have none.
pub(super) fn macs(node: &RawNode<'_>, known: &Known<'_>) -> Scaled {
    let at = |of: fn(&Fact) -> &[u32]| count(node, known, of).unwrap_or_default();
    Scaled::through(at(|fact| &fact.one), at(|fact| &fact.two))
}

fn count(node: &RawNode<'_>, known: &Known<'_>, of: fn(&Fact) -> &[u32]) -> Option<u64> {
    let input = |at| fact(node, known, at).map(of);
    let output = |at: usize| {
        let name = node.outputs.get(at)?;
        known.get(name).ok().map(of)
    };
    let weights = || weight(node).and_then(|name| known.get(name).ok()).map(of);
    Some(match node.op {
        // Each output needs one kernel over the channels of its group.
        "Conv" | "ConvInteger" | "QLinearConv" => {
            product(output(0)?).saturating_mul(product(weights()?.get(1..)?))
        }
        // Each input is spread over one kernel for every output channel of its group.
        "ConvTranspose" => product(input(0)?).saturating_mul(product(weights()?.get(1..)?)),
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => {
            product(output(0)?).saturating_mul((*input(0)?.last()?).into())
        }
        "Gemm" => {
            let (rows, columns) = (output(0)?, product(input(1)?));
            product(rows).saturating_mul(columns / u64::from(*rows.last()?).max(1))
        }
        // [steps, batch, inputs]; each weight of the cell is used once a step.
        "LSTM" | "GRU" | "RNN" => {
            let weights = product(input(1)?).saturating_add(product(input(2)?));
            product(input(0)?.get(..2)?).saturating_mul(weights)
        }
        _ => return None,
    })
}

fn product(dims: &[u32]) -> u64 {
    dims.iter().fold(1, |n, dim| n.saturating_mul(u64::from(*dim)))
}

fn fact<'k>(node: &RawNode<'_>, known: &'k Known<'_>, input: usize) -> Option<&'k Fact> {
    known.get(node.inputs.get(input)?).ok()
}

/// The kernel of a convolution.
fn weight<'a>(node: &RawNode<'a>) -> Option<&'a str> {
    let at = if node.op == "QLinearConv" { 3 } else { 1 };
    node.inputs.get(at).copied()
}
