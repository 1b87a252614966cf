use super::message::Step;
use std::time::Duration;

/// The longest that a step takes whose clients only compute.
const MOST: Duration = Duration::from_secs(20);

impl Step {
    /// How long this step may take when so much time is `left` until the round is over. Vectors get three quarters of it, for they
    /// take a training; the steps after them share the rest, so that whoever is lost at one of them leaves time for the others.
    pub fn time(self, left: Duration) -> Duration {
        match self {
            Self::Keys | Self::Shares => (left / 8).min(MOST),
            Self::Mask => left / 4 * 3,
            Self::Consistency => (left / 3).min(MOST),
            Self::Unmask => (left / 2).min(MOST),
            Self::Done => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_in_which_every_step_waits_for_somebody_lost_still_ends_in_time() {
        for seconds in [2, 10, 60, 160, 600, 86_400] {
            let whole = Duration::from_secs(seconds);
            let mut left = whole;
            for step in [
                Step::Keys,
                Step::Shares,
                Step::Mask,
                Step::Consistency,
                Step::Unmask,
            ] {
                let time = step.time(left);
                assert!(time > Duration::ZERO, "{step} of {seconds} s");
                left -= time;
            }
            assert!(
                left >= whole / 20,
                "{left:?} of {seconds} s are left to unmask the sum"
            );
        }
        let training = Step::Mask.time(Duration::from_secs(600));
        assert_eq!(training, Duration::from_secs(450));
    }
}
