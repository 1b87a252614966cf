//! Element types, shapes and aligned views of tensors.
#![forbid(unsafe_code)]
