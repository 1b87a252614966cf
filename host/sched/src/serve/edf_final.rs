use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// Earliest deadline first without early exits: what a server does whose models have none. With one model, one request in a
/// batch, it is first come, first served.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdfFinal;

impl Serve for EdfFinal {
    fn choose(&mut self, _now: Duration, backlog: &Backlog) -> Option<Choice> {
        let model = backlog.most_urgent()?;
        Some(Choice::Run {
            model,
            exit: backlog.models()[model].deepest(),
            batch: backlog.batch(model),
        })
    }
}
