//! Laws of the policies, against brute force on small problems.

mod bounds;
mod laws;
mod measured;
mod problems;
mod refused;
mod replan;
