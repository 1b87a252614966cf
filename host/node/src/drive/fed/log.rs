//! The log of a run: its last events. It goes to the disk with every version, so what it takes is bounded; of the events that were before,
//! what a run is asked for most stays.

use super::record::{FedEvent, Record};
use karman_fed::ClientId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of the events that are kept: some 15,000 rounds of ten clients.
const MOST: usize = 4 << 20;
/// Bytes of those that stay when that is exceeded.
const STAY: usize = MOST / 4 * 3;

/// The first events of a run, which are kept no longer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FedForgotten {
    /// How many they are.
    pub events: usize,
    /// In how many of their rounds each client took part.
    pub updates: BTreeMap<ClientId, u64>,
}

impl FedForgotten {
    /// Whether all events are kept.
    pub const fn is_none(&self) -> bool {
        self.events == 0
    }

    /// Of the events that are kept, those after so many of all.
    pub(super) fn since<'a>(&self, kept: &'a [FedEvent], after: usize) -> &'a [FedEvent] {
        kept.get(after.saturating_sub(self.events)..).unwrap_or_default()
    }

    fn add(&mut self, event: &FedEvent) {
        self.events += 1;
        if let FedEvent::Round { clients, .. } = event {
            clients
                .iter()
                .for_each(|client| *self.updates.entry(*client).or_default() += 1);
        }
    }
}

/// Writes the log of a run.
pub(super) struct Writer {
    /// Bytes of the events that are kept.
    bytes: usize,
}

impl Writer {
    /// For a log that has these events.
    pub(super) fn of(log: &[FedEvent]) -> Self {
        Self {
            bytes: log.iter().map(bytes).sum(),
        }
    }

    /// Adds an event. The first ones go where there are too many, and never the last.
    pub(super) fn add(&mut self, record: &mut Record, event: FedEvent) {
        self.bytes += bytes(&event);
        record.log.push(event);
        if self.bytes <= MOST {
            return;
        }
        let mut gone = 0;
        while self.bytes > STAY && gone + 1 < record.log.len() {
            self.bytes -= bytes(&record.log[gone]);
            record.forgotten.add(&record.log[gone]);
            gone += 1;
        }
        record.log.drain(..gone);
    }
}

/// Bytes of an event as it is written down.
fn bytes(event: &FedEvent) -> usize {
    cbor4ii::serde::to_vec(Vec::new(), event).map_or(0, |event| event.len())
}

#[cfg(test)]
mod tests {
    use super::super::testing::described;
    use super::*;

    /// A round of so many clients.
    fn round(version: u64, clients: u64) -> FedEvent {
        FedEvent::Round {
            round: version,
            version,
            clients: (0..clients).map(ClientId).collect(),
            lost: 0,
            loss: None,
            staleness: 0.0,
            bytes_up: 0,
            bytes_down: 0,
            epsilon: None,
            swarm: None,
            rank: None,
            ms: 0,
        }
    }

    #[test]
    fn a_log_is_bounded_and_says_what_it_has_forgotten() {
        let mut record = described("");
        let mut writer = Writer::of(&record.log);
        let rounds = 4_000;
        for version in 1..=rounds {
            writer.add(&mut record, round(version, 1 + version % 1_000));
        }
        let forgotten = &record.forgotten;
        assert!(forgotten.events > 0);
        assert_eq!(forgotten.events + record.log.len(), rounds as usize);
        let kept: usize = record.log.iter().map(bytes).sum();
        assert!(kept > STAY / 2 && kept <= MOST, "{kept}");
        assert_eq!(writer.bytes, kept);
        assert_eq!(Writer::of(&record.log).bytes, kept);
        // Client 0 took part in all of them.
        assert_eq!(forgotten.updates[&ClientId(0)], forgotten.events as u64);
        let first = forgotten.events as u64 + 1;
        assert_eq!(record.log[0], round(first, 1 + first % 1_000));

        // Events keep their numbers.
        let status = |after: usize| record.status(after);
        assert_eq!(status(0).events, rounds as usize);
        assert_eq!(status(0).log, record.log);
        assert_eq!(status(forgotten.events).log, record.log);
        assert_eq!(
            status(rounds as usize - 2).log,
            record.log[record.log.len() - 2..]
        );
        assert!(status(rounds as usize).log.is_empty());
    }

    #[test]
    fn the_last_event_stays_however_long_it_is() {
        let mut record = described("");
        let mut writer = Writer::of(&record.log);
        writer.add(&mut record, round(1, 1));
        let why = "x".repeat(MOST);
        writer.add(&mut record, FedEvent::Failed { round: 2, why });
        assert_eq!((record.log.len(), record.forgotten.events), (1, 1));
        let end = FedEvent::Finished {
            version: 2,
            failure: None,
        };
        writer.add(&mut record, end);
        assert!(record.has_ended());
        assert_eq!((record.log.len(), record.forgotten.events), (1, 2));
    }

    #[test]
    fn who_follows_a_log_sees_what_it_holds() {
        let mut record = described("");
        let mut writer = Writer::of(&record.log);
        let mut seen = record.status(0);
        // It is looked at seldom enough to miss some.
        for version in 1..=6_000_u64 {
            writer.add(&mut record, round(version, 1_000));
            if version % 2_500 == 0 || version == 6_000 || version < 10 {
                seen.follow(&record);
                assert_eq!(seen.log, record.log);
                assert_eq!(
                    (seen.events, &seen.forgotten),
                    (version as usize, &record.forgotten)
                );
            }
        }
    }
}
