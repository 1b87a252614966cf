//! Laws of the policies, against brute force on small problems.

mod laws;
mod problems;
mod refused;
mod replan;
