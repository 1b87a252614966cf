// Attention of one query of one head per workgroup: 64 keys at a time, the softmax rescaled whenever a larger score comes by.

struct Parameters {
    heads_per_key: u32,
    queries: u32,
    keys: u32,
    width: u32,
    causal: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

const BLOCK: u32 = 64u;
const MOST_WIDTH: u32 = 256u;
const LEAST: f32 = -3.4028234e38;

var<workgroup> shared_query: array<f32, MOST_WIDTH>;
var<workgroup> scores: array<f32, BLOCK>;

@compute @workgroup_size(BLOCK)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let width = parameters.width;
    let at = (group.y * parameters.queries + group.x) * width;
    let head = group.y / parameters.heads_per_key * parameters.keys * width;
    let seen = select(
        parameters.keys,
        group.x + 1u + parameters.keys - parameters.queries,
        parameters.causal == 1u,
    );
    for (var i = thread; i < width; i += BLOCK) {
        shared_query[i] = queries[at + i] * parameters.scale;
    }
    workgroupBarrier();
    var largest = LEAST;
    var total = 0.0;
    var sums: array<f32, MOST_WIDTH / BLOCK>;
    for (var begin = 0u; begin < seen; begin += BLOCK) {
        let here = min(BLOCK, seen - begin);
        var score = LEAST;
        if (thread < here) {
            let key = head + (begin + thread) * width;
            score = 0.0;
            for (var i = 0u; i < width; i++) {
                score += shared_query[i] * keys[key + i];
            }
        }
        scores[thread] = score;
        workgroupBarrier();
        var new_largest = largest;
        for (var i = 0u; i < here; i++) {
            new_largest = max(new_largest, scores[i]);
        }
        workgroupBarrier();
        scores[thread] = exp(score - new_largest);
        workgroupBarrier();
        let shrink = exp(largest - new_largest);
        total *= shrink;
        for (var i = 0u; i < here; i++) {
            total += scores[i];
        }
        for (var part = 0u; part < MOST_WIDTH / BLOCK; part++) {
            let column = part * BLOCK + thread;
            if (column < width) {
                var sum = sums[part] * shrink;
                for (var i = 0u; i < here; i++) {
                    sum += scores[i] * values[head + (begin + i) * width + column];
                }
                sums[part] = sum;
            }
        }
        largest = new_largest;
        workgroupBarrier();
    }
    for (var part = 0u; part < MOST_WIDTH / BLOCK; part++) {
        let column = part * BLOCK + thread;
        if (column < width) {
            result[at + column] = sums[part] / total;
        }
    }
}
