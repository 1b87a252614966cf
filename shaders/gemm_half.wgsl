// Matrices of half precision, two numbers to a word. What is computed with them is of single precision, as on every device.

@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;

fn one_of(word: u32, i: u32) -> f32 {
    let pair = unpack2x16float(word);
    return select(pair.x, pair.y, i % 2u == 1u);
}

fn a_at(i: u32) -> f32 { return one_of(a[i / 2u], i); }
fn b_at(i: u32) -> f32 { return one_of(b[i / 2u], i); }
