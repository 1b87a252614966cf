//! Writes a network layer by layer.

use super::Variant;
use crate::outline::type_code;
use crate::wire::Writer;
use bytes::Bytes;
use fastrand::Rng;
use karman_tensor::ElementType;
use std::collections::HashSet;

/// What a layer gives: a map of channels, or a vector where it has no rows and columns.
#[derive(Clone, Debug)]
pub(super) struct Map {
    name: String,
    pub(super) channels: u32,
    side: u32,
    /// The mean square of an element over that of what went into the last activation: a ReLU keeps half.
    kept: f32,
    /// Whether no element is below zero.
    positive: bool,
}

/// A convolution as it is published.
#[derive(Clone, Copy)]
pub(super) struct Conv {
    pub(super) channels: u32,
    pub(super) kernel: u32,
    pub(super) stride: u32,
    pub(super) pad: u32,
    pub(super) groups: u32,
    /// The mean square of what it gives over that of what it takes.
    pub(super) gain: f32,
}

impl Conv {
    pub(super) fn new(channels: u32, kernel: u32) -> Self {
        Self {
            channels,
            kernel,
            stride: 1,
            pad: kernel / 2,
            groups: 1,
            gain: 1.0,
        }
    }

    pub(super) fn stride(self, stride: u32) -> Self {
        Self { stride, ..self }
    }
}

pub(super) struct Builder {
    name: &'static str,
    variant: Variant,
    rng: Rng,
    nodes: Writer,
    tensors: Writer,
    layers: u32,
    /// Maps that are there in 8 bits, too.
    stored: HashSet<String>,
}

/// No element of a map lies further from zero, but for one in ten thousand: maps have a variance near 1.
const REACH: f32 = 6.0;

const INPUT: &str = "image";
const OUTPUT: &str = "scores";

impl Builder {
    pub(super) fn new(name: &'static str, input: u32, variant: &Variant) -> Self {
        Self {
            name,
            variant: Variant { input, ..*variant },
            rng: Rng::with_seed(variant.seed),
            nodes: Writer::default(),
            tensors: Writer::default(),
            layers: 0,
            stored: HashSet::new(),
        }
    }

    pub(super) fn input(&self) -> Map {
        Map {
            name: INPUT.into(),
            channels: 3,
            side: self.variant.input,
            kept: 1.0,
            positive: false,
        }
    }

    /// A published number of channels, as many as this network has.
    pub(super) fn width(&self, channels: u32) -> u32 {
        (channels / self.variant.narrower.max(1)).max(1)
    }

    pub(super) fn conv(&mut self, x: &Map, conv: Conv) -> Map {
        let name = self.named("conv");
        let fan_in = x.channels / conv.groups * conv.kernel * conv.kernel;
        let dims = [conv.channels, x.channels / conv.groups, conv.kernel, conv.kernel];
        let inputs = self.weighted(x, &name, &dims, conv.gain / x.kept / fan_in as f32);
        let both = |n: u32| vec![i64::from(n); 2];
        let attributes = [
            ("kernel_shape", both(conv.kernel)),
            ("strides", both(conv.stride)),
            ("pads", vec![i64::from(conv.pad); 4]),
        ];
        self.node("Conv", &name, &inputs, &attributes, Some(("group", conv.groups)));
        Map {
            name,
            channels: conv.channels,
            side: (x.side + 2 * conv.pad - conv.kernel) / conv.stride + 1,
            kept: 1.0,
            positive: false,
        }
    }

    pub(super) fn relu(&mut self, x: &Map) -> Map {
        let name = self.named("relu");
        self.node("Relu", &name, std::slice::from_ref(&x.name), &[], None);
        Map {
            name,
            kept: 0.5,
            positive: true,
            ..*x
        }
    }

    pub(super) fn relu6(&mut self, x: &Map) -> Map {
        let name = self.named("relu6");
        let bounds = [("min", 0f32), ("max", 6.0)].map(|(bound, value)| {
            let bound = format!("{name}.{bound}");
            self.tensor(&bound, ElementType::F32, &[], &value.to_le_bytes());
            bound
        });
        let [min, max] = bounds;
        self.node("Clip", &name, &[x.name.clone(), min, max], &[], None);
        Map {
            name,
            kept: 0.5,
            positive: true,
            ..*x
        }
    }

    pub(super) fn max_pool(&mut self, x: &Map, kernel: u32, stride: u32, pad: u32) -> Map {
        let name = self.named("max_pool");
        let attributes = [
            ("kernel_shape", vec![i64::from(kernel); 2]),
            ("strides", vec![i64::from(stride); 2]),
            ("pads", vec![i64::from(pad); 4]),
        ];
        let input = self.taken(x);
        self.node("MaxPool", &name, &[input], &attributes, None);
        Map {
            name,
            side: (x.side + 2 * pad - kernel) / stride + 1,
            // The largest of several positive numbers: their square rather than half of it.
            kept: 1.0,
            ..*x
        }
    }

    pub(super) fn mean(&mut self, x: &Map) -> Map {
        let name = self.named("mean");
        let input = self.taken(x);
        self.node("GlobalAveragePool", &name, &[input], &[], None);
        Map { name, side: 1, ..*x }
    }

    pub(super) fn add(&mut self, a: &Map, b: &Map) -> Map {
        let name = self.named("add");
        let inputs = [self.taken(a), self.taken(b)];
        self.node("Add", &name, &inputs, &[], None);
        Map {
            name,
            kept: 1.0,
            positive: a.positive && b.positive,
            ..*a
        }
    }

    pub(super) fn flatten(&mut self, x: &Map) -> Map {
        let name = self.named("flatten");
        let input = self.taken(x);
        self.node("Flatten", &name, &[input], &[], Some(("axis", 1)));
        Map {
            name,
            channels: x.channels * x.side * x.side,
            side: 1,
            ..*x
        }
    }

    pub(super) fn dense(&mut self, x: &Map, channels: u32) -> Map {
        let name = self.named("dense");
        self.fully_connected(x, channels, name)
    }

    /// The last layer: a score for each class.
    pub(super) fn scores(&mut self, x: &Map) {
        self.fully_connected(x, self.variant.classes.max(1), OUTPUT.into());
    }

    fn fully_connected(&mut self, x: &Map, channels: u32, name: String) -> Map {
        let inputs = self.weighted(
            x,
            &name,
            &[channels, x.channels],
            1.0 / x.kept / x.channels as f32,
        );
        self.node("Gemm", &name, &inputs, &[], Some(("transB", 1)));
        Map {
            name,
            channels,
            side: 1,
            kept: 1.0,
            positive: false,
        }
    }

    /// The file.
    pub(super) fn finish(self) -> Bytes {
        let Self {
            name,
            variant,
            nodes,
            tensors,
            ..
        } = self;
        let mut graph = nodes;
        graph.bytes(2, name);
        graph.0.extend(tensors.0);
        let side = Some(variant.input.into());
        let image = [None, Some(3), side, side];
        for (field, name, dims) in [
            (11, INPUT, &image[..]),
            (12, OUTPUT, &[None, Some(variant.classes.max(1).into())]),
        ] {
            graph.message(field, |info| {
                info.bytes(1, name).message(2, |of_type| {
                    of_type.message(1, |tensor| {
                        tensor.number(1, type_code(ElementType::F32)).message(2, |shape| {
                            for dim in dims {
                                shape.message(1, |entry| match dim {
                                    Some(size) => _ = entry.number(1, *size),
                                    None => _ = entry.bytes(2, "N"),
                                });
                            }
                        });
                    });
                });
            });
        }
        let mut model = Writer::default();
        model.number(1, 8).bytes(2, "karman zoo").bytes(7, graph.0);
        model.message(8, |set| _ = set.bytes(1, "").number(2, 17));
        model.0.into()
    }

    fn named(&mut self, kind: &str) -> String {
        self.layers += 1;
        format!("{kind}_{}", self.layers)
    }

    fn node(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[String],
        lists: &[(&str, Vec<i64>)],
        number: Option<(&str, u32)>,
    ) {
        const INT: i64 = 2;
        const INTS: i64 = 7;
        self.nodes.message(1, |node| {
            inputs.iter().for_each(|input| _ = node.bytes(1, input));
            node.bytes(2, name).bytes(3, name).bytes(4, op);
            for (key, values) in lists {
                node.message(5, |attribute| {
                    attribute.bytes(1, key);
                    values.iter().for_each(|value| _ = attribute.number(8, *value));
                    attribute.number(20, INTS);
                });
            }
            if let Some((key, value)) = number {
                node.message(5, |attribute| {
                    _ = attribute.bytes(1, key).number(3, value.into()).number(20, INT);
                });
            }
        });
    }

    /// What a layer with weights takes: a map, random weights of this variance and mean 0, and a bias.
    fn weighted(&mut self, x: &Map, name: &str, dims: &[u32], variance: f32) -> [String; 3] {
        let reach = (3.0 * variance).sqrt();
        let taken = self.taken(x);
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{name}.{part}"));
        let channels = &dims[..1];
        if !self.variant.quantized {
            self.random(&weight, dims, reach);
            self.random(&bias, channels, 0.1);
            return [taken, weight, bias];
        }
        let scale = reach / 127.0;
        let elements = dims.iter().map(|dim| *dim as usize).product();
        let stored: Vec<u8> = (0..elements).map(|_| self.rng.i8(-127..=127) as u8).collect();
        let weight = self.restored(&weight, ElementType::I8, dims, &stored, scale);
        // A bias is added to sums of products, so that it has their scale.
        let scale = scale * scale_of(x).0;
        let stored: Vec<u8> = (0..channels[0])
            .map(|_| 0.1 * (2.0 * self.rng.f32() - 1.0) / scale)
            .flat_map(|value| (value.round() as i32).to_le_bytes())
            .collect();
        let bias = self.restored(&bias, ElementType::I32, channels, &stored, scale);
        [taken, weight, bias]
    }

    /// The name under which a layer takes a map: in an 8-bit network, of what is left of it.
    fn taken(&mut self, x: &Map) -> String {
        if !self.variant.quantized {
            return x.name.clone();
        }
        let [stored, restored, scale, zero] =
            ["q", "dq", "scale", "zero"].map(|part| format!("{}.{part}", x.name));
        if self.stored.insert(x.name.clone()) {
            let (step, middle) = scale_of(x);
            self.tensor(&scale, ElementType::F32, &[], &step.to_le_bytes());
            self.tensor(&zero, ElementType::U8, &[], &[middle]);
            self.node(
                "QuantizeLinear",
                &stored,
                &[x.name.clone(), scale.clone(), zero.clone()],
                &[],
                None,
            );
            self.node("DequantizeLinear", &restored, &[stored, scale, zero], &[], None);
        }
        restored
    }

    /// Weights that are stored as whole numbers, with a scale for each of the first dimension.
    fn restored(
        &mut self,
        name: &str,
        element: ElementType,
        dims: &[u32],
        stored: &[u8],
        scale: f32,
    ) -> String {
        let inputs = ["q", "scale", "zero"].map(|part| format!("{name}.{part}"));
        let channels = dims[0] as usize;
        self.tensor(&inputs[0], element, dims, stored);
        self.tensor(
            &inputs[1],
            ElementType::F32,
            &dims[..1],
            &scale.to_le_bytes().repeat(channels),
        );
        self.tensor(
            &inputs[2],
            element,
            &dims[..1],
            &vec![0; element.size() * channels],
        );
        self.node("DequantizeLinear", name, &inputs, &[], Some(("axis", 0)));
        name.to_owned()
    }

    fn random(&mut self, name: &str, dims: &[u32], reach: f32) {
        let elements = dims.iter().map(|dim| *dim as usize).product();
        let raw: Vec<u8> = (0..elements)
            .flat_map(|_| (reach * (2.0 * self.rng.f32() - 1.0)).to_le_bytes())
            .collect();
        self.tensor(name, ElementType::F32, dims, &raw);
    }

    fn tensor(&mut self, name: &str, element: ElementType, dims: &[u32], raw: &[u8]) {
        self.tensors.message(5, |tensor| {
            dims.iter().for_each(|dim| _ = tensor.number(1, (*dim).into()));
            tensor.number(2, type_code(element)).bytes(8, name).bytes(9, raw);
        });
    }
}

/// The step between two stored values of a map, and the stored value that is zero.
fn scale_of(x: &Map) -> (f32, u8) {
    match x.positive {
        true => (REACH / 255.0, 0),
        false => (2.0 * REACH / 255.0, 128),
    }
}
