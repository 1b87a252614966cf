use super::build::{Builder, Conv};

pub(super) fn build(b: &mut Builder) {
    let mut x = b.input();
    for (channels, convolutions) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..convolutions {
            x = b.conv(&x, Conv::new(b.width(channels), 3));
            x = b.relu(&x);
        }
        x = b.max_pool(&x, 2, 2, 0);
    }
    x = b.flatten(&x);
    for _ in 0..2 {
        x = b.dense(&x, b.width(4096));
        x = b.relu(&x);
    }
    b.scores(&x);
}
