//! What must hold of a workflow's run.
//!
//! | file | what |
//! |---|---|
//! | `crashes` | wherever its coordinator is killed |
//! | `steps` | step by step: time that is over, edges, lists, contracts |
//! | `long` | where more is known of it than is kept |
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod crashes;
mod long;
mod steps;

use karman_types::TaskId;

const ID: TaskId = TaskId::from_parts(0, 7);
