use super::super::{Ask, Served};
use crate::plugin::Failure;

/// One instance of a policy that a plugin brings, in its sandbox. After a failure it is not asked again.
pub trait Guest: Send {
    /// Which candidate serves the next call of a task.
    ///
    /// # Errors
    /// It did not decide.
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure>;

    /// What became of a request.
    ///
    /// # Errors
    /// It did not take that in.
    fn report(&mut self, served: &Served<'_>) -> Result<(), Failure>;

    /// All that the next instance has to know.
    ///
    /// # Errors
    /// It did not say.
    fn save(&mut self) -> Result<Vec<u8>, Failure>;
}

/// What a policy answers, before anybody has looked whether it can be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The candidate that serves, by its place in the task.
    pub chosen: usize,
    /// The one that would have served otherwise.
    pub runner_up: Option<usize>,
    /// Why, as the end of a sentence.
    pub because: String,
}
