//! Places the task first that can be done first, of all that are ready.

mod estimate;
mod plan;

use exports::karman::policy::placer::{Fleet, Guest, Job, Placement};

wit_bindgen::generate!({ path: "wit", generate_all });

struct MinMin;

impl Guest for MinMin {
    fn place(now: f64, jobs: Vec<Job>, fleet: Fleet) -> Result<Vec<Placement>, String> {
        Ok(plan::plan(now, &jobs, fleet))
    }
}

export!(MinMin);
