// Rows of tables by their numbers, a thread per element of the result.

struct Parameters {
    unsigned tables;
    unsigned rows;
    unsigned width;
    unsigned numbers;
};

struct Buffers {
    const float *table;
    const int *numbers;
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) {
    return parameters.tables * parameters.numbers * parameters.width;
}

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    const unsigned column = i % parameters.width;
    const unsigned place = i / parameters.width;
    const int rows = (int)parameters.rows;
    int number = buffers.numbers[place % parameters.numbers];
    number = number < 0 ? number + rows : number;
    const unsigned row = (unsigned)(number < 0 ? 0 : number < rows ? number : rows - 1);
    const unsigned of_table = place / parameters.numbers * parameters.rows;
    buffers.result[i] = buffers.table[(of_table + row) * parameters.width + column];
}

