use super::build::{Builder, Conv, Map};

/// A block gives this many times the channels it works in.
const EXPANSION: u32 = 4;

pub(super) fn build(b: &mut Builder) {
    let input = b.input();
    let mut x = b.conv(&input, Conv::new(b.width(64), 7).stride(2));
    x = b.relu(&x);
    x = b.max_pool(&x, 3, 2, 1);
    for (channels, blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = bottleneck(b, &x, b.width(channels), stride, block == 0);
        }
    }
    x = b.mean(&x);
    x = b.flatten(&x);
    b.scores(&x);
}

/// Narrow inside, wide at both ends; the first of its kind brings the shortcut to its shape.
fn bottleneck(b: &mut Builder, x: &Map, channels: u32, stride: u32, first: bool) -> Map {
    let wide = channels * EXPANSION;
    let mut y = b.conv(x, Conv::new(channels, 1));
    y = b.relu(&y);
    y = b.conv(&y, Conv::new(channels, 3).stride(stride));
    y = b.relu(&y);
    // What a shortcut adds to must not grow from block to block.
    y = b.conv(
        &y,
        Conv {
            gain: 0.25,
            ..Conv::new(wide, 1)
        },
    );
    let shortcut = match first {
        true => b.conv(x, Conv::new(wide, 1).stride(stride)),
        false => x.clone(),
    };
    let sum = b.add(&y, &shortcut);
    b.relu(&sum)
}
