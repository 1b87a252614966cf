//! The plugin author's kit: templates and builds for each language.
#![forbid(unsafe_code)]
