//! What must survive a power cut.
#![forbid(unsafe_code)]
