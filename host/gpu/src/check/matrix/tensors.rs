//! Shapes of the kernels that know of dimensions.

use crate::kernel::{Arithmetic, BatchedGemm, Broadcast, Concat, Gather, Kernel, Rearrange};

/// Two tensors of which one goes on along the other, and several beside each other.
pub(super) fn pairs() -> Vec<Kernel> {
    let pairs: [(&[u32], &[u32]); 9] = [
        (&[1], &[]),
        (&[33, 131], &[33, 131]),
        (&[5, 7, 11], &[]),
        (&[2, 6, 9, 11], &[1, 6, 1, 1]),
        (&[2, 6, 9, 11], &[6, 1, 1]),
        (&[70, 100], &[100]),
        (&[70, 1], &[70, 65]),
        (&[3, 1, 7, 1], &[5, 1, 1300]),
        (&[2, 1, 2, 1, 3, 1, 2, 1], &[1, 3, 1, 2, 1, 2, 1, 5]),
    ];
    let mut all = Vec::new();
    for (first, second) in pairs {
        for arithmetic in [
            Arithmetic::Add,
            Arithmetic::Subtract,
            Arithmetic::Multiply,
            Arithmetic::Divide,
        ] {
            for (first, second) in [(first, second), (second, first)] {
                all.push(Kernel::Broadcast(Broadcast {
                    arithmetic,
                    first: first.to_vec(),
                    second: second.to_vec(),
                }));
            }
        }
    }
    let widths: [(u32, &[u32]); 5] = [
        (1, &[1]),
        (1, &[300, 1000]),
        (77, &[5, 1, 130]),
        (1000, &[1, 2, 3, 4]),
        (3, &[5000, 4099, 1, 17]),
    ];
    all.extend(widths.map(|(rows, widths)| {
        let widths = widths.to_vec();
        Kernel::Concat(Concat { rows, widths })
    }));
    all
}

/// Elements in another order, and rows by their numbers.
pub(super) fn orders() -> Vec<Kernel> {
    let orders: [(u32, u32, &[u32], &[i32]); 8] = [
        (1, 0, &[], &[]),
        (6000, 0, &[6000], &[1]),
        // Transposed in two and in four dimensions.
        (65 * 131, 0, &[131, 65], &[1, 131]),
        (2 * 6 * 9 * 11, 0, &[2, 9, 11, 6], &[594, 11, 1, 99]),
        // Turned around, every third, and the middle of a matrix.
        (5000, 4999, &[5000], &[-1]),
        (100, 1, &[33], &[3]),
        (40 * 50, 7 * 50 + 3, &[30, 41], &[50, 1]),
        // Each pixel twice along both sides.
        (3 * 17 * 19, 0, &[3, 17, 2, 19, 2], &[323, 19, 0, 1, 0]),
    ];
    let orders = orders.map(|(length, begin, sizes, steps)| {
        Kernel::Rearrange(Rearrange {
            length,
            begin,
            sizes: sizes.to_vec(),
            steps: steps.to_vec(),
        })
    });
    let gathers = [(1, 1, 1, 1), (1, 1000, 64, 77), (3, 5, 1, 300), (7, 30, 17, 9)];
    let gathers = gathers.map(|(tables, rows, width, numbers)| {
        Kernel::Gather(Gather {
            tables,
            rows,
            width,
            numbers,
        })
    });
    orders.into_iter().chain(gathers).collect()
}

/// Products of many small matrices.
pub(super) fn batches() -> Vec<Kernel> {
    let batches = [
        (1, 1, 1, 1, false, false),
        (12, 33, 33, 40, false, false),
        (5, 1, 70, 65, true, false),
        (3, 65, 67, 129, false, true),
        (2, 7, 3, 200, true, true),
    ];
    let batches = batches.map(|(batch, m, n, k, shares_a, shares_b)| {
        Kernel::BatchedGemm(BatchedGemm {
            batch,
            m,
            n,
            k,
            shares_a,
            shares_b,
        })
    });
    batches.to_vec()
}
