// How many magnitudes of a part are greater than the least that is kept, and how many equal it: a workgroup per part.

@group(0) @binding(0) var<uniform> length: u32;
@group(0) @binding(1) var<storage, read> sum: array<u32>;
@group(0) @binding(2) var<storage, read> least: array<u32>;
@group(0) @binding(3) var<storage, read_write> tallies: array<u32>;

const THREADS: u32 = 256u;

var<workgroup> found: array<atomic<u32>, 2>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if (thread < 2u) {
        atomicStore(&found[thread], 0u);
    }
    workgroupBarrier();
    let end = min((group.x + 1u) * PART, length);
    var greater = 0u;
    var equal = 0u;
    for (var i = group.x * PART + thread; i < end; i += THREADS) {
        let magnitude = sum[i] & 0x7fffffffu;
        if (magnitude > least[0]) {
            greater += 1u;
        } else if (magnitude == least[0]) {
            equal += 1u;
        }
    }
    atomicAdd(&found[0], greater);
    atomicAdd(&found[1], equal);
    workgroupBarrier();
    if (thread < 2u) {
        tallies[group.x * 2u + thread] = atomicLoad(&found[thread]);
    }
}
