use super::{Run, RunError};
use crate::Pace;
use crate::select::SelectionChoice;
use crate::swarm::{Cover, Layout, Link, SwarmSettings};
use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Updates go from client to client, and each client takes their mean: whoever drives the run gets that mean, and no update.
/// It sees who holds which chunk and whose update that is of, so its own node takes no part.
///
/// See [`crate::swarm`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Swarm {
    /// The largest piece that an update is cut into. Default 256 KiB. There are 16 pieces at least.
    pub chunk: ByteSize,
    /// The fewest clients that each exchanges pieces with. Default: half of the others, and no more than 10.
    pub neighbours: Option<usize>,
    /// The share of its pieces that a client gives to others than its neighbours before anything else. Default 0.2.
    pub spray: f64,
    /// The share of all pieces of a round that each client has before clients go on by themselves. Default 0.1.
    pub cover: f64,
    /// How long the clients have for what they are told at a time. Default 1 s; where links carry less than is said here, it takes longer.
    #[serde(with = "serde_duration")]
    pub slot: Duration,
    /// What each client sends in a second. Default 2 MiB.
    pub up: ByteSize,
    /// What each client receives in a second. Default 8 MiB.
    pub down: ByteSize,
}

impl Default for Swarm {
    fn default() -> Self {
        Self {
            chunk: ByteSize::kib(256),
            neighbours: None,
            spray: 0.2,
            cover: 0.1,
            slot: Duration::from_secs(1),
            up: ByteSize::mib(2),
            down: ByteSize::mib(8),
        }
    }
}

/// Clients take part in no round that hides less.
const LEAST_COVER: f64 = 0.05;
/// Nobody hides among fewer pieces.
const FEWEST_CHUNKS: u64 = 16;
/// The pieces of all updates of a round: the digests of all are in one letter.
const MOST_CHUNKS: u64 = 800_000;
/// Where nobody says how many neighbours a client has, it has no more.
const USUAL_NEIGHBOURS: usize = 10;
/// The most that a description may say: what each of them holds is in one letter.
const MOST_NEIGHBOURS: f64 = 100.0;
/// How long a client may be silent in the warm-up before it is done without, and the warm-up may take; in slots never fewer than those.
const SILENCE: (Duration, u32) = (Duration::from_secs(30), 30);
const WARM_UP: (Duration, u32) = (Duration::from_secs(3600), 3600);

impl Swarm {
    /// The fewest clients of a round.
    pub const FEWEST: usize = 2;

    /// How updates of so many numbers are cut in a round of so many clients.
    pub fn layout(&self, numbers: usize, clients: usize) -> Layout {
        let bytes = 4 * numbers.max(1) as u64;
        let most = (MOST_CHUNKS / clients.max(1) as u64).clamp(1, Layout::MOST.into());
        let wanted = self.chunk.0.min((bytes / FEWEST_CHUNKS).max(1));
        let chunk = wanted.max(bytes.div_ceil(most)).min(Layout::LARGEST.into());
        Layout {
            chunk: chunk as u32,
            chunks: u32::try_from(bytes.div_ceil(chunk)).unwrap_or(u32::MAX),
        }
    }

    /// What a client's link carries in a slot: never more than an update up and four down, for in one slot nobody hides.
    pub fn link(&self, layout: &Layout) -> Link {
        let in_a_slot = |rate: ByteSize, most: u32| {
            let bytes = rate.0 as f64 * self.slot.as_secs_f64();
            ((bytes / f64::from(layout.chunk)) as u32).clamp(1, most.max(1))
        };
        Link {
            up: in_a_slot(self.up, layout.chunks),
            down: in_a_slot(self.down, layout.chunks.saturating_mul(4)),
        }
    }

    /// How a round of so many clients goes, of updates with so many numbers that weigh at most so much.
    pub fn settings(&self, numbers: usize, clients: usize, most_weight: u32) -> SwarmSettings {
        let half = (clients.saturating_sub(1) / 2).clamp(1, USUAL_NEIGHBOURS);
        let slots = |(time, fewest): (Duration, u32)| {
            let slots = time.as_secs_f64() / self.slot.as_secs_f64();
            (slots.ceil() as u32).max(fewest)
        };
        SwarmSettings {
            layout: self.layout(numbers, clients),
            neighbours: self.neighbours.unwrap_or(half),
            spray: self.spray,
            cover: Cover::OfSwarm(self.cover),
            patience: slots(WARM_UP),
            silence: slots(SILENCE),
            most_weight,
            ..SwarmSettings::default()
        }
    }

    /// Whether its numbers can be, and the rest of the description goes with it: what can be made of a mean alone, of updates of one
    /// version that all clients have at the same time.
    pub(super) fn check(&self, run: &Run) -> Result<(), RunError> {
        let rate = |field, size: ByteSize| (field, size.0 as f64, 1024.0, (1u64 << 40) as f64);
        let cohort = run.pace.cohort() as f64;
        let neighbours = self.neighbours.unwrap_or(USUAL_NEIGHBOURS) as f64;
        let numbers = [
            (
                "swarm.chunk",
                self.chunk.0 as f64,
                1024.0,
                f64::from(Layout::LARGEST),
            ),
            ("swarm.neighbours", neighbours, 1.0, MOST_NEIGHBOURS),
            ("swarm.spray", self.spray, 0.0, 1.0),
            ("swarm.cover", self.cover, LEAST_COVER, 1.0),
            ("swarm.slot", self.slot.as_secs_f64(), 0.01, 60.0),
            rate("swarm.up", self.up),
            rate("swarm.down", self.down),
            (
                "pace.clients",
                cohort,
                Self::FEWEST as f64,
                SwarmSettings::MOST_CLIENTS as f64,
            ),
        ];
        let bad = |(_, value, least, most): &(_, f64, f64, f64)| !(*least..=*most).contains(value);
        if let Some(number) = numbers.into_iter().find(bad) {
            return Err(RunError::number(number));
        }
        let needs = [
            (
                "no `[secure-sum]`: an update goes round or into a sum, not both",
                run.secure_sum.is_none(),
            ),
            (
                "pace.mode = \"synchronous\": the updates of one version go round together",
                matches!(run.pace, Pace::Synchronous { .. }),
            ),
            (
                "a strategy that steps by a mean, like \"fed-avg\": no single update comes to whoever drives the run",
                run.strategy.steps_by_a_mean(),
            ),
            (
                "another selection than \"bandit\", which looks at single updates",
                !matches!(run.selection, SelectionChoice::Bandit(_)),
            ),
            (
                "updates as they are, without `[encoding]`: all clients add up the same numbers",
                run.encoding == super::EncodingPolicy::Exact,
            ),
            (
                "no `[privacy]`: whoever clips updates has to see them",
                run.privacy.is_none(),
            ),
            (
                "clients on nodes: within one process there are none to hide from",
                run.clients.simulated == 0,
            ),
        ];
        match needs.into_iter().find(|(_, holds)| !holds) {
            None => Ok(()),
            Some((needs, _)) => Err(RunError::NotSwarm { needs }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_cut_so_that_somebody_can_hide_and_a_letter_names_all() {
        let swarm = Swarm::default();
        for (numbers, clients) in [(1, 2), (10, 3), (650, 4), (13_500_000, 100), (100_000_000, 4096)] {
            let layout = swarm.layout(numbers, clients);
            let bytes = 4 * numbers;
            assert_eq!(layout.check(), Ok(()), "{numbers}");
            // A client fills up no more than a piece.
            assert!(layout.room() >= bytes && layout.room() < bytes + layout.chunk as usize);
            assert!(u64::from(layout.chunks) * clients as u64 <= MOST_CHUNKS);
            assert!(u64::from(layout.chunks) >= FEWEST_CHUNKS || bytes < 16);
        }
        // The paper's: 206 pieces.
        assert_eq!(
            swarm.layout(13_500_000, 100),
            Layout {
                chunk: 256 << 10,
                chunks: 206
            }
        );
    }

    #[test]
    fn slots_carry_what_links_do_and_neighbours_leave_strangers() {
        let swarm = Swarm::default();
        let large = swarm.settings(13_500_000, 100, 1);
        assert_eq!((large.neighbours, large.silence, large.patience), (10, 30, 3600));
        assert_eq!(swarm.link(&large.layout), Link { up: 8, down: 32 });
        let quick = Swarm {
            slot: Duration::from_millis(50),
            ..swarm
        };
        let small = quick.settings(650, 4, 7);
        assert_eq!((small.neighbours, small.silence, small.most_weight), (1, 600, 7));
        let chunks = small.layout.chunks;
        let link = Link {
            up: chunks,
            down: 4 * chunks,
        };
        assert_eq!(quick.link(&small.layout), link);
        // The least cover there is protects as well as clients ask for, however an update is cut.
        let least = Swarm {
            cover: LEAST_COVER,
            ..swarm
        };
        for numbers in [4, 5, 7, 100, 650, 3000, 80_000, 13_500_000] {
            let settings = least.settings(numbers, 10, 1);
            assert_eq!(settings.check_terms(), Ok(()), "{numbers}");
            assert!(settings.protection() >= LEAST_COVER, "{numbers}");
        }
    }

    #[test]
    fn a_description_that_does_not_go_with_it_says_why() {
        for (rest, says) in [
            ("chunk = '100 B'", "`swarm.chunk` is 100"),
            ("slot = '5 ms'", "`swarm.slot` is 0.005"),
            ("cover = 1.5", "`swarm.cover` is 1.5"),
            ("cover = 0", "between 0.05 and 1"),
            ("spray = -0.1", "`swarm.spray` is -0.1"),
            ("neighbours = 101", "between 1 and 100"),
            ("up = '1 B'", "`swarm.up` is 1"),
            (
                "[pace]\nmode = 'synchronous'\nclients = 5000",
                "`pace.clients` is 5000",
            ),
            ("[secure-sum]", "not both"),
            ("[pace]\nmode = 'buffered'\nat-once = 9", "synchronous"),
            ("[strategy]\nname = 'scaffold'", "steps by a mean"),
            ("[strategy]\nname = 'fed-nova'", "steps by a mean"),
            ("[strategy]\nname = 'median'", "steps by a mean"),
            ("[selection]\nname = 'bandit'", "another selection"),
            ("[encoding]\nfixed = 'int8'", "`[encoding]`"),
            ("[clients]\nsimulated = 9", "clients on nodes"),
        ] {
            let text = format!("name = 'x'\nrounds = 1\n[swarm]\n{rest}\n");
            let error = Run::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        }
        let private = "name = 'x'\nrounds = 1\nweights = 'uniform'\n[swarm]\n[privacy]\nnoise-multiplier = 1\n\
                       clipping = { kind = 'fixed', norm = 1 }\n";
        let error = Run::from_toml(private).unwrap_err().to_string();
        assert!(error.contains("no `[privacy]`"), "{error}");
        let whole = "name = 'x'\nrounds = 1\n[swarm]\nchunk = '64 KiB'\nneighbours = 4\nslot = '200 ms'\nup = '1 MiB'\n";
        let run = Run::from_toml(whole).unwrap();
        let swarm = run.swarm.unwrap();
        assert_eq!((swarm.neighbours, swarm.down), (Some(4), ByteSize::mib(8)));
        let written = cbor4ii::serde::to_vec(Vec::new(), &run).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<Run>(&written).unwrap(), run);
    }
}
