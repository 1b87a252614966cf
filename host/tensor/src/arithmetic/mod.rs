//! Reference arithmetic on many arrays of equal length, as rounds of federated learning need it: sums that do not depend on the
//! order of what is added ([`FixedSum`]), and what robust rules are made of.

mod fixed_sum;
mod robust;

pub use fixed_sum::{FixedSum, Grid, GridError, SumError, Term};
pub use robust::{mean_around_median, squared_distances, trimmed_mean};
