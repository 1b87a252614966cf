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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Bytes it receives.
    pub down: u64,
    /// How long it trains.
    pub training: Duration,
    /// Bytes it sends.
    pub up: u64,
    /// What both go through, in bytes a second; nothing where it was never measured.
    pub bytes_per_second: Option<f64>,
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
    /// It could not send its update in time.
    #[error("in the windows in which it can be reached it would not be done in time")]
    Contact,
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

    /// Whether a client can take part in a round that begins now and ends at `until`: its battery is full enough, and it is in view long
    /// enough to receive the model and, after training, to send its update.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(
        &self,
        profile: &Profile,
        work: &Workload,
        now: Instant,
        until: Instant,
    ) -> Result<(), NotEligible> {
        if let Some(charge) = profile.charge
            && charge < self.least_charge
        {
            let least = self.least_charge;
            return Err(NotEligible::Charge { charge, least });
        }
        match done_at(&profile.windows, work, now) {
            Some(done) if done <= until => Ok(()),
            _ => Err(NotEligible::Contact),
        }
    }
}

/// When a client that begins now has sent its update: it receives within windows (a transfer goes on in the next one), trains whether
/// in view or not, and sends within windows. Nothing when the windows do not suffice. Without windows it can always be reached.
/// A link of unknown speed is taken to be fast: it has to be in view at all.
pub fn done_at(windows: &[Window], work: &Workload, now: Instant) -> Option<Instant> {
    let time = |bytes: u64| match work.bytes_per_second {
        Some(rate) => Duration::try_from_secs_f64(bytes as f64 / rate).unwrap_or(Duration::MAX),
        None => Duration::ZERO,
    };
    let received = transferred_at(windows, time(work.down), now)?;
    transferred_at(windows, time(work.up), received.after(work.training))
}

/// When a transfer of this length that begins now is through, its time counting only within the windows.
fn transferred_at(windows: &[Window], length: Duration, now: Instant) -> Option<Instant> {
    if windows.is_empty() {
        return Some(now.after(length));
    }
    let mut left = length;
    for window in windows.iter().filter(|window| window.end > now) {
        let start = window.start.max(now);
        let room = window.end.since(start);
        if left <= room {
            return Some(start.after(left));
        }
        left -= room;
    }
    None
}
