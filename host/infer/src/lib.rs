//! Runs ONNX models on the back-ends that are there.
#![forbid(unsafe_code)]
