use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Which block of a model a round trains: all of them once before any comes again, in an order that the seed decides, and never the same in two
/// rounds that follow each other. Everybody who knows the seed knows the schedule.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BlockSchedule {
    blocks: u32,
    seed: u64,
}

impl BlockSchedule {
    /// A schedule of so many blocks; at least one is taken.
    pub fn new(blocks: u32, seed: u64) -> Self {
        let blocks = blocks.max(1);
        Self { blocks, seed }
    }

    /// The block of a round, both counted from 0.
    pub fn block(&self, round: u64) -> u32 {
        let blocks = u64::from(self.blocks);
        let order = self.epoch(round / blocks);
        order[(round % blocks) as usize]
    }

    /// The order of one pass. Each pass has a generator of its own, so that any round can be asked for.
    fn epoch(&self, epoch: u64) -> Vec<u32> {
        let mut order = self.shuffled(epoch);
        // Where the pass before ended the next one must not begin. Two blocks simply alternate.
        let last = |order: &[u32]| order.last().copied();
        if self.blocks == 2 {
            return self.shuffled(0);
        }
        if epoch > 0 && self.blocks > 2 && order.first().copied() == last(&self.shuffled(epoch - 1)) {
            // The first goes to the second place: the last place, which the next pass looks at, stays.
            order.swap(0, 1);
        }
        order
    }

    fn shuffled(&self, epoch: u64) -> Vec<u32> {
        let mut random = Rng::with_seed(self.seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut order: Vec<u32> = (0..self.blocks).collect();
        random.shuffle(&mut order);
        order
    }
}

/// One client's rounds in the form of ParaBlock (Wang et al. 2025): while it trains the block of round t, the change of round t − 1 travels to
/// the server and its aggregate comes back. Round t + 1 begins when both are through, so a round takes the longer of the two, and a
/// client trains against the other blocks as they were a round ago.
///
/// Feed it what is done; it says what may begin.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pipeline {
    schedule: BlockSchedule,
    rounds: u64,
    /// Rounds whose training was begun, and those whose training and exchange are done.
    begun: u64,
    trained: u64,
    exchanged: u64,
}

/// Something that may begin. Training and exchanging of neighbouring rounds go on at the same time.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Step {
    /// Train this block, from the newest model at hand.
    Train {
        /// The round, counted from 0.
        round: u64,
        /// Its block.
        block: u32,
    },
    /// Send the change of this block, receive its aggregate, and install it.
    Exchange {
        /// The round, counted from 0.
        round: u64,
        /// Its block.
        block: u32,
    },
}

impl Pipeline {
    /// The rounds of one client; [`Pipeline::begin`] says what is first.
    pub const fn new(schedule: BlockSchedule, rounds: u64) -> Self {
        Self {
            schedule,
            rounds,
            begun: 0,
            trained: 0,
            exchanged: 0,
        }
    }

    /// What begins a run, or what goes on after a restart: everything that was begun and is not done.
    pub fn begin(&mut self) -> Vec<Step> {
        if self.begun == 0 {
            return self.barrier();
        }
        let training = (self.trained < self.begun).then(|| self.train(self.trained));
        let exchanging =
            (self.exchanged < self.begun.saturating_sub(1)).then(|| self.exchange(self.exchanged));
        let last = (self.trained == self.rounds && self.exchanged < self.rounds)
            .then(|| self.exchange(self.exchanged));
        training.into_iter().chain(exchanging.or(last)).collect()
    }

    /// The training of a round is done. One that was not asked for changes nothing.
    pub fn trained(&mut self, round: u64) -> Vec<Step> {
        if round != self.trained || self.trained == self.begun {
            return Vec::new();
        }
        self.trained += 1;
        self.barrier()
    }

    /// The aggregate of a round is installed. One that was not asked for changes nothing.
    pub fn exchanged(&mut self, round: u64) -> Vec<Step> {
        if round != self.exchanged || self.exchanged == self.trained {
            return Vec::new();
        }
        self.exchanged += 1;
        self.barrier()
    }

    /// Whether all rounds are trained and exchanged.
    pub const fn is_done(&self) -> bool {
        self.exchanged == self.rounds
    }

    /// Both threads go on together: when round t − 1 is trained and round t − 2 exchanged, round t is trained and t − 1 exchanged.
    fn barrier(&mut self) -> Vec<Step> {
        let next = self.begun;
        if self.trained < next || self.exchanged + 1 < next {
            return Vec::new();
        }
        let exchange = next
            .checked_sub(1)
            .filter(|last| *last >= self.exchanged)
            .map(|last| self.exchange(last));
        if next < self.rounds {
            self.begun += 1;
            return std::iter::once(self.train(next)).chain(exchange).collect();
        }
        exchange.into_iter().collect()
    }

    fn train(&self, round: u64) -> Step {
        let block = self.schedule.block(round);
        Step::Train { round, block }
    }

    fn exchange(&self, round: u64) -> Step {
        let block = self.schedule.block(round);
        Step::Exchange { round, block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// When each step ends, if training and exchanging take so long.
    fn makespan(rounds: u64, train: u64, exchange: u64) -> u64 {
        let mut pipeline = Pipeline::new(BlockSchedule::new(4, 1), rounds);
        let mut running: BTreeSet<(u64, u64, bool)> = BTreeSet::new();
        let mut now = 0;
        let mut steps = pipeline.begin();
        loop {
            for step in steps {
                match step {
                    Step::Train { round, .. } => running.insert((now + train, round, true)),
                    Step::Exchange { round, .. } => running.insert((now + exchange, round, false)),
                };
            }
            let Some((at, round, training)) = running.pop_first() else {
                break;
            };
            now = at;
            steps = if training {
                pipeline.trained(round)
            } else {
                pipeline.exchanged(round)
            };
        }
        assert!(pipeline.is_done());
        now
    }

    proptest! {
        #[test]
        fn a_round_takes_the_longer_of_the_two(rounds in 1u64..30, train in 1u64..50, exchange in 1u64..50) {
            let expected = train + (rounds - 1) * train.max(exchange) + exchange;
            prop_assert_eq!(makespan(rounds, train, exchange), expected);
        }

        #[test]
        fn every_block_comes_once_a_pass_and_never_twice_in_a_row(blocks in 1u32..9, seed: u64) {
            let schedule = BlockSchedule::new(blocks, seed);
            for pass in 0..20 {
                let rounds = pass * u64::from(blocks)..(pass + 1) * u64::from(blocks);
                let seen: BTreeSet<u32> = rounds.clone().map(|round| schedule.block(round)).collect();
                prop_assert_eq!(seen.len(), blocks as usize);
                for round in rounds.skip(usize::from(pass == 0)) {
                    prop_assert!(blocks == 1 || schedule.block(round) != schedule.block(round - 1));
                }
            }
        }

        /// After a restart at any moment, what was going on goes on.
        #[test]
        fn a_restart_takes_up_what_was_going_on(rounds in 1u64..10, choices in prop::collection::vec(any::<(bool, bool)>(), 60)) {
            let mut pipeline = Pipeline::new(BlockSchedule::new(3, 5), rounds);
            let mut running = pipeline.begin();
            for (which, restart) in choices {
                if restart {
                    let mut again = pipeline.begin();
                    again.sort_by_key(|step| format!("{step:?}"));
                    running.sort_by_key(|step| format!("{step:?}"));
                    prop_assert_eq!(&again, &running);
                }
                if running.is_empty() { break; }
                let step = running.remove(if which { 0 } else { running.len() - 1 });
                running.extend(match step {
                    Step::Train { round, .. } => pipeline.trained(round),
                    Step::Exchange { round, .. } => pipeline.exchanged(round),
                });
            }
            prop_assert!(pipeline.is_done() || !running.is_empty());
        }
    }

    #[test]
    fn what_was_not_asked_for_changes_nothing() {
        let mut pipeline = Pipeline::new(BlockSchedule::new(3, 5), 4);
        assert!(pipeline.trained(0).is_empty());
        pipeline.begin();
        assert!(pipeline.exchanged(0).is_empty() && pipeline.trained(1).is_empty());
        assert_eq!(pipeline.trained(0).len(), 2);
        assert!(pipeline.trained(0).is_empty());
    }
}
