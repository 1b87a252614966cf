//! One plugin, one file: manifest and signature inside the component.
#![forbid(unsafe_code)]
