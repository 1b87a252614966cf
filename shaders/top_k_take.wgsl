// What is kept, from the sum by its index. Each index is one that `top_k_place.wgsl` wrote, or the 0 that was there.

@group(0) @binding(0) var<uniform> keep: u32;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> sum: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<u32>;

fn elements() -> u32 { return keep; }

fn each(i: u32) {
    values[i] = sum[indices[i]];
}
