// The indices that are kept, in order: all greater magnitudes, and the first so many of those that equal the least. A workgroup per
// part, each thread a run of neighbours.

struct Parameters {
    length: u32,
    keep: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> sum: array<u32>;
@group(0) @binding(2) var<storage, read> least: array<u32>;
@group(0) @binding(3) var<storage, read> tallies: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> indices: array<u32>;

const THREADS: u32 = 256u;
const RUN: u32 = PART / THREADS;

var<workgroup> totals: array<vec2<u32>, THREADS>;

// Greater, equal.
fn compared(i: u32) -> vec2<u32> {
    let magnitude = sum[i] & 0x7fffffffu;
    if (magnitude > least[0]) {
        return vec2<u32>(1u, 0u);
    }
    if (magnitude == least[0]) {
        return vec2<u32>(0u, 1u);
    }
    return vec2<u32>(0u, 0u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let begin = min(group.x * PART + thread * RUN, parameters.length);
    let end = min(begin + RUN, parameters.length);
    var total = vec2<u32>(0u, 0u);
    for (var i = begin; i < end; i++) {
        total += compared(i);
    }
    totals[thread] = total;
    workgroupBarrier();
    var before = tallies[group.x];
    for (var other = 0u; other < thread; other++) {
        before += totals[other];
    }
    let equals = least[1];
    for (var i = begin; i < end; i++) {
        let here = compared(i);
        let place = before.x + min(before.y, equals);
        if (place < parameters.keep && (here.x == 1u || (here.y == 1u && before.y < equals))) {
            indices[place] = i;
        }
        before += here;
    }
}
