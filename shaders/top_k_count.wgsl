// How often each digit of 8 bits occurs among the magnitudes that begin as the least one that is kept does. A workgroup counts a
// part of the array.

struct Parameters {
    length: u32,
    shift: u32,
    known: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> sum: array<u32>;
@group(0) @binding(2) var<storage, read> least: array<u32>;
@group(0) @binding(3) var<storage, read_write> counts: array<u32>;

const THREADS: u32 = 256u;

var<workgroup> found: array<atomic<u32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    atomicStore(&found[thread], 0u);
    workgroupBarrier();
    let end = min((group.x + 1u) * PART, parameters.length);
    let begins = least[0] & parameters.known;
    for (var i = group.x * PART + thread; i < end; i += THREADS) {
        let magnitude = sum[i] & 0x7fffffffu;
        if ((magnitude & parameters.known) == begins) {
            atomicAdd(&found[(magnitude >> parameters.shift) & 255u], 1u);
        }
    }
    workgroupBarrier();
    counts[group.x * THREADS + thread] = atomicLoad(&found[thread]);
}
