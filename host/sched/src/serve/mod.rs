//! What runs next on a device that several models share, up to which exit, in what batch.
//!
//! A [`Device`] owns what waits ([`Backlog`]) and asks a policy ([`Serve`]) whenever a server is free. Each policy is one file:
//!
//! | file | what runs next |
//! |---|---|
//! | `edgeserving` | what leaves the queues most stable, as accurate as all deadlines together allow (`urgency`, `plan`) |
//! | `edf` | what is due first, with the deepest exit in time |
//! | `edf_final` | what is due first, without early exits |
//! | `longest_queue` | the longest queue, with the deepest exit in time |
//! | `deferred` | full batches, as late as they may start; what is too late is refused |
//! | `refuse_late` | what another policy says, after everything too late is refused |
//! | `gather` | what another policy says, of what has waited long enough for others to be run with |
//!
//! [`Watch`] says when it is time to measure again on which of two devices a model runs.
//!
//! ```
//! use karman_sched::serve::{Action, Device, Edf, Exit, ServedModel};
//! use std::time::Duration;
//!
//! let ms = Duration::from_millis;
//! let exit = |depth, accuracy, time| Exit { depth, accuracy, times: vec![(1, ms(time)), (8, ms(2 * time))] };
//! let model = ServedModel::new(ms(50), 8, vec![exit(1, 0.6, 4), exit(2, 0.8, 20)])?;
//! let mut device = Device::new([model].into(), Edf, 1);
//!
//! // Two requests; the first has waited for so long that only the early exit is in time.
//! device.arrived(ms(0), 0, "first");
//! device.arrived(ms(20), 0, "second");
//! let action = device.poll(ms(30))?;
//! let Some(Action::Run { exit, requests, planned, .. }) = action else { panic!() };
//! assert_eq!((exit, requests), (0, vec!["first", "second"]));
//! // It takes as long as planned; otherwise the device would plan with its pace from now on.
//! device.finished(planned, ms(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backlog;
mod deferred;
mod device;
mod edf;
mod edf_final;
mod edgeserving;
mod gather;
mod longest_queue;
mod plan;
mod profile;
mod refuse_late;
mod urgency;
mod watch;

pub use backlog::Backlog;
pub use deferred::Deferred;
pub use device::{Action, BadChoice, Device};
pub use edf::Edf;
pub use edf_final::EdfFinal;
pub use edgeserving::EdgeServing;
pub use gather::Gather;
pub use longest_queue::LongestQueue;
pub use profile::{Exit, ProfileError, ServedModel};
pub use refuse_late::RefuseLate;
pub use watch::{Watch, WatchTuning};

use std::time::Duration;

/// A policy that says what a device runs next. It sees the backlog only: the same backlogs at the same times give the same
/// choices.
pub trait Serve {
    /// What is to be done now that a server is free; nothing only when nothing waits.
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice>;

    /// A request came at this time and stands in the backlog. For policies that keep sums.
    fn arrived(&mut self, _backlog: &Backlog, _model: usize, _at: Duration) {}

    /// This many of the oldest requests of a model have left the backlog.
    fn left(&mut self, _backlog: &Backlog, _model: usize, _count: usize) {}
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    /// Run a batch of the oldest requests of a model.
    Run {
        /// Which model.
        model: usize,
        /// Up to which exit.
        exit: usize,
        /// How many requests.
        batch: usize,
    },
    /// Refuse the oldest requests of a model.
    Refuse {
        /// Which model.
        model: usize,
        /// How many requests.
        count: usize,
    },
    /// Nothing yet: ask again then.
    Wait {
        /// When.
        until: Duration,
    },
}

impl<P: Serve + ?Sized> Serve for Box<P> {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        (**self).choose(now, backlog)
    }

    fn arrived(&mut self, backlog: &Backlog, model: usize, at: Duration) {
        (**self).arrived(backlog, model, at);
    }

    fn left(&mut self, backlog: &Backlog, model: usize, count: usize) {
        (**self).left(backlog, model, count);
    }
}

#[cfg(test)]
mod tests;
