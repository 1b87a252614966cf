// What a convolution is given.

struct Parameters {
    unsigned batch;
    unsigned channels;
    unsigned height;
    unsigned width;
    unsigned filters;
    unsigned kernel_height;
    unsigned kernel_width;
    unsigned stride_rows;
    unsigned stride_columns;
    unsigned pad_top;
    unsigned pad_left;
    unsigned dilation_rows;
    unsigned dilation_columns;
    unsigned groups;
    unsigned out_height;
    unsigned out_width;
    unsigned biased;
    unsigned activation;
};

struct Buffers {
    const float *image;
    const float *weights;
    const float *bias;
    float *result;
};

static __device__ float finish(const Parameters &parameters, const Buffers &buffers, unsigned filter, float sum) {
    return activate(parameters.biased == 1 ? sum + buffers.bias[filter] : sum, parameters.activation);
}

