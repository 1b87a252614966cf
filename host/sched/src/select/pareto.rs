use super::plan::{RESOURCES, Use};

/// The candidates that no other one beats: none is at least as accurate at no more of any resource. Of equals the first stays. In
/// their order.
pub fn pareto_front(candidates: &[Use]) -> Vec<usize> {
    let beats = |one: &Use, other: &Use| {
        one.value >= other.value
            && (0..RESOURCES).all(|resource| one.takes[resource] <= other.takes[resource])
    };
    let stays = |index: &usize| {
        let candidate = &candidates[*index];
        !candidates.iter().enumerate().any(|(rival, other)| {
            rival != *index && beats(other, candidate) && (rival < *index || !beats(candidate, other))
        })
    };
    (0..candidates.len()).filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn takes(value: f64, cost: f64, late: f64) -> Use {
        Use {
            value,
            takes: [cost, late, 0.0],
        }
    }

    #[test]
    fn a_dearer_slower_worse_candidate_goes() {
        let candidates = [
            takes(0.9, 1.0, 0.1),
            takes(0.8, 2.0, 0.2),
            takes(0.9, 1.0, 0.1),
            takes(0.7, 0.5, 0.3),
        ];
        assert_eq!(pareto_front(&candidates), [0, 3]);
    }

    proptest! {
        #[test]
        fn whoever_goes_is_beaten_by_one_that_stays(
            raw in prop::collection::vec((0u8..4, 0u8..4, 0u8..4), 1..12)
        ) {
            let candidates: Vec<Use> =
                raw.iter().map(|(value, cost, late)| takes((*value).into(), (*cost).into(), (*late).into())).collect();
            let front = pareto_front(&candidates);
            for (index, candidate) in candidates.iter().enumerate() {
                let beaten = front.iter().any(|stays| {
                    let stays = &candidates[*stays];
                    stays.value >= candidate.value && (0..RESOURCES).all(|r| stays.takes[r] <= candidate.takes[r])
                });
                prop_assert!(front.contains(&index) || beaten);
            }
        }
    }
}
