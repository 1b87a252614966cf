// A few rows of activations (half precision, two to a word) times weights of BITS bits in groups. A workgroup takes ROWS rows of
// weights, counted over x and y, for the row z of activations; each thread some words of all of them. Per word, sum (q x) - zero
// sum x, so that the inner loop does not subtract.

var<workgroup> partial: array<f32, THREADS * ROWS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = (workgroup.y * workgroups.x + workgroup.x) * ROWS;
    let row_begin = workgroup.z * parameters.k / 2u;
    var sums: array<f32, ROWS>;
    for (var word = thread; word < parameters.row_words; word += THREADS) {
        let begin = word * PER_WORD;
        let group = begin / parameters.group;
        var x: array<vec2<f32>, PER_WORD / 2u>;
        var sum_x = 0.0;
        for (var pair = 0u; pair < PER_WORD / 2u; pair++) {
            if (begin + 2u * pair < parameters.k) {
                x[pair] = unpack2x16float(activations[row_begin + begin / 2u + pair]);
                sum_x += x[pair].x + x[pair].y;
            }
        }
        for (var r = 0u; r < ROWS; r++) {
            let row = first + r;
            if (row < parameters.n) {
                let q = weights[row * parameters.row_words + word];
                let scale = scales[row * parameters.groups + group];
                var sum = 0.0;
                for (var pair = 0u; pair < PER_WORD / 2u; pair++) {
                    let low = f32((q >> (2u * pair * BITS)) & MASK);
                    let high = f32((q >> ((2u * pair + 1u) * BITS)) & MASK);
                    sum += low * x[pair].x + high * x[pair].y;
                }
                sums[r] += unpack2x16float(scale & 0xffffu).x * (sum - f32(scale >> 16u) * sum_x);
            }
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        partial[r * THREADS + thread] = sums[r];
    }
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            for (var r = 0u; r < ROWS; r++) {
                partial[r * THREADS + thread] += partial[r * THREADS + thread + step];
            }
        }
        workgroupBarrier();
    }
    if (thread < ROWS && first + thread < parameters.n) {
        c[workgroup.z * parameters.n + first + thread] = partial[thread * THREADS];
    }
}
