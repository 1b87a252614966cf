// The key stream of ChaCha20 (RFC 8439) under the zero nonce, added to integers or subtracted: a thread per block of 16 words.

@group(0) @binding(0) var<uniform> length: u32;
@group(0) @binding(1) var<storage, read> values: array<u32>;
@group(0) @binding(2) var<storage, read> key: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

fn turn(word: vec4<u32>, by: u32) -> vec4<u32> {
    return (word << vec4<u32>(by)) | (word >> vec4<u32>(32u - by));
}

fn elements() -> u32 { return (length + 15u) / 16u; }

fn each(counter: u32) {
    let start_a = vec4<u32>(0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u);
    let start_b = vec4<u32>(key[0], key[1], key[2], key[3]);
    let start_c = vec4<u32>(key[4], key[5], key[6], key[7]);
    let start_d = vec4<u32>(counter, 0u, 0u, 0u);
    var a = start_a;
    var b = start_b;
    var c = start_c;
    var d = start_d;
    for (var round = 0u; round < 20u; round++) {
        a += b;
        d = turn(d ^ a, 16u);
        c += d;
        b = turn(b ^ c, 12u);
        a += b;
        d = turn(d ^ a, 8u);
        c += d;
        b = turn(b ^ c, 7u);
        // Columns become diagonals, and diagonals columns again.
        if (round % 2u == 0u) {
            b = b.yzwx;
            c = c.zwxy;
            d = d.wxyz;
        } else {
            b = b.wxyz;
            c = c.zwxy;
            d = d.yzwx;
        }
    }
    var stream = array<vec4<u32>, 4>(a + start_a, b + start_b, c + start_c, d + start_d);
    for (var word = 0u; word < 16u; word++) {
        let i = counter * 16u + word;
        if (i < length) {
            let mask = stream[word / 4u][word % 4u];
            if (SUBTRACT == 1u) {
                result[i] = values[i] - mask;
            } else {
                result[i] = values[i] + mask;
            }
        }
    }
}
