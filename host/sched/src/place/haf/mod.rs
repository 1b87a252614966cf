//! HAF (Li, Wu and Simeonidou 2026): which node a service lives on is decided slowly, behind a critic; what share of the node it
//! gets, fast and in closed form. The paper publishes no formulas; these are ours, with the properties it states.

mod critic;
mod shares;

pub use critic::{Critic, CriticSettings, Forecast, Haf, Host, Move, MoveReason, Service};
pub use shares::{Must, Share, ShareError, Shares, shares};
