//! Layers of images: convolutions and pools.

use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::Operation;
use karman_gpu::{Activation, Convolution, Fold, Kernel, Padding, Pool, Reduce, Sides, Step, Window};

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

    pub(super) fn pool(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (image, dims) = self.edge(operation, 0)?;
        let kernel = operation.ints("kernel_shape").unwrap_or_default();
        let (&[batch, channels, height, width], &[kernel_height, kernel_width]) = (&dims[..], kernel) else {
            return refuse(operation, "only images in two dimensions are pooled");
        };
        let (stride, dilation) = (sides(operation, "strides")?, sides(operation, "dilations")?);
        let [kernel_height, kernel_width] =
            [kernel_height, kernel_width].map(|side| u32::try_from(side).unwrap_or(0));
        let (image_sides, kernel) = ([height, width], [kernel_height, kernel_width]);
        let stated = padding(operation, image_sides, kernel, (stride, dilation))?;
        let is_ceiled =
            operation.int("ceil_mode", 0) != 0 && operation.text("auto_pad", "NOTSET") == "NOTSET";
        let padding = match is_ceiled {
            true => ceiled(image_sides, kernel, (stride, dilation), stated),
            false => stated,
        };
        let counts_padding = operation.int("count_include_pad", 0) != 0;
        if counts_padding && operation.op == "AveragePool" && padding != stated {
            return refuse(operation, "its `ceil_mode` goes beyond a padding that it counts");
        }
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
            padding,
            dilation,
            counts_padding,
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

/// The padding with which the last windows are not lost that begin on the image, or on the padding before it, and end beyond what follows it.
fn ceiled(image: [u32; 2], kernel: [u32; 2], (stride, dilation): (Sides, Sides), stated: Padding) -> Padding {
    let rows = (stride.rows, dilation.rows);
    let columns = (stride.columns, dilation.columns);
    Padding {
        bottom: after_last(image[0], kernel[0], rows, (stated.top, stated.bottom)),
        right: after_last(image[1], kernel[1], columns, (stated.left, stated.right)),
        ..stated
    }
}

/// What goes after one side for that.
fn after_last(size: u32, kernel: u32, (stride, dilation): (u32, u32), (before, after): (u32, u32)) -> u32 {
    let [size, kernel, stride, dilation] = [size, kernel, stride.max(1), dilation].map(u64::from);
    let reach = kernel.saturating_sub(1) * dilation + 1;
    let begins = size + u64::from(before);
    let Some(room) = (begins + u64::from(after)).checked_sub(reach) else {
        return after;
    };
    let last = room.div_ceil(stride) * stride;
    let last = if last >= begins {
        last.saturating_sub(stride)
    } else {
        last
    };
    // What 32 bits do not count is longer than any padding may be, and refused.
    u32::try_from((last + reach).saturating_sub(begins)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the ONNX specification has it: a window more where one begins on the image and ends beyond, and none that begins beyond.
    #[test]
    fn windows_that_end_beyond_the_image_are_not_lost() {
        let after = |size, kernel, stride, padding| after_last(size, kernel, (stride, 1), padding);
        assert_eq!(after(6, 3, 2, (0, 0)), 1);
        assert_eq!(after(7, 3, 2, (0, 0)), 0);
        assert_eq!(after(6, 3, 2, (1, 1)), 2);
        // The third would begin on the padding.
        assert_eq!(after(4, 2, 2, (0, 1)), 0);
        assert_eq!(after(2, 1, 2, (0, 0)), 0);
        assert_eq!(after(2, 3, 1, (0, 0)), 0);
        assert_eq!(after_last(6, 2, (3, 2), (0, 0)), 0);
    }

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
