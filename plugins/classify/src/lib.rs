//! Which digit a picture shows: a PNG goes in, a label with its probability comes out.
//!
//! `picture` decodes and shrinks the PNG to 8 by 8 pixels as it streams by, `strokes` makes it bright strokes on dark
//! ground, `model` asks the node's model through `nn`, and this file answers.

#[path = "../../answer.rs"]
mod answer;
mod model;
#[path = "../../nn.rs"]
mod nn;
mod picture;
mod strokes;

use exports::karman::task::handler::{Error, Guest, Request, Response};
use serde::Serialize;

wit_bindgen::generate!({ path: "wit", generate_all });

/// What runs when the caller names no model in the metadata.
const DEFAULT_MODEL: &str = "digits-m";

#[derive(Serialize)]
struct Answer<'a> {
    label: usize,
    probability: f32,
    probabilities: &'a [f32],
    model: &'a str,
}

struct Classify;

impl Guest for Classify {
    fn handle(request: Request) -> Result<Response, Error> {
        let named = request.metadata.iter().find(|(key, _)| key == "model");
        let model = named.map_or(DEFAULT_MODEL, |(_, name)| name);
        let picture = picture::shrink(&request.body).map_err(|message| answer::invalid("body", message))?;
        let probabilities = model::run(model, &strokes::bright(&picture))?;
        let (label, probability) = best(&probabilities);
        let answer = Answer {
            label,
            probability,
            probabilities: &probabilities,
            model,
        };
        answer::json(&answer)
    }
}

/// The likeliest class; of equal ones the first.
fn best(probabilities: &[f32]) -> (usize, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (label, probability) in probabilities.iter().copied().enumerate() {
        if probability > best.1 {
            best = (label, probability);
        }
    }
    best
}

export!(Classify);
