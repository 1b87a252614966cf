use karman_tasks::{Entry, KeptState, LimitReached};
use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a node deals with the keepers, and what it keeps where it is one. The same on all keepers, or the strictest counts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KeepersConfig {
    /// How often the leader tells the others that it is there. What goes to a keeper at once has to arrive within this time:
    /// the slowest link between two keepers decides. Default 1 s: 1 MiB over 10 Mbit/s.
    #[serde(with = "serde_duration")]
    pub heartbeat: Duration,
    /// Keepers that have not heard of the leader for two to four times this long elect another. Default 3 s.
    #[serde(with = "serde_duration")]
    pub election: Duration,
    /// The owner of kept tasks is lost when the keepers have had no sign of it for this long. Default 30 s.
    #[serde(with = "serde_duration")]
    pub takeover: Duration,
    /// How long a node tries to reach a majority before it answers `unavailable`. An election should fit in. Default 20 s.
    #[serde(with = "serde_duration")]
    pub patience: Duration,
    /// Writes to the log after which it gives way to a snapshot of all that is kept. Default 5,000.
    pub log: u64,
    /// Bytes of the log after which it gives way as well, until half of them are left. Where it cannot, nothing new is kept at twice as
    /// many. Default 256 MiB.
    pub log_bytes: ByteSize,
    /// Tasks that are kept, those of which only the key is remembered included. Default 20,000.
    pub tasks: usize,
    /// Bytes of the inputs and results that are kept, which a keeper holds in memory. No more tasks are kept when three quarters are
    /// taken: the rest is for what comes of those that are. Where that is not enough, the results of the tasks that were accepted
    /// first are forgotten before their time. Default 256 MiB.
    pub bytes: ByteSize,
    /// Bytes of the input, and of the result, of one kept task. Default 1 MiB.
    pub entry: ByteSize,
}

impl Default for KeepersConfig {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            election: Duration::from_secs(3),
            takeover: Duration::from_secs(30),
            patience: Duration::from_secs(20),
            log: 5_000,
            log_bytes: ByteSize::mib(256),
            tasks: 20_000,
            bytes: ByteSize::mib(256),
            entry: ByteSize::mib(1),
        }
    }
}

impl KeepersConfig {
    /// Whether there is room for what the entry brings, beside what is kept and a log of so many bytes.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn room(&self, kept: &KeptState, log: u64, entry: &Entry) -> Result<(), LimitReached> {
        let reached = |name: &str, most: u64| {
            Err(LimitReached {
                name: format!("keepers.{name}"),
                most,
            })
        };
        self.fits(entry)?;
        let (brings, spare) = match entry {
            Entry::Accept { .. } if kept.len() >= self.tasks => return reached("tasks", self.tasks as u64),
            Entry::Accept { record, .. } if !record.is_part() => (true, self.bytes.0 / 4),
            Entry::Accept { .. } | Entry::Progress { .. } => (true, 0),
            _ => (false, 0),
        };
        // What a task has come to is written in any case: it takes the place of the input, and of other results.
        if brings && log > self.log_bytes.0.saturating_mul(2) {
            return reached("log-bytes", self.log_bytes.0);
        }
        let bytes = kept.bytes_with(entry);
        let too_many = bytes.saturating_add(spare) > self.bytes.0;
        match too_many && (brings || bytes > kept.bytes()) {
            true => reached("bytes", self.bytes.0),
            false => Ok(()),
        }
    }

    /// Whether the entry is no longer than one may be, wherever it is written down.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn fits(&self, entry: &Entry) -> Result<(), LimitReached> {
        match entry.bytes() > self.entry.0 {
            true => Err(self.too_long()),
            false => Ok(()),
        }
    }

    /// An entry is too long.
    pub(super) fn too_long(&self) -> LimitReached {
        LimitReached {
            name: "keepers.entry".into(),
            most: self.entry.0,
        }
    }

    /// How often signs of life are given, and looked for.
    pub(super) fn pulse(&self) -> Duration {
        self.takeover / 4
    }

    /// How long one keeper may take to answer before the next is asked.
    pub(super) fn turn(&self) -> Duration {
        self.election
    }

    /// How long a keeper may take to take over a task that is handed to it: it asks whose that is, and then to be its owner.
    pub(super) fn handover(&self) -> Duration {
        2 * (self.patience + self.turn())
    }

    /// The longest message between keepers that is no snapshot: one batch of entries, in whole.
    pub(super) fn frame(&self) -> u64 {
        4 * self.entry.0 + (1 << 20)
    }

    /// The longest snapshot: what is kept, and what is written down of each task besides.
    pub(super) fn snapshot(&self) -> u64 {
        2 * self.bytes.0 + self.tasks as u64 * (4 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_tasks::{Due, Epoch, Guarantee, Outcome, Saved, TaskRecord};
    use karman_types::{Digest, NodeId, TaskId, TaskRequest, TaskResponse};

    const EPOCH: Epoch = Epoch::FIRST;

    fn task(n: u128) -> TaskId {
        TaskId::from_parts(0, n)
    }

    fn accept(n: u128, bytes: usize, is_part: bool) -> Entry {
        let owner = NodeId::of_key(b"owner");
        let record = TaskRecord {
            task: task(n),
            name: "classify".into(),
            guarantee: Guarantee::Kept,
            key: None,
            effect: is_part.then(|| "run/step".into()),
            fingerprint: Digest::of(b""),
            epoch: EPOCH,
            home: Some(owner),
            attempts: 0,
            written: None,
            due: Due::default(),
            hedge_after: None,
            stays: is_part,
            state: Saved::Open(TaskRequest {
                body: vec![0; bytes].into(),
                ..TaskRequest::default()
            }),
        };
        let record = Box::new(record);
        Entry::Accept { owner, record }
    }

    fn end(n: u128, bytes: usize) -> Entry {
        let response = TaskResponse::from(bytes::Bytes::from(vec![0; bytes]));
        Entry::End {
            task: task(n),
            epoch: EPOCH,
            outcome: Outcome::Done(response),
            at: None,
        }
    }

    fn limits() -> KeepersConfig {
        KeepersConfig {
            log_bytes: ByteSize(500),
            tasks: 8,
            bytes: ByteSize(100),
            entry: ByteSize(60),
            ..KeepersConfig::default()
        }
    }

    /// The limit that an entry meets.
    fn met(kept: &KeptState, log: u64, entry: &Entry) -> Option<String> {
        let room = limits().room(kept, log, entry);
        room.err().map(|reached| reached.name)
    }

    #[test]
    fn a_quarter_is_for_what_comes_of_tasks_that_are_kept() {
        let mut kept = KeptState::new(100);
        kept.apply(accept(1, 50, false)).unwrap();
        assert_eq!(met(&kept, 0, &accept(2, 25, false)), None);
        assert_eq!(
            met(&kept, 0, &accept(2, 26, false)).as_deref(),
            Some("keepers.bytes")
        );
        assert_eq!(met(&kept, 0, &accept(2, 50, true)), None);
        let progress = |bytes: usize| Entry::Progress {
            task: task(1),
            epoch: EPOCH,
            progress: vec![0; bytes].into(),
        };
        assert_eq!(met(&kept, 0, &progress(50)), None);
        kept.apply(progress(50)).unwrap();
        // It takes the place of what was told before.
        assert_eq!(met(&kept, 0, &progress(50)), None);
        assert_eq!(met(&kept, 0, &progress(51)).as_deref(), Some("keepers.bytes"));
        assert_eq!(met(&kept, 0, &progress(61)).as_deref(), Some("keepers.entry"));
    }

    #[test]
    fn results_have_no_more_bytes_than_are_kept() {
        let mut kept = KeptState::new(100);
        for n in [1, 2, 3] {
            kept.apply(accept(n, 10, false)).unwrap();
        }
        kept.apply(end(1, 60)).unwrap();
        // It is as long as the input, longer and fits, does not fit.
        for (bytes, fits) in [(10, true), (30, true), (31, false)] {
            assert_eq!(met(&kept, 0, &end(2, bytes)).is_none(), fits, "{bytes}");
        }
        for trim in kept.making_room(&end(2, 31), limits().bytes.0) {
            assert_eq!(met(&kept, u64::MAX, &trim), None);
            kept.apply(trim).unwrap();
        }
        assert_eq!(met(&kept, 0, &end(2, 31)), None);
        kept.apply(end(2, 31)).unwrap();
        assert_eq!(kept.bytes(), 41);
    }

    #[test]
    fn a_log_that_does_not_give_way_takes_nothing_new() {
        let mut kept = KeptState::new(100);
        assert_eq!(met(&kept, 1_000, &accept(1, 10, false)), None);
        assert_eq!(
            met(&kept, 1_001, &accept(1, 10, false)).as_deref(),
            Some("keepers.log-bytes")
        );
        kept.apply(accept(1, 10, false)).unwrap();
        assert_eq!(met(&kept, 1_001, &end(1, 20)), None);
    }
}
