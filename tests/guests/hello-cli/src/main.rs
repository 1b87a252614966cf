//! A plain program that knows nothing of Karman: prints its arguments and standard input in capitals.
//! `--exit N` makes it end with that code.

use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut code = 0;
    while let Some(argument) = arguments.next() {
        if argument == "--exit" {
            code = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(2);
        } else {
            println!("{}", argument.to_uppercase());
        }
    }
    let mut input = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut input) {
        eprintln!("standard input: {error}");
        return ExitCode::FAILURE;
    }
    print!("{}", input.to_uppercase());
    ExitCode::from(code)
}
