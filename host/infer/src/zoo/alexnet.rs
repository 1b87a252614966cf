use super::build::{Builder, Conv};

pub(super) fn build(b: &mut Builder) {
    let mut x = b.input();
    for (conv, pool) in [
        (
            Conv {
                pad: 2,
                ..Conv::new(64, 11).stride(4)
            },
            true,
        ),
        (Conv::new(192, 5), true),
        (Conv::new(384, 3), false),
        (Conv::new(256, 3), false),
        (Conv::new(256, 3), true),
    ] {
        let channels = b.width(conv.channels);
        x = b.conv(&x, Conv { channels, ..conv });
        x = b.relu(&x);
        if pool {
            x = b.max_pool(&x, 3, 2, 0);
        }
    }
    x = b.flatten(&x);
    for _ in 0..2 {
        x = b.dense(&x, b.width(4096));
        x = b.relu(&x);
    }
    b.scores(&x);
}
