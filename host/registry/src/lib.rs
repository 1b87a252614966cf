//! Push and pull plugins as OCI artifacts.
#![forbid(unsafe_code)]
