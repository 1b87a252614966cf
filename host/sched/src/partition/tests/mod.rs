//! Laws of the policies, against brute force on small problems.

mod bounds;
mod laws;
mod measured;
mod probe;
mod problems;
mod refused;
mod replan;
