use super::round::Round;
use karman_fed::swarm::Client;
use std::collections::BTreeMap;

/// How a receiver guesses which update is a sender's own.
#[derive(Clone, Copy)]
pub(super) enum Attack {
    /// The first one that it sends a chunk of.
    Sequential,
    /// The one it sends most chunks of in its first tenth.
    Amount,
    /// The one with the largest sum of 1/(1 + place).
    Weighted,
    /// The one that it sends least of, of all there are: a gate leaves a hole.
    Absent,
}

impl Attack {
    /// The update that is taken for the sender's own, from the updates that its chunks are of, in order.
    fn guess(self, sent: &[(u32, u32)], updates: usize) -> Option<u32> {
        if matches!(self, Self::Absent) {
            return least_sent(sent, updates);
        }
        let scored = match self {
            Self::Sequential => &sent[..sent.len().min(1)],
            Self::Amount => &sent[..sent.len().div_ceil(10)],
            Self::Weighted | Self::Absent => sent,
        };
        let mut scores: BTreeMap<u32, f64> = BTreeMap::new();
        for (place, (_, update)) in scored.iter().enumerate() {
            *scores.entry(*update).or_default() += match self {
                Self::Weighted => 1.0 / (1.0 + place as f64),
                _ => 1.0,
            };
        }
        // Of equal ones the first that was seen.
        let first = |update: &u32| scored.iter().position(|(_, other)| other == update);
        let best = scores.into_iter().max_by(|(one, score), (other, than)| {
            score.total_cmp(than).then_with(|| first(other).cmp(&first(one)))
        });
        best.map(|(update, _)| update)
    }

    /// The share of its senders that a receiver gets right, for the receiver that does best.
    pub(super) fn largest_share(self, round: &Round) -> f64 {
        let share = |senders: &Vec<(Client, Vec<(u32, u32)>)>| {
            let right = senders.iter().filter(|(from, sent)| {
                self.guess(sent, round.update_of.len()) == Some(round.update_of[usize::from(*from)])
            });
            right.count() as f64 / senders.len().max(1) as f64
        };
        round.seen.iter().map(share).fold(0.0, f64::max)
    }
}

/// The update that a sender sent least of; of equal ones, one that the rest of what it sent draws.
fn least_sent(sent: &[(u32, u32)], updates: usize) -> Option<u32> {
    let mut counts = vec![0; updates];
    for (_, update) in sent {
        counts[*update as usize] += 1;
    }
    let least = counts.iter().min()?;
    let equal: Vec<_> = (0..updates).filter(|update| counts[*update] == *least).collect();
    let seed = sent.iter().fold(sent.len() as u64, |seed, (slot, update)| {
        seed.wrapping_mul(31).wrapping_add(u64::from(slot ^ update))
    });
    fastrand::Rng::with_seed(seed)
        .choice(equal)
        .map(|update| update as u32)
}

/// Receivers that pool what they see of the senders that any of them saw.
pub(super) struct Coalition {
    /// 1 if at least one sender was found out.
    pub(super) any: f64,
    /// The share of senders that were.
    pub(super) each: f64,
}

impl Coalition {
    /// A coalition of so many, drawn by the seed.
    pub(super) fn of(round: &Round, attack: Attack, size: usize, seed: u64) -> Self {
        let mut members: Vec<usize> = (0..round.seen.len()).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut members);
        let mut pooled: BTreeMap<Client, Vec<(u32, u32)>> = BTreeMap::new();
        for member in &members[..size.min(members.len())] {
            for (from, sent) in &round.seen[*member] {
                pooled.entry(*from).or_default().extend(sent);
            }
        }
        let mut right = 0.0;
        for (from, sent) in &mut pooled {
            // By slot; within one, in the order of the members, which means nothing.
            sent.sort_by_key(|(slot, _)| *slot);
            let found =
                attack.guess(sent, round.update_of.len()) == Some(round.update_of[usize::from(*from)]);
            right += f64::from(u8::from(found));
        }
        Self {
            any: f64::from(u8::from(right > 0.0)),
            each: right / pooled.len().max(1) as f64,
        }
    }
}
