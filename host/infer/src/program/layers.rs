//! Layers: convolutions, products, pooling and norms.

use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::Operation;
use karman_gpu::{
    Activation, Convolution, Fold, Gemm, Kernel, Norm, Normalise, Padding, Pool, Reduce, Sides, Step, Window,
};

impl Translation<'_> {
    pub(super) fn convolution(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (image, dims) = self.edge(operation, 0)?;
        let weights = self.constant(operation, 1)?;
        let bias = self.optional(operation, 2)?;
        let (&[batch, channels, height, width], &[filters, of_group, kernel_height, kernel_width]) =
            (&dims[..], &weights.shape[..])
        else {
            return refuse(operation, "only images in two dimensions are convolved");
        };
        let groups = u32::try_from(operation.int("group", 1)).unwrap_or(0);
        if of_group == 0 || of_group.checked_mul(groups) != Some(channels) {
            return refuse(operation, "its weights are for another number of channels");
        }
        let (stride, dilation) = (sides(operation, "strides")?, sides(operation, "dilations")?);
        let shape = Convolution {
            batch,
            channels,
            height,
            width,
            filters,
            kernel_height,
            kernel_width,
            stride,
            padding: padding(
                operation,
                [height, width],
                [kernel_height, kernel_width],
                (stride, dilation),
            )?,
            dilation,
            groups,
            bias: bias.is_some(),
            activation: Activation::None,
        };
        let mut inputs = vec![image, self.hold(weights.values)?];
        if let Some(bias) = bias {
            inputs.push(self.hold(bias.values)?);
        }
        Ok(self.draft.call(Kernel::Convolution(shape), inputs)?)
    }

    pub(super) fn gemm(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (a, dims) = self.edge(operation, 0)?;
        let b = self.constant(operation, 1)?;
        let bias = self.optional(operation, 2)?;
        for (name, wanted) in [("alpha", 1.0), ("beta", 1.0)] {
            if operation.float(name, wanted).to_bits() != f32::to_bits(wanted) {
                return refuse(operation, format!("its `{name}` is not 1"));
            }
        }
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
        let mut inputs = vec![a, self.hold(b.values)?];
        if let Some(bias) = &bias {
            let values = match &bias.values[..] {
                &[one] => vec![one; n as usize],
                _ if bias.values.len() == n as usize && bias.shape.last() == Some(&n) => bias.values.clone(),
                _ => return refuse(operation, "what it adds is not the same for every row"),
            };
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

    /// A tensor, of which all but the last dimension are rows, times a matrix.
    pub(super) fn product(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (a, dims) = self.edge(operation, 0)?;
        let b = self.constant(operation, 1)?;
        let (Some((&k, rows)), &[inner, n]) = (dims.split_last(), &b.shape[..]) else {
            return refuse(operation, "only a product with a matrix of the file is computed");
        };
        let Ok(m) = u32::try_from(count(rows)) else {
            return refuse(operation, "it has too many rows");
        };
        if inner != k {
            return refuse(operation, "its matrices do not fit each other");
        }
        let shape = Gemm {
            m,
            n,
            k,
            ..Gemm::default()
        };
        let inputs = vec![a, self.hold(b.values)?];
        Ok(self.draft.call(Kernel::Gemm(shape), inputs)?)
    }

    pub(super) fn pool(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (image, dims) = self.edge(operation, 0)?;
        let kernel = operation.ints("kernel_shape").unwrap_or_default();
        let (&[batch, channels, height, width], &[kernel_height, kernel_width]) = (&dims[..], kernel) else {
            return refuse(operation, "only images in two dimensions are pooled");
        };
        let (stride, dilation) = (sides(operation, "strides")?, sides(operation, "dilations")?);
        if dilation != Sides::both(1) {
            return refuse(operation, "its `dilations` are not 1");
        }
        let [kernel_height, kernel_width] =
            [kernel_height, kernel_width].map(|side| u32::try_from(side).unwrap_or(0));
        let shape = Pool {
            window: match operation.op.as_str() {
                "MaxPool" => Window::Max,
                _ => Window::Mean,
            },
            planes: batch.saturating_mul(channels),
            height,
            width,
            kernel_height,
            kernel_width,
            stride,
            padding: padding(
                operation,
                [height, width],
                [kernel_height, kernel_width],
                (stride, dilation),
            )?,
            counts_padding: operation.int("count_include_pad", 0) != 0,
        };
        Ok(self.draft.call(Kernel::Pool(shape), vec![image])?)
    }

    /// One number from each whole map.
    pub(super) fn whole(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (image, dims) = self.edge(operation, 0)?;
        let Some((maps, sides)) = dims.split_at_checked(2) else {
            return refuse(operation, "it is given no maps");
        };
        let (Ok(rows), Ok(columns)) = (u32::try_from(count(maps)), u32::try_from(count(sides))) else {
            return refuse(operation, "it has too many maps");
        };
        let is_mean = operation.op == "GlobalAveragePool";
        let fold = if is_mean { Fold::Sum } else { Fold::Max };
        let slot = self
            .draft
            .call(Kernel::Reduce(Reduce { fold, rows, columns }), vec![image])?;
        match is_mean {
            true => Ok(self.draft.steps(slot, &[Step::Scale(1.0 / columns as f32)])?),
            false => Ok(slot),
        }
    }

    pub(super) fn softmax(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (values, dims) = self.edge(operation, 0)?;
        let axis = operation.int("axis", -1);
        let from_end = if axis < 0 { dims.len() as i64 } else { 0 };
        let Some((before, [columns, after @ ..])) = usize::try_from(axis.saturating_add(from_end))
            .ok()
            .and_then(|axis| dims.split_at_checked(axis))
        else {
            return refuse(operation, format!("its `axis` is {axis}"));
        };
        let Ok(rows) = u32::try_from(count(before)) else {
            return refuse(operation, "it has too many rows");
        };
        if count(after) != 1 {
            return refuse(operation, "it is not over the last axis");
        }
        let shape = Norm {
            normalise: Normalise::Softmax,
            rows,
            columns: *columns,
            epsilon_millionths: 10,
        };
        Ok(self.draft.call(Kernel::Norm(shape), vec![values])?)
    }
}

/// A setting for the rows and the columns of an image; 1 where it is left out.
fn sides(operation: &Operation<'_>, name: &str) -> Result<Sides, InferError> {
    let Some(values) = operation.ints(name) else {
        return Ok(Sides::both(1));
    };
    let side = |value: i64| u32::try_from(value).ok();
    let sides = match values {
        &[rows, columns] => side(rows).zip(side(columns)),
        _ => None,
    };
    match sides {
        Some((rows, columns)) => Ok(Sides { rows, columns }),
        None => refuse(
            operation,
            format!("its `{name}` are {values:?}, and not one for rows and one for columns"),
        ),
    }
}

/// The padding of an image of these sizes under a kernel of those.
fn padding(
    operation: &Operation<'_>,
    image: [u32; 2],
    kernel: [u32; 2],
    (stride, dilation): (Sides, Sides),
) -> Result<Padding, InferError> {
    let like = |begins_larger: bool| {
        let (top, bottom) = same(image[0], kernel[0], stride.rows, dilation.rows, begins_larger);
        let (left, right) = same(
            image[1],
            kernel[1],
            stride.columns,
            dilation.columns,
            begins_larger,
        );
        Padding {
            top,
            left,
            bottom,
            right,
        }
    };
    match operation.text("auto_pad", "NOTSET") {
        "NOTSET" => stated(operation),
        "VALID" => Ok(Padding::default()),
        "SAME_UPPER" => Ok(like(false)),
        "SAME_LOWER" => Ok(like(true)),
        other => refuse(operation, format!("its `auto_pad` is {other:?}")),
    }
}

/// The padding that stands in the file.
fn stated(operation: &Operation<'_>) -> Result<Padding, InferError> {
    let Some(values) = operation.ints("pads") else {
        return Ok(Padding::default());
    };
    let sides: Option<Vec<u32>> = values.iter().map(|value| u32::try_from(*value).ok()).collect();
    match sides.as_deref() {
        Some(&[top, left, bottom, right]) => Ok(Padding {
            top,
            left,
            bottom,
            right,
        }),
        _ => refuse(
            operation,
            format!("its `pads` are {values:?}, and not one for each side of an image"),
        ),
    }
}

/// What goes before and after one side, so that there is a result for every stride of it: the larger half at its end, or its beginning.
fn same(size: u32, kernel: u32, stride: u32, dilation: u32, begins_larger: bool) -> (u32, u32) {
    let [size, kernel, stride, dilation] = [size, kernel, stride.max(1), dilation].map(u64::from);
    let last = size.div_ceil(stride).saturating_sub(1) * stride;
    let reach = kernel.saturating_sub(1) * dilation + 1;
    let both = (last + reach).saturating_sub(size);
    // What 32 bits do not count is longer than any padding may be, and refused.
    let [less, more] = [both / 2, both.div_ceil(2)].map(|half| u32::try_from(half).unwrap_or(u32::MAX));
    match begins_larger {
        true => (more, less),
        false => (less, more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the ONNX specification has it: as many results as strides, and what is odd goes to the end or to the beginning.
    #[test]
    fn the_same_size_comes_out_as_went_in() {
        assert_eq!(same(8, 3, 1, 1, false), (1, 1));
        assert_eq!(same(8, 3, 2, 1, false), (0, 1));
        assert_eq!(same(8, 3, 2, 1, true), (1, 0));
        assert_eq!(same(7, 4, 1, 1, false), (1, 2));
        assert_eq!(same(7, 3, 1, 3, false), (3, 3));
        assert_eq!(same(9, 1, 2, 1, false), (0, 0));
        assert_eq!(same(1, u32::MAX, 1, u32::MAX, false), (u32::MAX, u32::MAX));
    }
}
