//! A policy that goes wrong as the first task of its workflow is named. Otherwise the first candidate in reach serves.

use exports::karman::policy::selector::{Ask, Choice, Guest, Served, Slo, Task};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

wit_bindgen::generate!({ path: "../../../wit/policy", world: "select", generate_all });

thread_local! {
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
    static ASKED: RefCell<u64> = const { RefCell::new(0) };
}

struct Bad;

fn goes_wrong() -> Result<Option<Choice>, String> {
    let mut choice = Choice {
        chosen: 0,
        runner_up: None,
        because: "it is the first".into(),
    };
    match NAME.with_borrow(String::clone).as_str() {
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
        "copies" => {
            // Few instructions, many bytes.
            let mut room = vec![0_u8; 1 << 20];
            for n in 0..u8::MAX {
                room.fill(n);
                black_box(&room);
            }
        }
        "floods" => {
            // The same by way of the host.
            for _ in 0..1_000 {
                let written = std::io::stderr().write_all(&[b'x'; 4 << 10]);
                written.map_err(|error| error.to_string())?;
            }
        }
        "asks-the-time" => drop(black_box(Instant::now())),
        "draws" => drop(black_box(HashMap::<u8, u8>::new())),
        "reads" => {
            return std::fs::read("/etc/hostname")
                .map(|_| None)
                .map_err(|error| error.to_string());
        }
        "invents" => choice.chosen = 99,
        "refuses" => return Err("it is not for me to say".into()),
        "talks" => choice.because = "x".repeat(2 << 20),
        _ => return Ok(None),
    }
    Ok(Some(choice))
}

impl Guest for Bad {
    fn begin(tasks: Vec<Task>, _: Slo) -> Result<(), String> {
        NAME.set(tasks[0].name.clone());
        match tasks[0].name.as_str() {
            "never-begins" => Err("these are no tasks for me".into()),
            _ => Ok(()),
        }
    }

    fn resume(state: Vec<u8>) -> Result<(), String> {
        let state = state.try_into().map_err(|_| "eight bytes were saved")?;
        ASKED.set(u64::from_le_bytes(state));
        Ok(())
    }

    fn choose(ask: Ask) -> Result<Choice, String> {
        if let Some(choice) = goes_wrong()? {
            return Ok(choice);
        }
        let asked = ASKED.with_borrow_mut(|asked| {
            *asked += 1;
            *asked
        });
        let reached = (0..).find(|n| !ask.unreachable.contains(n));
        Ok(Choice {
            chosen: reached.ok_or("nobody can be reached")?,
            runner_up: None,
            because: format!("it is the first in reach, asked {asked} times"),
        })
    }

    fn report(_: Served) -> Result<(), String> {
        match NAME.with_borrow(String::clone).as_str() {
            "traps-when-told" => core::arch::wasm32::unreachable(),
            _ => Ok(()),
        }
    }

    fn save() -> Result<Vec<u8>, String> {
        Ok(ASKED.with_borrow(|asked| asked.to_le_bytes().to_vec()))
    }
}

export!(Bad);
