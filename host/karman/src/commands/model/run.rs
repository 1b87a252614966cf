use crate::app::App;
use crate::control::{Control, escape, not_ours};
use crate::input::Input;
use bytes::Bytes;
use clap::Args;
use http::{Method, Response};
use karman_node::Leg;
use karman_node::inference::binary::{HEADER_LENGTH, part, shared_out};
use karman_node::inference::{InferResponse, InferTensor, MOST_REQUEST};
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
        // JSON has neither NaN nor infinity: the results come as bytes.
        let path = format!("/models/{}/run?binary=true", escape(&self.name));
        let json = [("content-type", "application/json")];
        let answer = Control::new(app)?.send(Method::POST, &path, &json, request)?;
        let response = read(answer).map_err(|error| not_ours(&error.message))?;
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

/// What the model gave, of JSON and the bytes behind it.
fn read(answer: Response<Bytes>) -> Result<InferResponse, TaskError> {
    let length = answer.headers().get(HEADER_LENGTH);
    let length = length.map(|length| length.to_str().unwrap_or_default().to_owned());
    let (json, behind) = part(answer.into_body(), length.as_deref())?;
    let mut response: InferResponse =
        serde_json::from_slice(&json).map_err(|error| TaskError::internal(error.to_string()))?;
    let outputs = shared_out(std::mem::take(&mut response.outputs), behind)?.into_iter();
    let whole = |(output, bytes): (InferTensor, Option<Bytes>)| match bytes {
        None => Ok(output),
        Some(bytes) => output
            .read_bytes(&bytes)
            .map(|(name, tensor)| InferTensor::write(&name, &tensor)),
    };
    response.outputs = outputs.map(whole).collect::<Result<_, TaskError>>()?;
    Ok(response)
}

fn shown(output: &InferTensor) -> String {
    let words = output.data.as_ref().map(|data| data.words(MOST_SHOWN));
    let (some, more) = words.unwrap_or_default();
    let more = if more { ", …" } else { "" };
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
