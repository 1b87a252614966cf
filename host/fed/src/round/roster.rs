use super::AssignmentId;
use crate::select::{Candidate, NotEligible};
use crate::{ClientId, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every client that the run has met.
pub(crate) type Roster = BTreeMap<ClientId, Member>;

/// What is known of one client.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Member {
    pub(crate) profile: Profile,
    pub(crate) here: bool,
    /// What it trains for now.
    pub(crate) busy: Option<AssignmentId>,
    /// What it answered last.
    pub(crate) answered: Option<AssignmentId>,
    /// The same, where the answer is in what is gathered now.
    gathered: Option<AssignmentId>,
    /// The last of its answers that is in a version.
    counted: Option<AssignmentId>,
    /// Orders that it has answered, if only to say that it cannot: no more updates have come from it.
    pub(crate) answers: u64,
    pub(crate) refusals: u32,
    pub(crate) excluded: bool,
    pub(crate) chosen: u64,
    pub(crate) last_round: Option<u64>,
    /// The version that it was to train and could not.
    pub(crate) failed_at: Option<u64>,
    /// Why it could not take part when a client was last looked for.
    pub(crate) passed_over: Option<NotEligible>,
    pub(crate) loss: Option<f64>,
    /// Seconds of its training, as far as that is told apart, of all that an order takes, and of a step: moving means.
    pub(crate) seconds: Option<f64>,
    pub(crate) whole: Option<f64>,
    pub(crate) per_step: Option<f64>,
}

/// How fast the moving means follow.
const FOLLOW: f64 = 0.3;

impl Member {
    pub(crate) fn is_free(&self) -> bool {
        self.here && !self.excluded && self.busy.is_none()
    }

    /// Takes in that an answer is gathered.
    pub(crate) fn answers(&mut self, id: AssignmentId) {
        self.answered = Some(id);
        self.gathered = Some(id);
    }

    /// Takes in that what was gathered is in a version now, or was dropped.
    pub(crate) fn settles(&mut self, is_in_a_version: bool) {
        let gathered = self.gathered.take().filter(|_| is_in_a_version);
        self.counted = gathered.or(self.counted);
    }

    /// Its last answer that has not been for nothing, as far as is known.
    pub(crate) fn counted(&self) -> Option<AssignmentId> {
        self.gathered.or(self.counted)
    }

    /// Takes in how long an answer took, and with it all that came of its order.
    pub(crate) fn measured(&mut self, seconds: f64, whole: f64, steps: u32) {
        let follow =
            |mean: Option<f64>, value: f64| mean.map_or(value, |mean| mean + FOLLOW * (value - mean));
        self.seconds = Some(follow(self.seconds, seconds));
        self.whole = Some(follow(self.whole, whole));
        self.per_step = Some(follow(self.per_step, seconds / f64::from(steps.max(1))));
    }

    /// What selection sees of it; more samples than a client may declare count as none.
    pub(crate) fn candidate(&self, client: ClientId, most_samples: u64) -> Candidate {
        let samples = match self.profile.samples {
            samples if samples <= most_samples => samples,
            _ => 0,
        };
        Candidate {
            client,
            samples,
            label_entropy: self.profile.label_entropy,
            charge: self.profile.charge,
            loss: self.loss,
            seconds: self.seconds,
            chosen: self.chosen,
            last_round: self.last_round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_does_not_count() {
        let mut member = Member::default();
        assert_eq!(member.counted(), None);
        member.answers(AssignmentId(1));
        assert_eq!(member.counted(), Some(AssignmentId(1)), "it is gathered");
        member.settles(false);
        assert_eq!(member.counted(), None);
        member.answers(AssignmentId(2));
        member.settles(true);
        // It was not asked for this version.
        member.settles(true);
        member.answers(AssignmentId(3));
        member.settles(false);
        assert_eq!(member.counted(), Some(AssignmentId(2)));
    }
}
