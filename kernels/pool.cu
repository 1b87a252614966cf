// The largest (FOLD 0) or the mean (1) of each window of an image, a thread per element of the result.

struct Parameters {
    unsigned planes;
    unsigned height;
    unsigned width;
    unsigned kernel_height;
    unsigned kernel_width;
    unsigned stride_rows;
    unsigned stride_columns;
    unsigned pad_top;
    unsigned pad_left;
    unsigned out_height;
    unsigned out_width;
    unsigned counts_padding;
    unsigned dilation_rows;
    unsigned dilation_columns;
};

struct Buffers {
    const float *image;
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) {
    return parameters.planes * parameters.out_height * parameters.out_width;
}

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned element) {
    const unsigned column = element % parameters.out_width;
    const unsigned row = element / parameters.out_width % parameters.out_height;
    const unsigned plane = element / parameters.out_width / parameters.out_height * parameters.height;
    float most = -3.4028234e38f;
    float sum = 0.0f;
    unsigned count = 0;
    for (unsigned y = 0; y < parameters.kernel_height; y++) {
        const unsigned from_row =
            under(row, y, parameters.stride_rows, parameters.dilation_rows, parameters.pad_top);
        for (unsigned x = 0; x < parameters.kernel_width; x++) {
            const unsigned from_column =
                under(column, x, parameters.stride_columns, parameters.dilation_columns, parameters.pad_left);
            if (from_row < parameters.height && from_column < parameters.width) {
                const float value = buffers.image[(plane + from_row) * parameters.width + from_column];
                most = fmaxf(most, value);
                sum += value;
                count++;
            }
        }
    }
    if (parameters.counts_padding == 1) {
        count = parameters.kernel_height * parameters.kernel_width;
    }
    buffers.result[element] = FOLD == 0 ? most : sum / (float)count;
}

