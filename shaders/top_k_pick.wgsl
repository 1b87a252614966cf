// From the counts of all parts the next digit of the least magnitude that is kept, and how many of those that begin with it are
// kept. The first digit starts afresh, whatever is there.

struct Parameters {
    parts: u32,
    shift: u32,
    keep: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> least: array<u32>;

const THREADS: u32 = 256u;

var<workgroup> found: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
    var count = 0u;
    for (var part = 0u; part < parameters.parts; part++) {
        count += counts[part * THREADS + thread];
    }
    found[thread] = count;
    workgroupBarrier();
    if (thread == 0u) {
        var magnitude = 0u;
        var wanted = parameters.keep;
        if (parameters.shift < 24u) {
            magnitude = least[0];
            wanted = least[1];
        }
        var digit = THREADS - 1u;
        while (digit > 0u && found[digit] < wanted) {
            wanted -= found[digit];
            digit--;
        }
        least[0] = magnitude | (digit << parameters.shift);
        least[1] = wanted;
    }
}
