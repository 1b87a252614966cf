//! What it can be told to do within the sandbox; what reaches out of it is in [`crate::reach`].

use crate::exports::karman::task::handler::Error;
use crate::karman::task::types::InvalidInput;
use crate::reach;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const PIECE: usize = 1 << 20;

/// Carries out one order and says what happened.
pub(crate) fn obey(verb: &str, argument: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
    let text = match verb {
        "spin" => spin(),
        "alloc" => alloc(),
        "trap" => core::arch::wasm32::unreachable(),
        "panic" => panic!("told to panic"),
        "deep-recursion" => format!("came back from {} calls", dive(0)),
        "table" => reach::table(),
        "output" => return Ok(vec![b'x'; number(argument)? as usize]),
        "now" => now(),
        "sleep" => sleep(number(argument)?),
        "count" => count(),
        "fail" => return Err(fail(argument)),
        "env" => env(),
        "log" => log(argument),
        "context" => reach::context(),
        "fs" => reach::read(argument)?,
        "write" => reach::write(argument, body)?,
        "http" => reach::http(argument)?,
        "kv" => reach::bucket(argument)?,
        "nn" => reach::model(argument)?,
        "call" => reach::call(argument, body)?,
        _ => return Err(invalid(format!("`{verb}` is not an order"))),
    };
    Ok(text.into_bytes())
}

fn spin() -> String {
    loop {
        black_box(0);
    }
}

/// Takes and touches memory until there is no more.
fn alloc() -> String {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut piece = Vec::new();
        if held.try_reserve(1).is_err() || piece.try_reserve_exact(PIECE).is_err() {
            return format!("memory was refused after {} MiB", held.len());
        }
        piece.resize(PIECE, 1);
        held.push(black_box(piece));
    }
}

#[allow(unconditional_recursion, reason = "running out of stack is what it is for")]
fn dive(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    dive(depth + 1) + frame[7]
}

/// The time of day in nanoseconds.
fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos().to_string()
}

fn sleep(milliseconds: u64) -> String {
    std::thread::sleep(Duration::from_millis(milliseconds));
    format!("slept {milliseconds} ms")
}

/// Tells whether the instance served before.
fn count() -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    (CALLS.fetch_add(1, Relaxed) + 1).to_string()
}

fn env() -> String {
    let variables = std::env::vars().map(|(name, value)| format!("{name}={value}\n"));
    let arguments = std::env::args().map(|argument| format!("{argument}\n"));
    variables.chain(arguments).collect()
}

fn log(line: &str) -> String {
    println!("{line}");
    eprintln!("{line}");
    "wrote one line to standard output and one to standard error".into()
}

fn fail(case: &str) -> Error {
    let message = format!("told to fail with `{case}`");
    match case {
        "invalid" => Error::Invalid(InvalidInput {
            message,
            field: Some("do".into()),
        }),
        "denied" => Error::Denied(message),
        "unavailable" => Error::Unavailable(message),
        "deadline" => Error::Deadline(message),
        "limit" => Error::Limit(message),
        "cancelled" => Error::Cancelled(message),
        "internal" => Error::Internal(message),
        _ => Error::Failed(message),
    }
}

fn number(argument: &str) -> Result<u64, Error> {
    argument
        .parse()
        .map_err(|error| invalid(format!("`{argument}` is not a number: {error}")))
}

pub(crate) fn invalid(message: String) -> Error {
    Error::Invalid(InvalidInput {
        message,
        field: Some("do".into()),
    })
}
