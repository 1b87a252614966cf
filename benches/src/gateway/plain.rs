//! The least there can be between a socket and the model: axum, serde, and the pool of ONNX Runtime sessions that our nodes use.

use super::{FILE, MODEL};
use crate::given;
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::routing::post;
use clap::Args;
use karman_infer::{Backend, LoadOptions, Model, OnnxRuntime};
use karman_tensor::{Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Being that server.
#[derive(Args)]
pub(crate) struct Plain {
    /// Be the plain server of the study `gateway` at this address.
    #[arg(long, hide = true)]
    pub(crate) plain: Option<SocketAddr>,
    /// Run the model on the threads that answer.
    #[arg(long, hide = true)]
    inline: bool,
}

#[derive(Deserialize)]
struct Request {
    inputs: Vec<Input>,
}

#[derive(Deserialize)]
struct Input {
    name: String,
    shape: Vec<u32>,
    data: Vec<f32>,
}

#[derive(Serialize)]
struct Response {
    model_name: &'static str,
    outputs: Vec<Output>,
}

#[derive(Serialize)]
struct Output {
    name: String,
    shape: Vec<u32>,
    datatype: &'static str,
    data: Vec<f32>,
}

#[derive(Clone)]
struct Served {
    model: Arc<dyn Model>,
    inline: bool,
}

pub(crate) fn serve(plain: &Plain, at: SocketAddr) -> Result<()> {
    let library = std::env::var_os("KARMAN_ONNXRUNTIME").context("KARMAN_ONNXRUNTIME")?;
    let runtime = OnnxRuntime::load(&PathBuf::from(library))?;
    let options = LoadOptions {
        sessions: std::thread::available_parallelism()?,
        ..LoadOptions::default()
    };
    let served = Served {
        model: runtime.load(&given::read(FILE)?, &options)?,
        inline: plain.inline,
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let routes = Router::new().route(&format!("/v2/models/{MODEL}/infer"), post(infer));
        let listener = TcpListener::bind(at).await?;
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        Ok(axum::serve(listener, routes.with_state(served)).await?)
    })
}

async fn infer(
    State(served): State<Served>,
    Json(request): Json<Request>,
) -> Result<Json<Response>, (StatusCode, String)> {
    let wrong = |error: String| (StatusCode::BAD_REQUEST, error);
    let inputs = request.inputs.into_iter().map(|input| {
        let shape = Shape::new(&input.shape).map_err(|error| error.to_string())?;
        let tensor = Tensor::from_slice(shape, &input.data).map_err(|error| error.to_string())?;
        Ok((input.name, tensor))
    });
    let inputs: Vec<_> = inputs.collect::<Result<_, String>>().map_err(wrong)?;
    let outputs = match served.inline {
        true => served.model.run(inputs),
        false => tokio::task::spawn_blocking(move || served.model.run(inputs))
            .await
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?,
    };
    let outputs = outputs.map_err(|error| wrong(error.to_string()))?;
    let outputs = outputs.into_iter().map(|(name, tensor)| {
        Ok(Output {
            name,
            shape: tensor.shape().dims().to_vec(),
            datatype: "FP32",
            data: tensor.view::<f32>().map_err(|error| error.to_string())?.to_vec(),
        })
    });
    Ok(Json(Response {
        model_name: MODEL,
        outputs: outputs.collect::<Result<_, String>>().map_err(wrong)?,
    }))
}
