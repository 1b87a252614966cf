//! Models as tasks: this node runs each of its models for calls of `model/NAME`, and where it is known what the model does
//! (`capability` in its profile) also for calls of `CAPABILITY/NAME` or anything above that.
//!
//! Its input is a JSON object of its tensors by name, nested as they are shaped, and so is its output; or either in the words of
//! the Open Inference Protocol, `{"inputs": […]}`.

use super::dispatch::Ran;
use crate::inference::{InferRequest, InferTensor, chosen, datatype, each_once};
use crate::runtime::Runtime;
use crate::services::apart;
use bytes::Bytes;
use karman_engine::capability::nn::Tensors;
use karman_store::Model;
use karman_tensor::ElementType;
use karman_types::{OfferedTask, TaskError, TaskRequest, TaskResponse};
use semver::Version;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Before the name of a model.
pub(super) const MODEL: &str = "model/";
/// The key of what a model does, in what is known of it.
const CAPABILITY: &str = "capability";
/// The deepest nesting of a tensor in JSON.
const MOST_DIMENSIONS: usize = 8;
/// The most values in an input in JSON: until it is in its tensor, each takes thirty bytes where it came as two.
const MOST_VALUES: usize = 4 << 20;

/// The names by which this node runs its models and each of them up to its early exits, each with that of its model.
pub(super) fn offered(runtime: &Runtime) -> Vec<(OfferedTask, String)> {
    let models = runtime.models().list().ok();
    let mut offered = Vec::new();
    for model in models.iter().flat_map(|models| models.iter()) {
        let capability = capability(model);
        for run in std::iter::once(model.name.clone()).chain(model.exit_names()) {
            let by_capability = capability.map(|capability| format!("{capability}/{run}"));
            for name in std::iter::once(format!("{MODEL}{run}")).chain(by_capability) {
                let task = OfferedTask {
                    name,
                    version: Version::new(0, 0, 0),
                    id: model.digest,
                };
                offered.push((task, run.clone()));
            }
        }
    }
    offered
}

/// The model of this node that a task is run with: that of its very name, or the first below it in the tree of capabilities.
pub(super) fn find(runtime: &Runtime, task: &str) -> Option<String> {
    // No plugin has such a name, and no model another.
    if !task.contains('/') {
        return None;
    }
    let by_name = task.strip_prefix(MODEL);
    if let Some(model) = by_name.filter(|model| holds(runtime, model)) {
        return Some(model.to_owned());
    }
    let models = runtime.models().list().ok()?;
    let exact = models.iter().find_map(|model| {
        let run = task.strip_prefix(capability(model)?)?.strip_prefix('/')?;
        let is_it = run == model.name || model.exit_names().any(|exit| exit == run);
        is_it.then(|| run.to_owned())
    });
    let is_below = |model: &&Model| {
        let rest = capability(model).and_then(|capability| capability.strip_prefix(task));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    exact.or_else(|| models.iter().find(is_below).map(|model| model.name.clone()))
}

/// What it does, where that is known.
fn capability(model: &Model) -> Option<&str> {
    model.info.get(CAPABILITY).and_then(Value::as_str)
}

/// Whether this node has a model of this name, or one with this exit.
pub(super) fn holds(runtime: &Runtime, model: &str) -> bool {
    matches!(runtime.models().find(model), Ok(Some(_)))
}

/// Runs a model of this node as a task.
///
/// # Errors
/// `invalid` for an input that is none of the model, `deadline` when it takes longer than it may, else what the back-end says.
pub(super) async fn run(
    runtime: &Runtime,
    model: &str,
    request: TaskRequest,
    within: Option<Duration>,
) -> Result<(TaskResponse, Ran), TaskError> {
    let started = Instant::now();
    let models = runtime.models();
    let (length, body, of) = (request.body.len(), request.body, format!("model `{model}`"));
    let input = apart(body.len(), move || read_input(&body, &of)).await?;
    let of_protocol = input["inputs"].is_array();
    let known = match of_protocol {
        true => Vec::new(),
        false => models.inputs_of(model).await?,
    };
    let Asked {
        inputs,
        wanted,
        within: asked,
    } = apart(length, move || Asked::read(input, &known)).await?;
    let within = [within, asked].into_iter().flatten().min();
    let loaded = models.shared().by_name(model.to_owned()).await?;
    let ran_on = format!("{model} ({})", loaded.runs_on());
    let outputs = match within {
        None => loaded.run(inputs).await?,
        Some(within) => {
            let running = loaded.run_within(inputs, within);
            tokio::time::timeout(within, running).await.map_err(|_| {
                TaskError::deadline(format!(
                    "model `{model}` did not answer within the time of the call"
                ))
            })??
        }
    };
    let (name, results) = (model.to_owned(), chosen(outputs, &wanted)?);
    let bytes = results.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
    let response = TaskResponse {
        content_type: "application/json".into(),
        metadata: Vec::new(),
        body: apart(bytes, move || {
            write_results(of_protocol.then_some(&name), &results)
        })
        .await?,
    };
    let ran = Ran {
        took: started.elapsed(),
        ran_on: Some(ran_on),
        ..Ran::default()
    };
    Ok((response, ran))
}

/// What a model is asked for.
struct Asked {
    inputs: Tensors,
    /// The results that are wanted; all where it is empty.
    wanted: Vec<String>,
    within: Option<Duration>,
}

impl Asked {
    /// In the words of the Open Inference Protocol where it has `inputs`, else an object of the inputs that are known.
    fn read(input: Value, known: &[(String, ElementType)]) -> Result<Self, TaskError> {
        if !input["inputs"].is_array() {
            return Ok(Self {
                inputs: named_inputs(known, input)?,
                wanted: Vec::new(),
                within: None,
            });
        }
        let request = read_request(input)?;
        let inputs: Result<Tensors, _> = request.inputs.iter().map(InferTensor::read).collect();
        Ok(Self {
            inputs: inputs?,
            wanted: request.outputs.into_iter().map(|wanted| wanted.name).collect(),
            within: request.parameters.within(),
        })
    }
}

/// In the words of the protocol, with the name of the model, or as an object of the results.
fn write_results(model: Option<&String>, results: &Tensors) -> Result<Bytes, TaskError> {
    let written: Vec<InferTensor> = results
        .iter()
        .map(|(name, tensor)| InferTensor::write(name, tensor))
        .collect();
    let output = match model {
        Some(model) => json!({ "model_name": model, "outputs": written }),
        None => by_name(&written)?,
    };
    Ok(output.to_string().into())
}

/// The input of what is named so.
///
/// # Errors
/// `invalid` for what is no JSON, `limit` for what takes too much memory once it is read.
pub(super) fn read_input(body: &[u8], of: &str) -> Result<Value, TaskError> {
    few_values(body, of)?;
    serde_json::from_slice(body).map_err(|error| {
        TaskError::invalid(format!("the input of {of} is no JSON: {error}")).with_field("body")
    })
}

/// Whether JSON takes no more memory than it may once it is read: a value takes some tens of bytes, whatever it has in the text.
///
/// # Errors
/// `limit`.
pub(super) fn few_values(body: &[u8], of: &str) -> Result<(), TaskError> {
    let values = body
        .iter()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'))
        .count();
    if values > MOST_VALUES {
        return Err(TaskError::limit(format!(
            "the input of {of} has about {values} values; in JSON there may be {MOST_VALUES}"
        ))
        .with_field("body")
        .with_hint("send tensors as bytes: the binary tensor extension of `/v2/models`, or a plugin that takes bytes"));
    }
    Ok(())
}

/// A request of the Open Inference Protocol, in whatever it came.
fn read_request(input: Value) -> Result<InferRequest, TaskError> {
    let request: InferRequest = serde_json::from_value(input)
        .map_err(|error| TaskError::invalid(error.to_string()).with_field("body"))?;
    request.check()?;
    each_once(request.outputs.iter().map(|wanted| &wanted.name))?;
    Ok(request)
}

/// The tensors of an object, each of the type that the model takes.
fn named_inputs(known: &[(String, ElementType)], input: Value) -> Result<Tensors, TaskError> {
    let datatypes = known
        .iter()
        .map(|(name, element)| (name.as_str(), datatype(*element)));
    let inputs = written_inputs(&datatypes.collect::<Vec<_>>(), input)?;
    inputs.iter().map(InferTensor::read).collect()
}

/// The fields of an object in the words of the protocol, each of the data type that the model takes under its name.
pub(super) fn written_inputs(known: &[(&str, &str)], input: Value) -> Result<Vec<InferTensor>, TaskError> {
    let Value::Object(fields) = input else {
        return Err(TaskError::invalid("the input is no object of tensors by name").with_field("body"));
    };
    let read = |(name, data): (String, Value)| {
        let datatype = known.iter().find(|(known, _)| *known == name);
        let (_, datatype) = datatype.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            TaskError::invalid(format!(
                "the model has no input `{name}`; it has {}",
                names.join(", ")
            ))
            .with_field(&name)
        })?;
        let shape = shape_of(&data);
        let list = match data {
            Value::Array(_) => data,
            one => Value::Array(vec![one]),
        };
        let mut tensor = json!({ "name": name, "shape": shape, "datatype": datatype });
        tensor["data"] = list;
        serde_json::from_value(tensor)
            .map_err(|error| TaskError::invalid(format!("`{name}`: {error}")).with_field(&name))
    };
    fields.into_iter().map(read).collect()
}

/// As deep as the first of each list goes. Whether the others are like it shows when the elements are counted.
fn shape_of(data: &Value) -> Vec<u32> {
    let mut shape = Vec::new();
    let mut level = data;
    while let (Value::Array(items), true) = (level, shape.len() < MOST_DIMENSIONS) {
        shape.push(u32::try_from(items.len()).unwrap_or(u32::MAX));
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    shape
}

/// Tensors by their names, each nested as it is shaped.
///
/// # Errors
/// `failed` for a shape that is not that of the elements, or of too many lists with nothing in them.
pub(super) fn by_name(tensors: &[InferTensor]) -> Result<Value, TaskError> {
    let field = |tensor: &InferTensor| Ok((tensor.name.clone(), by_shape(tensor)?));
    let fields: Result<Map<_, _>, TaskError> = tensors.iter().map(field).collect();
    Ok(Value::Object(fields?))
}

/// The elements of a tensor, nested as it is shaped.
fn by_shape(tensor: &InferTensor) -> Result<Value, TaskError> {
    let items = match serde_json::to_value(tensor.data.as_ref()).unwrap_or_default() {
        Value::Array(items) => items,
        one => vec![one],
    };
    // Where a dimension is nothing, those before it are lists all the same.
    let elements = product(tensor.shape.iter());
    let lists = product(tensor.shape.iter().take_while(|dim| **dim > 0));
    let most = items.len().max(MOST_VALUES) as u64;
    match elements == Some(items.len() as u64) && lists.is_some_and(|lists| lists <= most) {
        true => Ok(nested(&tensor.shape, &mut items.into_iter())),
        false => Err(TaskError::failed(format!(
            "`{}` has {} elements, and the shape {:?}",
            tensor.name,
            items.len(),
            tensor.shape
        ))
        .with_field(&tensor.name)),
    }
}

/// Nothing where it is beyond all bounds.
fn product<'a>(dims: impl Iterator<Item = &'a u32>) -> Option<u64> {
    let mut dims = dims.copied().map(u64::from);
    dims.try_fold(1_u64, u64::checked_mul)
}

fn nested(shape: &[u32], elements: &mut impl Iterator<Item = Value>) -> Value {
    match shape {
        [] => elements.next().unwrap_or_default(),
        [length, rest @ ..] => (0..*length).map(|_| nested(rest, elements)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    #[test]
    fn tensors_are_read_by_name_and_written_as_they_are_shaped() {
        let known = [
            ("image".to_owned(), ElementType::F32),
            ("scale".to_owned(), ElementType::I64),
        ];
        let input = json!({ "image": [[1, 2, 3], [4, 5, 6.5]], "scale": 2 });
        let tensors = named_inputs(&known, input).unwrap();
        let (name, image) = &tensors[0];
        assert_eq!((name.as_str(), image.shape().dims()), ("image", &[2, 3][..]));
        assert_eq!(image.view::<f32>().unwrap()[5], 6.5);
        assert!(tensors[1].1.shape().dims().is_empty());

        let back = by_shape(&InferTensor::write(name, image)).unwrap();
        assert_eq!(back, json!([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]));
    }

    #[test]
    fn a_request_in_the_protocol_is_held_to_it() {
        let read = |more: Value| {
            let mut request =
                json!({ "inputs": [{ "name": "x", "shape": [1], "datatype": "FP32", "data": [1] }] });
            request
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            read_request(request)
        };
        let timed = read(json!({ "parameters": { "timeout": 1500 } })).unwrap();
        assert_eq!(timed.parameters.within(), Some(Duration::from_micros(1500)));
        for (refused, says) in [
            (
                json!({ "outputs": [{ "name": "y", "parameters": { "classification": 3 } }] }),
                "classification",
            ),
            (json!({ "outputs": [{ "name": "y" }, { "name": "y" }] }), "y"),
        ] {
            let error = read(refused).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn a_shape_that_is_not_that_of_the_elements_is_refused() {
        let tensor = |shape: &[u64]| {
            let tensor = json!({ "name": "y", "shape": shape, "datatype": "FP32", "data": [] });
            by_shape(&serde_json::from_value(tensor).unwrap())
        };
        assert_eq!(tensor(&[2, 0]).unwrap(), json!([[], []]));
        assert_eq!(tensor(&[0, 4_000_000_000]).unwrap(), json!([]));
        for shape in [
            &[4_000_000_000][..],
            &[4_000_000_000, 0],
            &[3, 4_000_000_000, 4_000_000_000, 0],
            &[],
        ] {
            let error = tensor(shape).unwrap_err();
            assert_eq!(
                (error.kind, error.field.as_deref()),
                (ErrorKind::Failed, Some("y")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_the_model_does_not_take_is_named() {
        let known = [("image".to_owned(), ElementType::F32)];
        for (input, says) in [
            (json!([1]), "no object"),
            (json!({ "picture": [1] }), "no input `picture`; it has image"),
            (json!({ "image": [[1, 2], [3]] }), "image"),
            (json!({ "image": "seven" }), "does not fit its type"),
        ] {
            let error = named_inputs(&known, input).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn an_input_that_would_fill_the_memory_is_refused_before_it_is_read() {
        let input = |values: usize| format!("[{}0]", "0,".repeat(values));
        assert!(read_input(input(1000).as_bytes(), "model `m`").is_ok());
        let error = read_input(input(MOST_VALUES).as_bytes(), "model `m`").unwrap_err();
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (ErrorKind::Limit, Some("body"))
        );
    }
}
