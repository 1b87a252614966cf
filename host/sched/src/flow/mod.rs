//! How far a workflow is, and what workflows are made of.

pub mod patterns;
