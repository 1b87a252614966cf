// Convolution, a thread per element of the result: for grouped and depthwise layers, where there is little to share.

fn elements() -> u32 { return parameters.batch * parameters.filters * parameters.out_height * parameters.out_width; }

fn each(element: u32) {
    let pixels = parameters.out_height * parameters.out_width;
    let column = element % parameters.out_width;
    let row = element / parameters.out_width % parameters.out_height;
    let filter_number = element / pixels % parameters.filters;
    let batch = element / pixels / parameters.filters;
    let channels = parameters.channels / parameters.groups;
    let first_channel = filter_number / (parameters.filters / parameters.groups) * channels;
    var sum = 0.0;
    for (var channel = 0u; channel < channels; channel++) {
        let plane = (batch * parameters.channels + first_channel + channel) * parameters.height;
        for (var y = 0u; y < parameters.kernel_height; y++) {
            let from_row = under(row, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
            for (var x = 0u; x < parameters.kernel_width; x++) {
                let from_column = under(column, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
                if (from_row < parameters.height && from_column < parameters.width) {
                    let tap = ((filter_number * channels + channel) * parameters.kernel_height + y) * parameters.kernel_width + x;
                    sum += weights[tap] * image[(plane + from_row) * parameters.width + from_column];
                }
            }
        }
    }
    result[element] = finish(filter_number, sum);
}
