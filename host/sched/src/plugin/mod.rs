//! Policies that plugins bring, whatever they decide.
//!
//! | file | what |
//! |---|---|
//! | `guests` | what runs them |
//! | `failure` | why one did not do what it was to do |
//! | `strikes` | whether one is asked that has failed again and again |
//! | `words` | what one says, as it is shown to people |

mod failure;
mod guests;
mod strikes;
mod words;

pub use failure::{During, Failed, Failure};
pub use guests::{Guests, PolicyPlugin};
pub(crate) use strikes::Strikes;
pub use words::is_shown;
pub(crate) use words::words_of;
