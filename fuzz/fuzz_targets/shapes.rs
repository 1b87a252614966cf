//! Any bytes as a model whose first input is to have a shape: what comes of it is told to have that shape, and comes of it again.
#![cfg_attr(fuzzing, no_main)]

use karman_infer::{InputShape, ModelLimits, with_shapes};

fn check(bytes: &[u8]) {
    let limits = ModelLimits::default();
    for dims in [vec![], vec![Some(2)], vec![None, Some(3), Some(3), None]] {
        let shape = [InputShape {
            input: "x".into(),
            dims,
        }];
        let Ok(closed) = with_shapes(bytes, &shape, &limits) else {
            continue;
        };
        let again = with_shapes(&closed, &shape, &limits);
        assert_eq!(again.as_ref(), Ok(&closed));
    }
}

karman_fuzz::target!(check);
