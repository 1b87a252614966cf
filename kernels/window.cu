// Where a tap of a kernel lies along one side of an image. Below zero it wraps around and is larger than any image.

static __device__ unsigned under(unsigned application, unsigned tap, unsigned stride, unsigned dilation, unsigned before) {
    return application * stride + tap * dilation - before;
}

