//! The smallest task: answers with the length of the body in decimal. For benchmarks of the node, not of the guest.
#![no_std]

extern crate alloc;

mod heap;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use exports::karman::task::handler::{Error, Guest, Request, Response};

wit_bindgen::generate!({ path: "../../../wit/task", world: "task" });

struct Tiny;

impl Guest for Tiny {
    fn handle(request: Request) -> Result<Response, Error> {
        Ok(Response {
            content_type: String::new(),
            metadata: Vec::new(),
            body: request.body.len().to_string().into_bytes(),
        })
    }
}

export!(Tiny);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
