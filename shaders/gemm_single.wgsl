// Matrices of single precision.

@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;

fn a_at(i: u32) -> f32 { return a[i]; }
fn b_at(i: u32) -> f32 { return b[i]; }
