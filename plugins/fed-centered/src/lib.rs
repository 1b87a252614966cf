//! A strategy that makes versions by centred clipping.

mod clip;

use exports::karman::federated::aggregator::{Array, Guest, Next, Round, Update};
use std::cell::RefCell;

wit_bindgen::generate!({ path: "wit", generate_all });

/// A round that is being closed.
struct Open {
    model: Vec<Array>,
    /// By how much the round before moved the model.
    centre: Vec<f32>,
    updates: Vec<Vec<f32>>,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

struct Centered;

impl Guest for Centered {
    fn begin(_: Round, model: Vec<Array>, state: Vec<u8>) -> Result<(), String> {
        let length = row(&model).len();
        let centre = match state.is_empty() {
            true => vec![0.0; length],
            false => clip::read(&state, length)?,
        };
        OPEN.set(Some(Open {
            model,
            centre,
            updates: Vec::new(),
        }));
        Ok(())
    }

    fn take(update: Update) -> Result<(), String> {
        OPEN.with_borrow_mut(|open| {
            let open = open.as_mut().ok_or("`begin` comes first")?;
            open.updates.push(row(&update.change));
            Ok(())
        })
    }

    fn finish() -> Result<Next, String> {
        let Open {
            mut model,
            centre,
            updates,
        } = OPEN.take().ok_or("`begin` comes first")?;
        let moved = clip::moved(&centre, &updates);
        let numbers = model.iter_mut().flat_map(|array| &mut array.values);
        for (number, by) in numbers.zip(&moved) {
            *number += by;
        }
        Ok(Next {
            model,
            state: clip::write(&moved),
        })
    }
}

/// The numbers of all arrays in one row.
fn row(arrays: &[Array]) -> Vec<f32> {
    arrays.iter().flat_map(|array| array.values.iter().copied()).collect()
}

export!(Centered);
