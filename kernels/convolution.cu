// Convolution, a thread per element of the result: for grouped and depthwise layers, where there is little to share.

static __device__ unsigned elements(const Parameters &parameters) {
    return parameters.batch * parameters.filters * parameters.out_height * parameters.out_width;
}

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned element) {
    const unsigned pixels = parameters.out_height * parameters.out_width;
    const unsigned column = element % parameters.out_width;
    const unsigned row = element / parameters.out_width % parameters.out_height;
    const unsigned filter = element / pixels % parameters.filters;
    const unsigned batch = element / pixels / parameters.filters;
    const unsigned channels = parameters.channels / parameters.groups;
    const unsigned first_channel = filter / (parameters.filters / parameters.groups) * channels;
    float sum = 0.0f;
    for (unsigned channel = 0; channel < channels; channel++) {
        const unsigned plane = (batch * parameters.channels + first_channel + channel) * parameters.height;
        for (unsigned y = 0; y < parameters.kernel_height; y++) {
            const unsigned from_row =
                under(row, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
            for (unsigned x = 0; x < parameters.kernel_width; x++) {
                const unsigned from_column =
                    under(column, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
                if (from_row < parameters.height && from_column < parameters.width) {
                    const unsigned tap =
                        ((filter * channels + channel) * parameters.kernel_height + y) * parameters.kernel_width + x;
                    sum += buffers.weights[tap] * buffers.image[(plane + from_row) * parameters.width + from_column];
                }
            }
        }
    }
    buffers.result[element] = finish(parameters, buffers, filter, sum);
}

