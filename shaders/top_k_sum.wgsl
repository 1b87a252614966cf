// An update plus what earlier ones lost. Numbers below the normal ones count as 0: devices differ on them.

@group(0) @binding(0) var<uniform> length: u32;
@group(0) @binding(1) var<storage, read> update: array<u32>;
@group(0) @binding(2) var<storage, read> lost: array<u32>;
@group(0) @binding(3) var<storage, read_write> sum: array<u32>;

fn elements() -> u32 { return length; }

fn normal(bits: u32) -> u32 {
    if ((bits & 0x7f800000u) == 0u) {
        return 0u;
    }
    return bits;
}

fn each(i: u32) {
    let value = bitcast<f32>(normal(update[i])) + bitcast<f32>(normal(lost[i]));
    sum[i] = normal(bitcast<u32>(value));
}
