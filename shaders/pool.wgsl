// The largest (FOLD 0) or the mean (1) of each window of an image, a thread per element of the result.

struct Parameters {
    planes: u32,
    height: u32,
    width: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_rows: u32,
    stride_columns: u32,
    pad_top: u32,
    pad_left: u32,
    out_height: u32,
    out_width: u32,
    counts_padding: u32,
    dilation_rows: u32,
    dilation_columns: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> image: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return parameters.planes * parameters.out_height * parameters.out_width; }

fn each(element: u32) {
    let column = element % parameters.out_width;
    let row = element / parameters.out_width % parameters.out_height;
    let plane = element / parameters.out_width / parameters.out_height * parameters.height;
    var most = -3.4028234e38;
    var sum = 0.0;
    var count = 0u;
    for (var y = 0u; y < parameters.kernel_height; y++) {
        let from_row = under(row, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
        for (var x = 0u; x < parameters.kernel_width; x++) {
            let from_column = under(column, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
            if (from_row < parameters.height && from_column < parameters.width) {
                let value = image[(plane + from_row) * parameters.width + from_column];
                most = max(most, value);
                sum += value;
                count++;
            }
        }
    }
    if (parameters.counts_padding == 1u) {
        count = parameters.kernel_height * parameters.kernel_width;
    }
    if (FOLD == 0u) {
        result[element] = most;
    } else {
        result[element] = sum / f32(count);
    }
}
