//! Many models with early exits on one device: who is entered, what is counted of a run, and how a cell is judged. The simulated study
//! and the live one share it, so that they say the same by the same words.

mod contender;
mod judged;
mod run;

pub use contender::Contender;
pub use judged::Judged;
pub use run::{Run, mean_accuracy, on_time_accuracy, p95_ms, violations};
