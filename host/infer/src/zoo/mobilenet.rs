use super::build::{Builder, Conv, Map};

pub(super) fn build(b: &mut Builder) {
    let input = b.input();
    let mut x = b.conv(&input, Conv::new(b.width(32), 3).stride(2));
    x = b.relu6(&x);
    // Table 2 of the paper: expansion, channels, blocks, stride of the first.
    for (expansion, channels, blocks, stride) in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ] {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = bottleneck(b, &x, expansion, b.width(channels), stride);
        }
    }
    x = b.conv(&x, Conv::new(b.width(1280), 1));
    x = b.relu6(&x);
    x = b.mean(&x);
    x = b.flatten(&x);
    b.scores(&x);
}

/// Wide inside, narrow and linear at both ends, where the shortcut joins them.
fn bottleneck(b: &mut Builder, x: &Map, expansion: u32, channels: u32, stride: u32) -> Map {
    let hidden = x.channels * expansion;
    let mut y = x.clone();
    if expansion > 1 {
        y = b.conv(&y, Conv::new(hidden, 1));
        y = b.relu6(&y);
    }
    let each = Conv {
        groups: hidden,
        ..Conv::new(hidden, 3).stride(stride)
    };
    y = b.conv(&y, each);
    y = b.relu6(&y);
    let joins = stride == 1 && x.channels == channels;
    // What a shortcut adds to must not grow from block to block.
    let gain = if joins { 0.25 } else { 1.0 };
    y = b.conv(
        &y,
        Conv {
            gain,
            ..Conv::new(channels, 1)
        },
    );
    if joins { b.add(x, &y) } else { y }
}
