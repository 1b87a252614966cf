//! A strategy that goes wrong as the property `does` says, when it is to make version `at`. Otherwise it takes the mean of the updates.

use exports::karman::federated::aggregator::{Array, Guest, Next, Round, Update};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

wit_bindgen::generate!({ path: "../../../wit/federated", world: "strategy", generate_all });

struct Open {
    does: String,
    model: Vec<Array>,
    updates: u32,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

struct Bad;

impl Guest for Bad {
    fn begin(round: Round, model: Vec<Array>, _: Vec<u8>) -> Result<(), String> {
        let property = |name: &str| {
            let found = round.properties.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone())
        };
        let is_now = property("at") == Some((round.version + 1).to_string());
        let does = property("does").filter(|_| is_now).unwrap_or_default();
        if does == "never-begins" {
            return Err("this is no model for me".into());
        }
        OPEN.set(Some(Open { does, model, updates: round.updates }));
        Ok(())
    }

    fn take(update: Update) -> Result<(), String> {
        OPEN.with_borrow_mut(|open| {
            let open = open.as_mut().ok_or("`begin` comes first")?;
            for (array, change) in open.model.iter_mut().zip(&update.change) {
                for (number, by) in array.values.iter_mut().zip(&change.values) {
                    *number += by / open.updates as f32;
                }
            }
            Ok(())
        })
    }

    fn finish() -> Result<Next, String> {
        let Open { does, mut model, .. } = OPEN.take().ok_or("`begin` comes first")?;
        let mut state = Vec::new();
        match does.as_str() {
            "traps" => core::arch::wasm32::unreachable(),
            "spins" => loop {
                black_box(0);
            },
            "eats" => {
                let mut eaten: Vec<Vec<u8>> = Vec::new();
                loop {
                    eaten.push(vec![1; 1 << 18]);
                    black_box(&eaten);
                }
            }
            "asks-the-time" => drop(black_box(Instant::now())),
            "refuses" => return Err("it is not for me to say".into()),
            "turns" => model[0].shape.reverse(),
            "drops" => drop(model.pop()),
            "divides" => model[0].values[0] = f32::NAN,
            "hoards" => state = vec![1; 4 << 20],
            _ => {}
        }
        Ok(Next { model, state })
    }
}

export!(Bad);
