// The tally of each part becomes the sum of those before it. One workgroup, each thread some neighbours.

@group(0) @binding(0) var<uniform> parts: u32;
@group(0) @binding(1) var<storage, read_write> tallies: array<vec2<u32>>;

const THREADS: u32 = 256u;

var<workgroup> totals: array<vec2<u32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
    let run = (parts + THREADS - 1u) / THREADS;
    let begin = min(thread * run, parts);
    let end = min(begin + run, parts);
    var total = vec2<u32>(0u, 0u);
    for (var part = begin; part < end; part++) {
        total += tallies[part];
    }
    totals[thread] = total;
    workgroupBarrier();
    var before = vec2<u32>(0u, 0u);
    for (var other = 0u; other < thread; other++) {
        before += totals[other];
    }
    for (var part = begin; part < end; part++) {
        let here = tallies[part];
        tallies[part] = before;
        before += here;
    }
}
