//! Policies that plugins bring, whatever they decide.
//!
//! A policy that decides by what it is shown and nothing else is asked [by name](ByName), in an instance of its own each time; what it
//! decides ([`Decided`]) tells what the plugin [had to do with it](ByPlugin). So are calls routed ([`crate::call`]) and tasks placed
//! ([`crate::place`]). A policy that selects models learns from every request instead: it keeps its instance, and is written down and
//! renewed at checkpoints ([`crate::select::Brought`]).
//!
//! | file | what |
//! |---|---|
//! | `by_name` | the policy that a plugin of some name brings, with the default to fall back to |
//! | `guests` | what runs them |
//! | `failure` | why one did not do what it was to do |
//! | `strikes` | whether one is asked that has failed again and again |
//! | `words` | what one says, as it is shown to people |

mod by_name;
mod failure;
mod guests;
mod strikes;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use by_name::{ByName, ByPlugin, Decided};
pub use failure::{During, Failed, Failure};
pub use guests::{Guests, PolicyPlugin};
pub use words::is_shown;
pub(crate) use words::words_of;
