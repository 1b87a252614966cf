//! Cuts inside layers, for boards whose memory is the limit.
//!
//! A cut between layers does not help a board that cannot hold what goes into and comes out of one layer. So every board computes a
//! part of every layer. [`plan`] chooses how, from the free memory, the free flash and the speed of each [`Board`] and from the
//! [`Link`] between them; [`programs`] says it to each board in the words of [`karman_tensor::split`], whose workers carry it out.
//!
//! # How a layer is split
//!
//! - **Bands** ([`Form::Rows`]): a board owns some rows of the output, and needs those rows of the input and a few more, the halo.
//!   Consecutive layers fuse into one stage: rows pass from layer to layer, the activations between them never exist as a
//!   whole, and a halo is exchanged once for the stage; what the boards compute twice for it is the price. All boards hold all
//!   weights.
//! - **Kernels** ([`Form::Channels`]): a board owns some output channels, or some neurons, and their weights only. It needs all of
//!   the input, which passes by row by row.
//! - **Sums** ([`Work::Reduce`]): a board holds some input channels (or some rows of a mean) and sums over them; the sums of one row
//!   after the other go to its owner. Sums take four bytes, so this pays where the output is much smaller than the input.
//!
//! The chooser ([`plan`]) is a shortest path over the layers, in which a stage is an edge, memory a hard limit and time the length
//! ([`predict()`] foresees both for a stage; its memory is an upper bound however packets are delayed, its traffic exact). Boards
//! take part by [`portions()`].
//!
//! [`flat`] is the published split (Lu et al., arXiv 2605.09357): kernels and neurons in flat order, with its input maps in
//! run-length form; it is what ours is compared with.
//!
//! | file | what |
//! |---|---|
//! | `board` | what a board has, what it costs to send |
//! | `portions` | who takes how much |
//! | `program` | a plan as one program for each board |
//! | `predict` | peak memory, traffic, operations and weights, stage by stage |
//! | `rehearse` | what a worker will do in a stage, in numbers |
//! | `edges` | all stages that could be, with their costs |
//! | `choose` | the best way through them |
//! | `flat` | the published split |
//! | `shares` | who computes which pieces, where boards keep nothing between calls |
//!
//! ```
//! use karman_sched::partition::inside_layer::{Board, Link, Objective, plan, predict};
//! use karman_tensor::quantised::mobilenet_v2;
//!
//! // Four microcontrollers with 96 KiB to spare run a network that takes 378 KiB for one of its layers.
//! let layers = mobilenet_v2(112, 1000)?;
//! let board = Board { free_memory: 96 << 10, free_flash: 8 << 20, operations_per_second: 1e8 };
//! let plan = plan(&layers, &[board; 4], Link::ETHERNET_100, Objective::Time)?;
//! let foreseen = predict(&layers, &plan)?;
//! assert!(foreseen.boards.iter().all(|board| board.peak <= board_limit()));
//! # fn board_limit() -> u64 { 96 << 10 }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod board;
mod choose;
mod edges;
pub mod flat;
mod portions;
mod predict;
mod program;
mod rehearse;
mod shares;

pub use board::{Board, Link, PlanError};
pub use choose::{Objective, plan};
pub use karman_tensor::split::Work;
pub use portions::{divide, portions};
pub use predict::{BoardCost, Prediction, StageCost, predict};
pub use program::{Form, Plan, PlannedStage, programs};
pub use shares::{ShareCost, SharePlan, SharedLayer, cost_of_share, share};
