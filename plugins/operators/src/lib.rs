//! One operator of a network, in the SIMD of Wasm: products of matrices, convolutions, ReLU, sums. What is kept stays for the
//! calls that follow, as the weights of a loaded model do.

mod convolution;
mod lanes;
mod operator;
mod product;
#[cfg(test)]
mod tests;

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::types::InvalidInput;
use operator::Operator;
use std::sync::{Mutex, PoisonError};

wit_bindgen::generate!({ path: "wit", generate_all });

/// How many operators one instance keeps.
const MOST_KEPT: usize = 1024;

static KEPT: Mutex<Vec<Operator>> = Mutex::new(Vec::new());

struct Operators;

impl Guest for Operators {
    fn handle(request: Request) -> Result<Response, Error> {
        let numbers = numbers(&request.body)?;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let described = request.metadata.iter().find(|(key, _)| key == "operator");
        let body = match described {
            Some((_, described)) => {
                if kept.len() >= MOST_KEPT {
                    return Err(Error::Limit(format!("{MOST_KEPT} operators are kept already")));
                }
                kept.push(Operator::read(described, numbers).map_err(|wrong| invalid(wrong, "operator"))?);
                (kept.len() - 1).to_string().into_bytes()
            }
            None => {
                let named = request
                    .content_type
                    .parse::<usize>()
                    .ok()
                    .and_then(|at| kept.get(at));
                let missing = || {
                    let wrong = format!("`{}` is not the number of a kept operator", request.content_type);
                    invalid(wrong, "content-type")
                };
                let out = named
                    .ok_or_else(missing)?
                    .run(numbers)
                    .map_err(|wrong| invalid(wrong, "body"))?;
                bytemuck::cast_slice::<f32, u8>(&out).to_vec()
            }
        };
        Ok(Response {
            content_type: String::new(),
            metadata: Vec::new(),
            body,
        })
    }
}

/// The numbers of a body, each four bytes, the lowest first.
fn numbers(body: &[u8]) -> Result<Vec<f32>, Error> {
    match body.len().is_multiple_of(4) {
        true => Ok(bytemuck::pod_collect_to_vec::<u8, f32>(body)),
        false => Err(invalid(
            format!("{} bytes are not numbers of 4", body.len()),
            "body",
        )),
    }
}

fn invalid(message: String, field: &str) -> Error {
    let field = Some(field.into());
    Error::Invalid(InvalidInput { message, field })
}

export!(Operators);
