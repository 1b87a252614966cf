// A few rows times a matrix: a thread per column and part of the inner dimension, so that neighbours read neighbours.

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float partial[PARTS * COLUMNS];
    const unsigned column = blockIdx.x * COLUMNS + threadIdx.x;
    const unsigned row = blockIdx.y;
    float sum = 0.0f;
    if (column < parameters.n) {
        for (unsigned k = threadIdx.y; k < parameters.k; k += PARTS) {
            sum += a_at(buffers, row * parameters.a_row + k) * b_at(buffers, k * parameters.b_k + column);
        }
    }
    partial[threadIdx.y * COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < parameters.n) {
        float value = 0.0f;
        for (unsigned part = 0; part < PARTS; part++) {
            value += partial[part * COLUMNS + threadIdx.x];
        }
        buffers.c[row * parameters.n + column] = finish(parameters, buffers.bias, column, value);
    }
}
