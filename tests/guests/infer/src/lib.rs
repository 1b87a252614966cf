//! Gives its body, elements of type f32, to the model that the metadata `model` names, as the input `input` in the `shape` that they
//! name (`1,3,224,224`), and answers the elements of the model's first output. The metadata `compute-ns` say how long `compute` took.
//! With the metadata `target` (`cpu`, `gpu`, `tpu`) its body is an ONNX model, which is loaded for that target; where they name an
//! `input` and its `shape` as well, it is run on numbers that go up from 0 to 1 and again, else only loaded.

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::types::InvalidInput;
use std::time::Instant;
use wasi::nn::errors::Error as NnError;
use wasi::nn::graph::{ExecutionTarget, Graph, GraphEncoding, load, load_by_name};
use wasi::nn::tensor::{Tensor, TensorType};

wit_bindgen::generate!({
    inline: "
        package local:infer;

        world infer {
            include karman:task/task@0.1.0;
            import wasi:nn/tensor@0.2.0-rc-2024-10-28;
            import wasi:nn/graph@0.2.0-rc-2024-10-28;
            import wasi:nn/inference@0.2.0-rc-2024-10-28;
            import wasi:nn/errors@0.2.0-rc-2024-10-28;
        }
    ",
    path: "../../../wit/task",
    world: "local:infer/infer",
    generate_all,
});

struct Infer;

impl Guest for Infer {
    fn handle(request: Request) -> Result<Response, Error> {
        let told = |name: &str| {
            let value = request.metadata.iter().find(|(key, _)| key == name);
            let missing = || invalid(format!("the metadata do not say `{name}`"), name);
            value.map(|(_, value)| value.as_str()).ok_or_else(missing)
        };
        if let Ok(target) = told("target") {
            let model = own_model(target, &request.body)?;
            let (Ok(input), Ok(shape)) = (told("input"), told("shape")) else {
                return Ok(Response {
                    content_type: "text/plain".into(),
                    metadata: Vec::new(),
                    body: b"loaded".to_vec(),
                });
            };
            let dimensions = dimensions(shape)?;
            let elements: u32 = dimensions.iter().product();
            let numbers = (0..elements).map(|i| (i % 17) as f32 / 16.0);
            let numbers: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            return compute(&model, input, &dimensions, &numbers);
        }
        let dimensions = dimensions(told("shape")?)?;
        let model = load_by_name(told("model")?).map_err(failed)?;
        compute(&model, told("input")?, &dimensions, &request.body)
    }
}

fn failed(error: NnError) -> Error {
    Error::Failed(error.data())
}

fn dimensions(shape: &str) -> Result<Vec<u32>, Error> {
    let dimensions: Result<Vec<u32>, _> = shape.split(',').map(str::parse).collect();
    dimensions.map_err(|error| invalid(format!("`{shape}`: {error}"), "shape"))
}

/// The elements of the first output.
fn compute(model: &Graph, input: &str, dimensions: &[u32], elements: &[u8]) -> Result<Response, Error> {
    let context = model.init_execution_context().map_err(failed)?;
    let tensor = Tensor::new(dimensions, TensorType::Fp32, elements);
    let inputs = vec![(input.to_owned(), tensor)];
    let started = Instant::now();
    let outputs = context.compute(inputs).map_err(failed)?;
    let took = started.elapsed();
    let first = outputs.first().ok_or_else(|| Error::Failed("the model gives nothing".into()))?;
    Ok(Response {
        content_type: "application/octet-stream".into(),
        metadata: vec![("compute-ns".into(), took.as_nanos().to_string())],
        body: first.1.data(),
    })
}

fn own_model(target: &str, model: &[u8]) -> Result<Graph, Error> {
    let on = match target {
        "cpu" => ExecutionTarget::Cpu,
        "gpu" => ExecutionTarget::Gpu,
        "tpu" => ExecutionTarget::Tpu,
        _ => return Err(invalid(format!("`{target}` is none of cpu, gpu, tpu"), "target")),
    };
    let loaded = load(&[model.to_vec()], GraphEncoding::Onnx, on);
    loaded.map_err(|error| Error::Failed(format!("{:?}: {}", error.code(), error.data())))
}

fn invalid(message: String, field: &str) -> Error {
    let field = Some(field.into());
    Error::Invalid(InvalidInput { message, field })
}

export!(Infer);
