use crate::app::App;
use crate::control::{Control, escape};
use crate::input::Input;
use clap::Args;
use http::Method;
use karman_node::Leg;
use karman_node::inference::{InferResponse, InferTensor, MOST_REQUEST, Scalar, TensorData};
use karman_types::{TaskError, format_bytes};
use serde_json::json;

/// What a person is shown of one output.
const MOST_SHOWN: usize = 16;

/// `karman model run`
#[derive(Args, Debug)]
pub(super) struct Run {
    /// The model's name
    name: String,
    /// A request as the Open Inference Protocol writes it in JSON; - for standard input
    input: String,
}

impl Run {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let request = Input::read(Some(&self.input), None, MOST_REQUEST)?.body;
        let path = format!("/models/{}/run", escape(&self.name));
        let response: InferResponse = Control::new(app)?.order(Method::POST, &path, request)?;
        if app.output.json {
            return app.output.line(json!(response));
        }
        for output in &response.outputs {
            app.output.line(shown(output))?;
        }
        for leg in &response.parameters.legs {
            app.output.note(words(leg));
        }
        Ok(())
    }
}

fn shown(output: &InferTensor) -> String {
    let all: &[Scalar] = match &output.data {
        Some(TensorData::Read(all)) => all,
        _ => &[],
    };
    let some: Vec<String> = all.iter().take(MOST_SHOWN).map(Scalar::to_string).collect();
    let more = if all.len() > MOST_SHOWN { ", …" } else { "" };
    format!(
        "{} {} {:?}: {}{more}",
        output.name,
        output.datatype,
        output.shape,
        some.join(", ")
    )
}

fn words(leg: &Leg) -> String {
    let node = leg.node.short();
    match &leg.failed {
        Some(why) => format!("stage {} not on {node}: {why}", leg.stage),
        None => format!(
            "stage {} on {node}{}: {:.1} ms{}, {} in{}, {} out, {:.1} ms under way",
            leg.stage,
            leg.exit
                .map_or_else(String::new, |exit| format!(" up to exit {exit}")),
            leg.compute_us as f64 / 1e3,
            leg.batch
                .map_or_else(String::new, |batch| format!(" for {batch} requests at once")),
            format_bytes(leg.bytes_in),
            leg.encoding
                .as_deref()
                .map_or_else(String::new, |encoding| format!(" as {encoding}")),
            format_bytes(leg.bytes_out),
            leg.transfer_us as f64 / 1e3
        ),
    }
}
