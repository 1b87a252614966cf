//! A policy that goes wrong as the task is named whose providers it puts in order. Otherwise the last one is asked first.

use exports::karman::policy::router::{Guest, Order, Provider};
use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

wit_bindgen::generate!({ path: "../../../wit/policy", world: "route", generate_all });

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Bad;

impl Guest for Bad {
    fn route(task: String, providers: Vec<Provider>) -> Result<Order, String> {
        ASKED.set(ASKED.get() + 1);
        let last = providers.len() as u32 - 1;
        let mut order = Order {
            places: vec![last],
            because: format!(
                "it is the last of {}, asked {} times",
                providers.len(),
                ASKED.get()
            ),
        };
        match task.as_str() {
            "traps" => core::arch::wasm32::unreachable(),
            "panics" => panic!("nobody knows"),
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
            "draws" => drop(black_box(HashMap::<u8, u8>::new())),
            "invents" => order.places.push(99),
            "repeats" => order.places.push(last),
            "names-nobody" => order.places.clear(),
            "refuses" => return Err("it is not for me to say".into()),
            "talks" => order.because = "x".repeat(2 << 20),
            _ => {}
        }
        Ok(order)
    }
}

export!(Bad);
