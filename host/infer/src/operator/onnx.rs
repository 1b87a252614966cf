use super::Operator;
use crate::outline::type_code;
use crate::wire::Writer;
use bytes::Bytes;
use karman_tensor::ElementType;

const WEIGHTS: &str = "w";
const OUTPUT: &str = "y";

impl Operator {
    /// The operator as an ONNX file of one node that takes `x0` (and `x1`) and gives `y`. The weights are as many as
    /// [`Operator::weights`] says, none where it says none; a file with another number of them does not load.
    pub fn model(&self, weights: &[f32]) -> Bytes {
        let names: Vec<String> = (0..self.inputs().len()).map(|at| format!("x{at}")).collect();
        let mut graph = Writer::default();
        graph.message(1, |node| self.write_node(&names, node));
        graph.bytes(2, "operator");
        if let Some(dims) = self.weights() {
            let raw: Vec<u8> = weights.iter().flat_map(|number| number.to_le_bytes()).collect();
            graph.message(5, |tensor| {
                dims.iter().for_each(|dim| _ = tensor.number(1, (*dim).into()));
                tensor
                    .number(2, type_code(ElementType::F32))
                    .bytes(8, WEIGHTS)
                    .bytes(9, raw);
            });
        }
        for (name, dims) in names.iter().zip(self.inputs()) {
            graph.message(11, |info| describe(info, name, &dims));
        }
        graph.message(12, |info| describe(info, OUTPUT, &self.output()));
        let mut model = Writer::default();
        model.number(1, 8).bytes(2, "karman operator").bytes(7, graph.0);
        model.message(8, |set| _ = set.bytes(1, "").number(2, 17));
        model.0.into()
    }

    fn write_node(&self, names: &[String], node: &mut Writer) {
        let op = match self {
            Self::MatMul { .. } => "MatMul",
            Self::Convolution(_) => "Conv",
            Self::Relu { .. } => "Relu",
            Self::Add { .. } => "Add",
        };
        names.iter().for_each(|name| _ = node.bytes(1, name));
        if self.weights().is_some() {
            node.bytes(1, WEIGHTS);
        }
        node.bytes(2, OUTPUT).bytes(3, op).bytes(4, op);
        if let Self::Convolution(shape) = self {
            let lists = [
                ("kernel_shape", vec![shape.kernel; 2]),
                ("strides", vec![shape.stride; 2]),
                ("pads", vec![shape.kernel / 2; 4]),
            ];
            for (key, values) in lists {
                node.message(5, |attribute| {
                    attribute.bytes(1, key);
                    values
                        .iter()
                        .for_each(|value| _ = attribute.number(8, (*value).into()));
                    attribute.number(20, 7);
                });
            }
            node.message(5, |attribute| {
                _ = attribute
                    .bytes(1, "group")
                    .number(3, shape.groups.into())
                    .number(20, 2);
            });
        }
    }
}

/// The name, type and dimensions of an input or output.
fn describe(info: &mut Writer, name: &str, dims: &[u32]) {
    info.bytes(1, name).message(2, |of_type| {
        of_type.message(1, |tensor| {
            tensor.number(1, type_code(ElementType::F32)).message(2, |shape| {
                for dim in dims {
                    shape.message(1, |entry| _ = entry.number(1, (*dim).into()));
                }
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::super::Convolution;
    use super::*;
    use crate::{Backend, LoadOptions, Model, Tract};
    use karman_tensor::{Shape, Tensor};
    use std::sync::Arc;

    fn loaded(operator: &Operator, weights: &[f32]) -> Arc<dyn Model> {
        Tract
            .load(&operator.model(weights), &LoadOptions::default())
            .unwrap()
    }

    fn ran(operator: &Operator, weights: &[f32], inputs: &[&[f32]]) -> Vec<f32> {
        let given = operator
            .inputs()
            .into_iter()
            .zip(inputs)
            .enumerate()
            .map(|(at, (dims, numbers))| {
                let tensor = Tensor::from_slice(Shape::new(&dims).unwrap(), numbers).unwrap();
                (format!("x{at}"), tensor)
            });
        let outputs = loaded(operator, weights).run(given.collect()).unwrap();
        assert_eq!(outputs[0].1.shape().dims(), operator.output());
        outputs[0].1.view::<f32>().unwrap().to_vec()
    }

    #[test]
    fn a_back_end_runs_them_as_they_are_meant() {
        let product = Operator::MatMul {
            rows: 2,
            inner: 2,
            columns: 3,
        };
        let weights = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0];
        let given: &[f32] = &[1.0, 0.0, 1.0, 1.0];
        assert_eq!(
            ran(&product, &weights, &[given]),
            [1.0, 2.0, 3.0, 11.0, 22.0, 33.0]
        );

        let blur = Convolution {
            channels_in: 1,
            channels_out: 1,
            side: 3,
            kernel: 3,
            stride: 1,
            groups: 1,
        };
        let sums = [4.0, 6.0, 4.0, 6.0, 9.0, 6.0, 4.0, 6.0, 4.0];
        assert_eq!(ran(&Operator::Convolution(blur), &[1.0; 9], &[&[1.0; 9]]), sums);
        let every_second = Operator::Convolution(Convolution { stride: 2, ..blur });
        assert_eq!(ran(&every_second, &[1.0; 9], &[&[1.0; 9]]), [4.0; 4]);
        let each_for_itself = Convolution {
            channels_in: 2,
            channels_out: 2,
            kernel: 1,
            groups: 2,
            ..blur
        };
        let twice = [[2.0; 9], [3.0; 9]].concat();
        assert_eq!(
            ran(
                &Operator::Convolution(each_for_itself),
                &[2.0, 3.0],
                &[&[1.0; 18]]
            ),
            twice
        );

        assert_eq!(
            ran(&Operator::Relu { elements: 3 }, &[], &[&[-1.0, 0.0, 2.0]]),
            [0.0, 0.0, 2.0]
        );
        assert_eq!(
            ran(&Operator::Add { elements: 2 }, &[], &[&[1.0, 2.0], &[3.0, 4.0]]),
            [4.0, 6.0]
        );
    }

    #[test]
    fn too_few_weights_do_not_load() {
        let product = Operator::MatMul {
            rows: 1,
            inner: 2,
            columns: 2,
        };
        assert!(
            Tract
                .load(&product.model(&[1.0; 3]), &LoadOptions::default())
                .is_err()
        );
    }

    #[test]
    fn what_it_computes_and_moves_is_counted() {
        let product = Operator::MatMul {
            rows: 4,
            inner: 256,
            columns: 128,
        };
        assert_eq!(product.flops(), 2.0 * 4.0 * 256.0 * 128.0);
        assert_eq!(product.bytes(), 4.0 * (4.0 * 256.0 + 256.0 * 128.0 + 4.0 * 128.0));
        let shape = Convolution {
            channels_in: 16,
            channels_out: 32,
            side: 14,
            kernel: 3,
            stride: 2,
            groups: 1,
        };
        let convolution = Operator::Convolution(shape);
        assert_eq!(convolution.output(), [1, 32, 7, 7]);
        assert_eq!(convolution.flops(), 2.0 * 16.0 * 9.0 * 32.0 * 49.0);
        assert_eq!(convolution.to_string(), "conv.16-32.14.k3.s2.g1");
        assert_eq!(Operator::Add { elements: 5 }.bytes(), 60.0);
    }
}
