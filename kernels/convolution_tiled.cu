// Convolution as a product of matrices that is never written out: filters by taps times taps by pixels. A layer is an image.

static __device__ unsigned rows(const Parameters &parameters) { return parameters.filters; }

static __device__ unsigned columns(const Parameters &parameters) {
    return parameters.out_height * parameters.out_width;
}

static __device__ unsigned depth(const Parameters &parameters) {
    return parameters.channels * parameters.kernel_height * parameters.kernel_width;
}

static __device__ unsigned layers(const Parameters &parameters) { return parameters.batch; }

static __device__ float left(
    const Parameters &parameters, const Buffers &buffers, unsigned batch, unsigned row, unsigned k
) {
    if (row < rows(parameters) && k < depth(parameters)) {
        return buffers.weights[row * depth(parameters) + k];
    }
    return 0.0f;
}

static __device__ float right(
    const Parameters &parameters, const Buffers &buffers, unsigned batch, unsigned k, unsigned column
) {
    if (k >= depth(parameters) || column >= columns(parameters)) {
        return 0.0f;
    }
    const unsigned x = k % parameters.kernel_width;
    const unsigned y = k / parameters.kernel_width % parameters.kernel_height;
    const unsigned channel = k / (parameters.kernel_width * parameters.kernel_height);
    const unsigned down = column / parameters.out_width;
    const unsigned across = column % parameters.out_width;
    const unsigned from_row =
        under(down, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
    const unsigned from_column =
        under(across, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
    if (from_row >= parameters.height || from_column >= parameters.width) {
        return 0.0f;
    }
    const unsigned plane = (batch * parameters.channels + channel) * parameters.height;
    return buffers.image[(plane + from_row) * parameters.width + from_column];
}

static __device__ void store(
    const Parameters &parameters, const Buffers &buffers, unsigned batch, unsigned row, unsigned column, float sum
) {
    const unsigned at = (batch * rows(parameters) + row) * columns(parameters) + column;
    buffers.result[at] = finish(parameters, buffers, row, sum);
}

