//! What a model is trained by, and what it is judged by.

use crate::road::Kind;

const KINDS: usize = Kind::ALL.len();
/// The share of the focal loss; the rest is Dice's.
const FOCAL: f32 = 0.5;
/// What keeps Dice's coefficient of a kind that is not there from being 0/0: samples.
const SMOOTH: f32 = 1.0;
/// Where a logarithm ends.
const LEAST: f32 = 1e-6;
/// An event that is found shares more than this with one that there is, of what either covers.
const OVERLAP: f64 = 0.5;

/// The loss of a window's scores, and how it changes with each of them.
///
/// Half of it is the focal loss with gamma 2, the mean of `−(1 − p)² ln p` over samples, where p is the probability of what is true;
/// half is one minus the mean over kinds of Dice's coefficient with probabilities for members.
pub(crate) fn loss(scores: &[f32], kinds: &[u8]) -> (f32, Vec<f32>) {
    let length = kinds.len();
    let shares = softmax(scores, length);
    let (mut focal, mut slopes) = (0.0, vec![0.0; scores.len()]);
    for (at, kind) in kinds.iter().enumerate() {
        let place = usize::from(*kind) * length + at;
        let share = shares[place].max(LEAST);
        let rest = 1.0 - share;
        focal -= rest * rest * share.ln() / length as f32;
        slopes[place] = FOCAL * (2.0 * rest * share.ln() - rest * rest / share) / length as f32;
    }
    let mut overlap = 0.0;
    let rows = slopes.chunks_mut(length).zip(shares.chunks(length));
    for (kind, (slopes, shares)) in rows.enumerate() {
        let is_it = |at: usize| f32::from(u8::from(usize::from(kinds[at]) == kind));
        let both: f32 = (0..length).map(|at| shares[at] * is_it(at)).sum();
        let either: f32 = (0..length).map(|at| shares[at] + is_it(at)).sum::<f32>() + SMOOTH;
        let dice = (2.0 * both + SMOOTH) / either;
        overlap += dice / KINDS as f32;
        for (at, slope) in slopes.iter_mut().enumerate() {
            *slope -= (1.0 - FOCAL) * (2.0 * is_it(at) - dice) / either / KINDS as f32;
        }
    }
    // From probabilities back to scores.
    for at in 0..length {
        let each = move || (0..KINDS).map(move |kind| kind * length + at);
        let mean: f32 = each().map(|place| shares[place] * slopes[place]).sum();
        each().for_each(|place| slopes[place] = shares[place] * (slopes[place] - mean));
    }
    (FOCAL * focal + (1.0 - FOCAL) * (1.0 - overlap), slopes)
}

/// Probabilities of the kinds, sample by sample.
fn softmax(scores: &[f32], length: usize) -> Vec<f32> {
    let mut shares = scores.to_vec();
    for at in 0..length {
        let each = move || (0..KINDS).map(move |kind| kind * length + at);
        let most = each().map(|place| shares[place]).fold(f32::MIN, f32::max);
        each().for_each(|place| shares[place] = (shares[place] - most).exp());
        let sum: f32 = each().map(|place| shares[place]).sum();
        each().for_each(|place| shares[place] /= sum);
    }
    shares
}

/// What a model makes of windows, as counts: those of several clients may be added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// For each kind: samples that the model rightly says are of it, that it wrongly says are, and that it misses.
    pub samples: [Counts; KINDS],
    /// The same of events: stretches of samples of one kind.
    pub events: [Counts; KINDS],
    /// Of all windows together.
    losses: f64,
    windows: u64,
}

/// Right, wrong and missed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Said, and so it is.
    pub right: u64,
    /// Said, and it is not so.
    pub wrong: u64,
    /// Not said, and it is so.
    pub missed: u64,
}

impl Judged {
    /// Counts a window.
    pub(crate) fn count(&mut self, scores: &[f32], kinds: &[u8]) {
        self.losses += f64::from(loss(scores, kinds).0);
        self.windows += 1;
        let said = best(scores, kinds.len());
        for (said, is) in said.iter().zip(kinds) {
            match said == is {
                true => self.samples[usize::from(*is)].right += 1,
                false => {
                    self.samples[usize::from(*said)].wrong += 1;
                    self.samples[usize::from(*is)].missed += 1;
                }
            }
        }
        for (kind, counts) in self.events.iter_mut().enumerate().skip(1) {
            let (found, there) = (stretches(&said, kind), stretches(kinds, kind));
            let right = found
                .iter()
                .filter(|one| there.iter().any(|other| same(one, other)));
            let right = right.count() as u64;
            counts.right += right;
            counts.wrong += found.len() as u64 - right;
            counts.missed += there.len() as u64 - right;
        }
    }

    /// Samples of all that is not plain, of all kinds together.
    pub fn things(&self) -> Counts {
        let mut all = Counts::default();
        for counts in &self.samples[1..] {
            all.right += counts.right;
            all.wrong += counts.wrong;
            all.missed += counts.missed;
        }
        all
    }

    /// The mean loss of a window.
    pub fn loss(&self) -> f64 {
        self.losses / self.windows.max(1) as f64
    }
}

impl Counts {
    /// Twice what is right over that and what is wrong or missed; 0 where there is nothing at all.
    pub fn f1(&self) -> f64 {
        let (right, all) = self.halves();
        right as f64 / all.max(1) as f64
    }

    /// The two numbers whose ratio [`Counts::f1`] is.
    pub const fn halves(&self) -> (u64, u64) {
        (2 * self.right, 2 * self.right + self.wrong + self.missed)
    }
}

/// The kind with the highest score, sample by sample.
fn best(scores: &[f32], length: usize) -> Vec<u8> {
    let of = |at: usize| {
        let score = |kind: &u8| scores[usize::from(*kind) * length + at];
        let kinds = 0..KINDS as u8;
        kinds
            .max_by(|one, other| score(one).total_cmp(&score(other)))
            .unwrap_or(0)
    };
    (0..length).map(of).collect()
}

/// Where samples of a kind begin and end.
fn stretches(kinds: &[u8], kind: usize) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (at, _) in kinds
        .iter()
        .enumerate()
        .filter(|(_, is)| usize::from(**is) == kind)
    {
        match all.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => all.push((at, at + 1)),
        }
    }
    all
}

/// Whether two stretches are of one event. More than half: so each is that of one other at most.
fn same(one: &(usize, usize), other: &(usize, usize)) -> bool {
    let both = one.1.min(other.1).saturating_sub(one.0.max(other.0));
    let either = (one.1 - one.0) + (other.1 - other.0) - both;
    both as f64 > OVERLAP * either as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn slopes_are_those_of_the_loss() {
        let mut random = Rng::with_seed(1);
        let length = 12;
        let scores: Vec<f32> = (0..KINDS * length).map(|_| 4.0 * random.f32() - 2.0).collect();
        // One kind is not there.
        let kinds: Vec<u8> = (0..length).map(|_| random.u8(..3)).collect();
        let (_, slopes) = loss(&scores, &kinds);
        for (place, slope) in slopes.iter().enumerate() {
            let moved = |by: f32| {
                let mut moved = scores.clone();
                moved[place] += by;
                f64::from(loss(&moved, &kinds).0)
            };
            let numeric = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!(
                (numeric - f64::from(*slope)).abs() < 3e-4,
                "{place}: {numeric} {slope}"
            );
        }
    }

    #[test]
    fn what_is_certain_and_right_costs_nothing() {
        let kinds = [0u8, 0, 1, 1, 2, 3, 3, 0];
        let scores: Vec<f32> = (0..KINDS * kinds.len())
            .map(
                |place| match usize::from(kinds[place % kinds.len()]) == place / kinds.len() {
                    true => 30.0,
                    false => 0.0,
                },
            )
            .collect();
        assert!(loss(&scores, &kinds).0 < 1e-4);
        let mut judged = Judged::default();
        judged.count(&scores, &kinds);
        assert_eq!(
            judged.things(),
            Counts {
                right: 5,
                wrong: 0,
                missed: 0
            }
        );
        assert_eq!(judged.things().f1(), 1.0);
        assert!(
            judged.events[1..].iter().all(|counts| counts.f1() == 1.0),
            "{judged:?}"
        );
    }

    #[test]
    fn an_event_is_found_where_more_than_half_is_common() {
        let kinds = [0u8, 1, 1, 1, 1, 0, 0, 0, 0, 2];
        let count = |said: [u8; 10]| {
            let scores: Vec<f32> = (0..KINDS * 10)
                .map(|place| f32::from(u8::from(usize::from(said[place % 10]) == place / 10)))
                .collect();
            let mut judged = Judged::default();
            judged.count(&scores, &kinds);
            judged
        };
        // Three of four samples; and one elsewhere that is none.
        let judged = count([0, 1, 1, 1, 0, 0, 0, 1, 0, 0]);
        let expected = |right, wrong, missed| Counts { right, wrong, missed };
        assert_eq!(judged.samples[1], expected(3, 1, 1));
        assert_eq!(judged.events[1], expected(1, 1, 0));
        assert_eq!(judged.events[2], expected(0, 0, 1));
        assert_eq!(judged.things().halves(), (6, 9));
        // Half is not enough.
        let judged = count([0, 1, 1, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(judged.events[1], expected(0, 1, 1));
        assert_eq!(judged.events[2], expected(1, 0, 0));
    }
}
