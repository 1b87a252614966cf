use serde::{Deserialize, Serialize};

/// Measured times of growing work, and what they say of work in between: more work never takes less.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct Ladder(Vec<(f64, f64)>);

impl Ladder {
    /// How long so much work takes: between two rungs on a straight line through the logarithms of both, below the first what the
    /// first takes (that is what a call costs), beyond the last at its rate. `None` without rungs.
    pub fn seconds(&self, work: f64) -> Option<f64> {
        let above = self.0.partition_point(|(rung, _)| *rung < work);
        let below = above.checked_sub(1).and_then(|below| self.0.get(below));
        Some(match (below, self.0.get(above)) {
            (None, first) => first?.1,
            (Some((last, seconds)), None) => seconds * (work / last),
            (Some((less, sooner)), Some((more, later))) => {
                let share = (work / less).ln() / (more / less).ln();
                sooner * (later / sooner).powf(share)
            }
        })
    }
}

/// Work and seconds, in any order. What is not above zero and finite is left out, and a time shorter than that of less work is
/// taken for noise: it counts as that.
impl From<Vec<(f64, f64)>> for Ladder {
    fn from(mut rungs: Vec<(f64, f64)>) -> Self {
        let usable = |number: f64| number.is_finite() && number > 0.0;
        rungs.retain(|(work, seconds)| usable(*work) && usable(*seconds));
        rungs.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.total_cmp(&two.1)));
        let mut longest = 0.0_f64;
        for (_, seconds) in &mut rungs {
            longest = longest.max(*seconds);
            *seconds = longest;
        }
        Self(rungs)
    }
}

impl From<Ladder> for Vec<(f64, f64)> {
    fn from(ladder: Ladder) -> Self {
        ladder.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn between_rungs_it_follows_them() {
        let ladder = Ladder::from(vec![(400.0, 4.0), (100.0, 1.0), (100.0, f64::NAN), (-1.0, 9.0)]);
        let seconds = |work| ladder.seconds(work).unwrap();
        assert_eq!([1.0, 100.0, 400.0, 4000.0].map(seconds), [1.0, 1.0, 4.0, 40.0]);
        assert!((seconds(200.0) - 2.0).abs() < 1e-12);
        assert_eq!(Ladder::default().seconds(1.0), None);
    }

    proptest! {
        #[test]
        fn more_work_never_takes_less(
            rungs in prop::collection::vec((1.0..1e9_f64, 1e-7..10.0_f64), 1..12),
            work in 0.1..1e10_f64,
            more in 1.0..1e3_f64,
        ) {
            let ladder = Ladder::from(rungs);
            let (less, more) = (ladder.seconds(work).unwrap(), ladder.seconds(work * more).unwrap());
            prop_assert!(less.is_finite() && less > 0.0);
            // But for the last digits of a power.
            prop_assert!(less <= more * (1.0 + 1e-9), "{less} > {more}");
        }
    }
}
