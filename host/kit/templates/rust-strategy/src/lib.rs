//! Moves the model by the weighted mean of a round's updates, and by a share of how the round before moved it.

use exports::karman::federated::aggregator::{Array, Guest, Next, Round, Update};
use std::cell::RefCell;

wit_bindgen::generate!({ path: "wit", generate_all });

/// That share, where `momentum` of `[strategy.properties]` does not say it.
const MOMENTUM: f64 = 0.5;

/// A round that is being closed.
#[derive(Default)]
struct Open {
    model: Vec<Array>,
    momentum: f64,
    /// How the round before moved the model; empty in the first.
    before: Vec<f64>,
    /// The updates so far, each times its weight.
    sum: Vec<f64>,
    weight: f64,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

struct Strategy;

impl Guest for Strategy {
    fn begin(round: Round, model: Vec<Array>, state: Vec<u8>) -> Result<(), String> {
        let length: usize = model.iter().map(|array| array.values.len()).sum();
        let momentum = match round.properties.iter().find(|(name, _)| name == "momentum") {
            Some((_, text)) => text.parse::<f64>().map_err(|_| format!("`momentum` is `{text}`, which is no number"))?,
            None => MOMENTUM,
        };
        let (before, _) = state.as_chunks::<8>();
        let before: Vec<f64> = before.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        if !before.is_empty() && before.len() != length {
            return Err("the state is of another model".into());
        }
        OPEN.set(Open { model, momentum, before, sum: vec![0.0; length], weight: 0.0 });
        Ok(())
    }

    fn take(update: Update) -> Result<(), String> {
        OPEN.with_borrow_mut(|open| {
            let numbers = update.change.iter().flat_map(|array| &array.values);
            for (sum, number) in open.sum.iter_mut().zip(numbers) {
                *sum += update.weight as f64 * f64::from(*number);
            }
            open.weight += update.weight as f64;
        });
        Ok(())
    }

    fn finish() -> Result<Next, String> {
        let Open { mut model, momentum, before, sum, weight } = OPEN.take();
        let before = before.into_iter().chain(std::iter::repeat(0.0));
        let moves = |(sum, before): (&f64, f64)| sum / weight.max(1.0) + momentum * before;
        let moved: Vec<f64> = sum.iter().zip(before).map(moves).collect();
        let numbers = model.iter_mut().flat_map(|array| &mut array.values);
        for (number, by) in numbers.zip(&moved) {
            *number = (f64::from(*number) + by) as f32;
        }
        let state = moved.iter().flat_map(|by| by.to_le_bytes()).collect();
        Ok(Next { model, state })
    }
}

export!(Strategy);
