//! Products of matrices.

use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::Operation;
use karman_gpu::{Arithmetic, BatchedGemm, Broadcast, Gemm, Kernel};

impl Translation<'_> {
    pub(super) fn gemm(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (a, dims) = self.edge(operation, 0)?;
        let mut b = self.constant(operation, 1)?;
        let bias = self.optional(operation, 2)?;
        if operation.int("transA", 0) != 0 {
            return refuse(operation, "its `transA` is set");
        }
        let transposed = operation.int("transB", 0) != 0;
        let (&[m, k], &[rows, columns]) = (&dims[..], &b.shape[..]) else {
            return refuse(operation, "only matrices are multiplied");
        };
        let (inner, n) = if transposed {
            (columns, rows)
        } else {
            (rows, columns)
        };
        if inner != k || k == 0 {
            return refuse(operation, "its matrices do not fit each other");
        }
        scale(&mut b.values, operation.float("alpha", 1.0));
        let mut inputs = vec![a, self.hold(b.values)?];
        if let Some(bias) = &bias {
            let mut values = match &bias.values[..] {
                &[one] => vec![one; n as usize],
                _ if bias.values.len() == n as usize && bias.shape.last() == Some(&n) => bias.values.clone(),
                _ => return refuse(operation, "what it adds is not the same for every row"),
            };
            scale(&mut values, operation.float("beta", 1.0));
            inputs.push(self.hold(values)?);
        }
        let shape = Gemm {
            m,
            n,
            k,
            transposed,
            bias: bias.is_some(),
            ..Gemm::default()
        };
        Ok(self.draft.call(Kernel::Gemm(shape), inputs)?)
    }

    /// A tensor, of which all but the last dimension are rows, times a matrix; or matrices times matrices, each its own.
    pub(super) fn product(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (a, first) = self.operand(operation, 0)?;
        let (b, second) = self.operand(operation, 1)?;
        let (&[ref outer_a @ .., m, k], &[ref outer_b @ .., inner, n]) = (&first[..], &second[..]) else {
            return refuse(operation, "only matrices are multiplied");
        };
        if inner != k {
            return refuse(operation, "its matrices do not fit each other");
        }
        if count(outer_b) == 1 {
            let Ok(m) = u32::try_from(count(outer_a).saturating_mul(m.into())) else {
                return refuse(operation, "it has too many rows");
            };
            let shape = Gemm {
                m,
                n,
                k,
                ..Gemm::default()
            };
            return Ok(self.draft.call(Kernel::Gemm(shape), vec![a, b])?);
        }
        let both = Broadcast {
            arithmetic: Arithmetic::Multiply,
            first: outer_a.to_vec(),
            second: outer_b.to_vec(),
        };
        let counted = |outer: Vec<u32>| u32::try_from(count(&outer)).ok().map(|batch| (outer, batch));
        let Some((outer, batch)) = both.sizes().and_then(counted) else {
            return refuse(
                operation,
                format!("it multiplies {outer_a:?} matrices by {outer_b:?}"),
            );
        };
        let shares_a = count(outer_a) == 1;
        let a = match shares_a {
            true => a,
            false => self.of_each(operation, a, &first, &[&outer[..], &[m, k]].concat())?,
        };
        let b = self.of_each(operation, b, &second, &[&outer[..], &[k, n]].concat())?;
        let shape = BatchedGemm {
            batch,
            m,
            n,
            k,
            shares_a,
            shares_b: false,
        };
        Ok(self.draft.call(Kernel::BatchedGemm(shape), vec![a, b])?)
    }

    /// Matrices, one for each product.
    fn of_each(
        &mut self,
        operation: &Operation<'_>,
        slot: Slot,
        dims: &[u32],
        gives: &[u32],
    ) -> Result<Slot, InferError> {
        match self.expanded(slot, dims, gives)? {
            Some(slot) => Ok(slot),
            None => refuse(operation, format!("it makes {gives:?} of {dims:?}")),
        }
    }
}

fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}
