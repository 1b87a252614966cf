//! The messages of `inference.GRPCInferenceService` as the Open Inference Protocol v2 publishes them, and of its
//! `RepositoryIndex` extension. They are written down here rather than generated, so that building needs no compiler of
//! `.proto` files: the numbers are the interface, and the protocol does not change them.

use prost::{Message, Oneof};
use std::collections::HashMap;

#[derive(Clone, Copy, Message, PartialEq)]
pub(super) struct Nothing {}

#[derive(Clone, Copy, Message, PartialEq)]
pub(super) struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub(super) live: bool,
}

#[derive(Clone, Copy, Message, PartialEq)]
pub(super) struct ServerReadyResponse {
    #[prost(bool, tag = "1")]
    pub(super) ready: bool,
}

/// Of `ModelReady` and `ModelMetadata` alike.
#[derive(Clone, Message, PartialEq)]
pub(super) struct ModelRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, Copy, Message, PartialEq)]
pub(super) struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub(super) ready: bool,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) extensions: Vec<String>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) platform: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<TensorMetadata>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub(super) inputs: Vec<InferTensor>,
    #[prost(message, repeated, tag = "6")]
    pub(super) outputs: Vec<RequestedOutput>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub(super) raw_input_contents: Vec<bytes::Bytes>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct RequestedOutput {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(map = "string, message", tag = "2")]
    pub(super) parameters: HashMap<String, InferParameter>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<InferTensor>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(super) raw_output_contents: Vec<bytes::Bytes>,
}

/// Of inputs and outputs alike.
#[derive(Clone, Message, PartialEq)]
pub(super) struct InferTensor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub(super) contents: Option<Contents>,
}

/// Elements by their type; half precision has none of its own and goes as bytes.
#[derive(Clone, Message, PartialEq)]
pub(super) struct Contents {
    #[prost(bool, repeated, tag = "1")]
    pub(super) bools: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub(super) ints: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub(super) longs: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) unsigned_ints: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) unsigned_longs: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub(super) floats: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub(super) doubles: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(super) bytes: Vec<bytes::Bytes>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct InferParameter {
    #[prost(oneof = "Parameter", tags = "1, 2, 3, 4, 5")]
    pub(super) choice: Option<Parameter>,
}

#[derive(Clone, Oneof, PartialEq)]
pub(super) enum Parameter {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Unsigned(u64),
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct IndexRequest {
    #[prost(string, tag = "1")]
    pub(super) repository: String,
    #[prost(bool, tag = "2")]
    pub(super) ready: bool,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct IndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) models: Vec<IndexEntry>,
}

#[derive(Clone, Message, PartialEq)]
pub(super) struct IndexEntry {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, tag = "3")]
    pub(super) state: String,
    #[prost(string, tag = "4")]
    pub(super) reason: String,
}
