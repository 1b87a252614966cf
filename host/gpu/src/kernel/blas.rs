use super::Describe;
use super::gemm::{Activation, Gemm};
use super::pass::{EACH, Pass, Source, each};
use crate::error::GpuError;

/// A product of matrices as a library of linear algebra (BLAS) is asked for it, which has matrices column by column: what is row by row
/// here is there the transposed matrix, so that `C = A B` is asked for as `Cᵀ = Bᵀ Aᵀ`.
#[derive(Clone, Debug)]
pub struct Product {
    /// Whether the first matrix, which is argument 1, is to be transposed: `CUBLAS_OP_T`. The second, argument 0, never is.
    pub transposed: bool,
    /// Rows of the first matrix and of the result.
    pub m: u32,
    /// Columns of the second matrix and of the result.
    pub n: u32,
    /// What is summed over.
    pub k: u32,
    /// Elements from one column of the first matrix, as it lies in memory, to the next.
    pub first_stride: u32,
    /// Elements from one column of the second matrix to the next.
    pub second_stride: u32,
    /// Elements from one column of the result to the next.
    pub result_stride: u32,
    /// Whether both matrices are of half precision. Sums and the result are single.
    pub half: bool,
    /// Which argument the result is.
    pub result: usize,
    /// What is done to the result afterwards, in place.
    pub finish: Option<Pass>,
}

impl Product {
    /// That of a kernel.
    pub(super) fn new(gemm: &Gemm) -> Result<Self, GpuError> {
        gemm.check()?;
        let result = if gemm.bias { 3 } else { 2 };
        let plain = !gemm.bias && gemm.activation == Activation::None;
        let finish = (!plain).then(|| finish(gemm, result));
        finish.iter().try_for_each(Pass::check)?;
        Ok(Self {
            transposed: gemm.transposed,
            m: gemm.n,
            n: gemm.m,
            k: gemm.k,
            first_stride: gemm.b_row(),
            second_stride: gemm.a_row(),
            result_stride: gemm.n,
            half: gemm.half,
            result,
            finish,
        })
    }
}

/// Bias and activation. Without a bias any buffer will do in its place.
fn finish(gemm: &Gemm, result: usize) -> Pass {
    // Its shape was checked: the result has 2²⁸ elements at most.
    let elements = gemm.m * gemm.n;
    Pass {
        name: "finish",
        source: Source::new("", cuda!("finish", "each")),
        constants: vec![],
        parameters: vec![elements, gemm.n, u32::from(gemm.bias), gemm.activation as u32],
        bindings: vec![if gemm.bias { 2 } else { 0 }, result],
        threads: EACH,
        workgroups: each(u64::from(elements)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{inputs, matrix};
    use crate::kernel::{Kernel, floats, halves};

    /// What BLAS says of itself: column by column, and in double precision.
    fn blas(product: &Product, first: &[f64], second: &[f64]) -> Vec<f64> {
        let [m, n, k] = [product.m, product.n, product.k].map(|size| size as usize);
        let [lda, ldb, ldc] = [product.first_stride, product.second_stride, product.result_stride]
            .map(|stride| stride as usize);
        let mut result = vec![0.0; ldc * n];
        for column in 0..n {
            for row in 0..m {
                let first = |inner: usize| match product.transposed {
                    true => first[inner + row * lda],
                    false => first[row + inner * lda],
                };
                let products = (0..k).map(|inner| first(inner) * second[inner + column * ldb]);
                result[row + column * ldc] = products.sum();
            }
        }
        result
    }

    #[test]
    fn a_product_is_what_the_library_is_asked_for() {
        let mut products = 0;
        for kernel in matrix() {
            let Some(product) = kernel.product().unwrap() else {
                continue;
            };
            // What is done afterwards is not part of it.
            let Kernel::Gemm(mut gemm) = kernel else {
                panic!("only these are products of matrices")
            };
            (gemm.bias, gemm.activation) = (false, Activation::None);
            let plain = Kernel::Gemm(gemm);
            let inputs = inputs(&plain, 1).unwrap();
            let numbers = |words: &[u32]| -> Vec<f64> {
                match product.half {
                    true => halves(words).iter().map(|half| half.to_f64()).collect(),
                    false => floats(words).iter().map(|single| f64::from(*single)).collect(),
                }
            };
            let got = blas(&product, &numbers(&inputs[1]), &numbers(&inputs[0]));
            let given: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
            let expected = plain.reference(&given).unwrap();
            assert!(expected[0].error(&got) < 1e-12, "{plain:?}");
            products += 1;
        }
        assert!(products > 20);
    }
}
