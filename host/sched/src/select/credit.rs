use serde::{Deserialize, Serialize};

/// Follows a mix call by call: with every call each candidate earns its share, and the one that serves pays for it. So that it does
/// not change with every call, another one takes over only when it has earned half a cool-down.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Credit {
    earned: Vec<f64>,
    current: Option<usize>,
    /// Calls since the last change.
    calls: u32,
}

/// Who serves next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) chosen: usize,
    pub(crate) runner_up: Option<usize>,
    /// It served before, and for how many calls.
    pub(crate) kept: Option<u32>,
}

impl Credit {
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            earned: vec![0.0; candidates],
            current: None,
            calls: 0,
        }
    }

    /// Whether it can be that of so many candidates.
    pub(crate) fn is_of(&self, candidates: usize) -> bool {
        self.earned.len() == candidates && self.current.is_none_or(|current| current < candidates)
    }

    /// Who serves next by these shares, of which the unreachable have none; nobody when nobody has any.
    pub(crate) fn next(&mut self, shares: &[f64], cool_down: u32) -> Option<Turn> {
        let turn = f64::from(cool_down.max(1));
        // What was earned under plans long past is not all owed.
        let most = 4.0 * turn;
        for (earned, share) in self.earned.iter_mut().zip(shares) {
            *earned = if *share > 0.0 {
                (*earned + share).clamp(-most, most)
            } else {
                0.0
            };
        }
        let in_mix = || (0..shares.len()).filter(|candidate| shares[*candidate] > 0.0);
        let by_credit = |one: &usize, other: &usize| self.earned[*one].total_cmp(&self.earned[*other]);
        let best = in_mix().max_by(by_credit)?;
        let stays = self.current.filter(|current| {
            shares[*current] > 0.0 && (self.calls < cool_down || self.earned[best] < turn / 2.0)
        });
        let chosen = stays.unwrap_or(best);
        let runner_up = in_mix()
            .filter(|candidate| *candidate != chosen)
            .max_by(by_credit);
        let kept = (self.current == Some(chosen)).then_some(self.calls);
        self.earned[chosen] -= 1.0;
        self.calls = kept.map_or(1, |calls| calls.saturating_add(1));
        self.current = Some(chosen);
        Some(Turn {
            chosen,
            runner_up,
            kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_mix_is_followed_to_a_cool_down(
            raw in prop::collection::vec(0.01f64..1.0, 1..5), cool_down in 1u32..20
        ) {
            let whole: f64 = raw.iter().sum();
            let shares: Vec<f64> = raw.iter().map(|share| share / whole).collect();
            let mut credit = Credit::new(shares.len());
            let mut served = vec![0.0; shares.len()];
            let mut changes = 0;
            for _ in 0..2000 {
                let turn = credit.next(&shares, cool_down).unwrap();
                served[turn.chosen] += 1.0;
                changes += usize::from(turn.kept.is_none());
            }
            for (served, share) in served.iter().zip(&shares) {
                prop_assert!((served - 2000.0 * share).abs() <= 4.0 * f64::from(cool_down), "{served} {share}");
            }
            prop_assert!(changes <= 2000 / cool_down as usize + 1);
        }
    }

    #[test]
    fn who_leaves_the_mix_leaves_at_once() {
        let mut credit = Credit::new(3);
        assert_eq!(credit.next(&[1.0, 0.0, 0.0], 10).unwrap().chosen, 0);
        let turn = credit.next(&[0.0, 0.3, 0.7], 10).unwrap();
        assert_eq!((turn.chosen, turn.runner_up, turn.kept), (2, Some(1), None));
        assert_eq!(credit.next(&[0.0; 3], 10), None);
    }
}
