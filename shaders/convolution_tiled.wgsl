// Convolution as a product of matrices that is never written out: filters by taps times taps by pixels. A layer is an image.

fn rows() -> u32 { return parameters.filters; }
fn columns() -> u32 { return parameters.out_height * parameters.out_width; }
fn depth() -> u32 { return parameters.channels * parameters.kernel_height * parameters.kernel_width; }
fn layers() -> u32 { return parameters.batch; }

fn left(batch: u32, row: u32, k: u32) -> f32 {
    if (row < rows() && k < depth()) {
        return weights[row * depth() + k];
    }
    return 0.0;
}

fn right(batch: u32, k: u32, column: u32) -> f32 {
    if (k >= depth() || column >= columns()) {
        return 0.0;
    }
    let x = k % parameters.kernel_width;
    let y = k / parameters.kernel_width % parameters.kernel_height;
    let channel = k / (parameters.kernel_width * parameters.kernel_height);
    let down = column / parameters.out_width;
    let across = column % parameters.out_width;
    let from_row = under(down, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
    let from_column = under(across, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
    if (from_row >= parameters.height || from_column >= parameters.width) {
        return 0.0;
    }
    let plane = (batch * parameters.channels + channel) * parameters.height;
    return image[(plane + from_row) * parameters.width + from_column];
}

fn store(batch: u32, row: u32, column: u32, sum: f32) {
    result[(batch * rows() + row) * columns() + column] = finish(row, sum);
}
