//! Low-rank adapters (LoRA) of clients with equal or unequal ranks made one, and models trained block by block.
//!
//! A client's [`Adapter`] is a pair: what it adds to a weight is their product. Averaging the two factors apart ([`factor_mean()`])
//! adds products of one client's factor with another's; stacking them ([`florist()`]) does not, and a singular value decomposition
//! brings the stack down to the rank that matters. [`segment_mean`] averages ranks that are nested prefixes. A run with `[low-rank]` has its
//! clients train such [`Adapters`] by one of the two ([`crate::LowRankRule`]). [`BlockSchedule`] and [`Pipeline`] hide the transfer of one block behind the training of the next.

mod adapter;
mod adapting;
mod factor_mean;
mod florist;
mod parablock;
mod prelort;

pub use adapter::{Adapter, LoraError, Weighted};
pub use adapting::Adapters;
pub(crate) use adapting::{Adapting, Stepped};
pub use factor_mean::factor_mean;
pub use florist::{Compressed, florist};
pub use parablock::{BlockSchedule, Pipeline, Step};
pub use prelort::segment_mean;
