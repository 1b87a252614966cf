use crate::{Instant, Profile, Window};
use karman_types::{format_duration, serde_optional_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Who can take part, whatever the policy: `[eligibility]`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Eligibility {
    /// The least state of charge, 0 to 1, of a client on a battery. Default 0.2.
    pub least_charge: f64,
    /// How long training is taken to last where it was never measured. Default 60 s, or half of the `timeout` of `[pace]` where that is
    /// shorter.
    #[serde(with = "serde_optional_duration", skip_serializing_if = "Option::is_none")]
    pub training: Option<Duration>,
}

/// How long training is taken to last where nobody says so, and there is time for it.
const USUAL_TRAINING: Duration = Duration::from_secs(60);

impl Default for Eligibility {
    fn default() -> Self {
        Self {
            least_charge: 0.2,
            training: None,
        }
    }
}

/// What one client would have to do in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Workload {
    /// Bytes it receives.
    pub down: u64,
    /// How long it is taken to train.
    pub training: Duration,
    /// Bytes it sends.
    pub up: u64,
    /// How long a round with it takes, the way there and back included, where one was measured: this counts then.
    pub measured: Option<Duration>,
}

/// Why a client cannot take part now.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum NotEligible {
    /// Its battery is too low.
    #[error("its state of charge is {charge}, at least {least} is needed")]
    Charge {
        /// What it has.
        charge: f64,
        /// What is asked for.
        least: f64,
    },
    /// It would give away more than the run lets it.
    #[error(
        "one more update of it would give away ε = {epsilon:.3}, and `local-privacy.most-epsilon` is {most}"
    )]
    Epsilon {
        /// What it would have given away.
        epsilon: f64,
        /// What it may.
        most: f64,
    },
    /// It would give away more than its operator lets it.
    #[error(
        "one more update of it would give away ε = {epsilon:.3}, and `federated.most-epsilon` of its node is {most}"
    )]
    EpsilonOfNode {
        /// What it would have given away.
        epsilon: f64,
        /// What it may.
        most: f64,
    },
    /// It goes out of view before it has received the model, trained, and sent its update, or is out of view now.
    #[error("{}", out_of_view(*.in_view, *.needed))]
    View {
        /// How much longer it is in view without a break.
        in_view: Duration,
        /// How long a round with it is expected to take.
        needed: Duration,
    },
    /// It could not send its update in time.
    #[error(
        "a round with it takes {}, and `pace.timeout` is {}",
        format_duration(*.needed),
        format_duration(*.timeout)
    )]
    Time {
        /// How long a round with it is expected to take.
        needed: Duration,
        /// How long it may.
        timeout: Duration,
    },
}

fn out_of_view(in_view: Duration, needed: Duration) -> String {
    let needed = format_duration(needed);
    match in_view.is_zero() {
        true => format!("not in view: {needed} needed"),
        false => format!(
            "not in view long enough: {} of {needed} needed",
            format_duration(in_view)
        ),
    }
}

/// A training that is taken to last longer than anybody has for it: no client would ever be asked, and so none measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`eligibility.training` is {} and `pace.timeout` is {}: no client would be asked; make the timeout longer, or leave `training` away",
    format_duration(*.training),
    format_duration(*.timeout)
)]
pub struct NoTime {
    /// How long training is taken to last.
    pub training: Duration,
    /// How long a client may take.
    pub timeout: Duration,
}

impl Eligibility {
    /// How long the training of a client is taken to last that was never measured, where it may take so long altogether. The half that is
    /// left is for the way there and back, or, without a server in the middle, for the updates to get round.
    pub fn expected_training(&self, timeout: Duration) -> Duration {
        self.training.unwrap_or_else(|| USUAL_TRAINING.min(timeout / 2))
    }

    /// Whether anybody would be asked who may take so long.
    ///
    /// # Errors
    /// Training is taken to last longer.
    pub fn check_timeout(&self, timeout: Duration) -> Result<(), NoTime> {
        let training = self.expected_training(timeout);
        match training <= timeout {
            true => Ok(()),
            false => Err(NoTime { training, timeout }),
        }
    }

    /// Whether a client can take part in a round that begins now and may last for `timeout`: it stays in view for as long as it is
    /// expected to take, by what was measured; it is done in time; and its battery is full enough. `windows` are those in which it can
    /// be reached, nothing where it always can be.
    ///
    /// # Errors
    /// The first reason why it cannot.
    pub fn check(
        &self,
        profile: &Profile,
        windows: Option<&[Window]>,
        work: &Workload,
        now: Instant,
        timeout: Duration,
    ) -> Result<(), NotEligible> {
        let needed = check_view(profile, windows, work, now)?;
        if needed > timeout {
            return Err(NotEligible::Time { needed, timeout });
        }
        let least = self.least_charge;
        match profile.charge {
            Some(charge) if charge < least => Err(NotEligible::Charge { charge, least }),
            _ => Ok(()),
        }
    }
}

/// How long a client is expected to take, if it is in view for as long from now on. A driver asks a client that it has lost for half a
/// minute only: what does not fit into one pass would be lost with it.
///
/// # Errors
/// [`NotEligible::View`] where it is not.
pub(crate) fn check_view(
    profile: &Profile,
    windows: Option<&[Window]>,
    work: &Workload,
    now: Instant,
) -> Result<Duration, NotEligible> {
    let (in_view, planned) = windows.map_or((Duration::MAX, None), |windows| in_view(windows, now));
    let measured = profile.link.map(|link| link.bytes_per_second);
    let needed = work.time(measured.or(planned));
    match in_view.is_zero() || in_view < needed {
        true => Err(NotEligible::View { in_view, needed }),
        false => Ok(needed),
    }
}

/// How much longer a client is in view without a break, and the slowest link that is planned until then.
fn in_view(windows: &[Window], now: Instant) -> (Duration, Option<f64>) {
    let mut end = now;
    let mut slowest: Option<f64> = None;
    for window in windows.iter().filter(|window| window.end > now) {
        if window.start > end {
            break;
        }
        end = end.max(window.end);
        slowest = slowest
            .into_iter()
            .chain(window.bytes_per_second)
            .reduce(f64::min);
    }
    (end.since(now), slowest)
}

impl Workload {
    /// How long it takes over a link of so many bytes a second. One of unknown speed is taken to be fast.
    fn time(&self, bytes_per_second: Option<f64>) -> Duration {
        let way = |rate: f64| {
            let seconds = self.down.saturating_add(self.up) as f64 / rate;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        let expected = || {
            let way = bytes_per_second.map_or(Duration::ZERO, way);
            self.training.saturating_add(way)
        };
        self.measured.unwrap_or_else(expected)
    }
}
