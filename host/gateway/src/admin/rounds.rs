//! Federated runs by their rounds: what each has made, and how right it is.

use karman_node::{FedEvent, FedStatus};
use serde::Serialize;
use utoipa::ToSchema;

/// Versions of one run that are shown, the last ones.
const MOST_VERSIONS: usize = 200;

/// A federated run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct RunRounds {
    /// Its name.
    name: String,
    /// `running`; `done` or `failed` where it is over; `waiting` where it has not ended and nobody drives it.
    state: &'static str,
    /// Versions made.
    version: u64,
    /// Versions to make; nothing before it has begun.
    rounds: Option<u64>,
    /// Clients that can be reached.
    clients: usize,
    /// Clients that train now.
    training: usize,
    /// The share of right answers that clients reported last.
    accuracy: Option<f64>,
    /// Why it did not get where it should.
    failure: Option<String>,
    /// How often a client did something wrong, or nothing at all.
    troubles: usize,
    /// Its last versions, the oldest first.
    versions: Vec<Version>,
}

/// What a round has made.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Version {
    /// Its number.
    version: u64,
    /// Clients whose updates are in it.
    clients: usize,
    /// Orders that were not answered.
    lost: u32,
    /// Mean loss of the training.
    loss: Option<f64>,
    /// The share of right answers, where clients have judged it.
    accuracy: Option<f64>,
    /// In a private run, the ε that is spent up to it.
    epsilon: Option<f64>,
    /// Where updates went from client to client, how many clients have come to their mean.
    complete: Option<usize>,
    /// There too, the share of the time that spray and warm-up took.
    warm_up: Option<f64>,
    /// There too, whether every client had its cover at the end of the warm-up.
    covered: Option<bool>,
    /// Bytes of updates.
    bytes_up: u64,
    /// Bytes of models sent.
    bytes_down: u64,
    /// Milliseconds from the opening of its round to the closing.
    ms: u64,
}

impl From<FedStatus> for RunRounds {
    fn from(run: FedStatus) -> Self {
        let mut made = Self {
            name: run.name,
            state: if run.running { "running" } else { "waiting" },
            version: run.status.as_ref().map_or(0, |status| status.version),
            rounds: run.status.as_ref().map(|status| status.rounds),
            clients: run.status.as_ref().map_or(0, |status| status.here),
            training: run.status.as_ref().map_or(0, |status| status.training),
            accuracy: run.status.as_ref().and_then(|status| status.accuracy),
            failure: None,
            troubles: 0,
            versions: Vec::new(),
        };
        run.log.into_iter().for_each(|event| made.take(event));
        let old = made.versions.len().saturating_sub(MOST_VERSIONS);
        made.versions.drain(..old);
        made
    }
}

impl RunRounds {
    fn take(&mut self, event: FedEvent) {
        match event {
            FedEvent::Round {
                version,
                clients,
                lost,
                loss,
                bytes_up,
                bytes_down,
                epsilon,
                swarm,
                ms,
                ..
            } => self.versions.push(Version {
                version,
                clients: clients.len(),
                lost,
                loss,
                accuracy: None,
                epsilon,
                complete: swarm.as_ref().map(|swarm| swarm.complete.len()),
                warm_up: swarm.as_ref().map(|swarm| swarm.warm_up_share()),
                covered: swarm.as_ref().map(|swarm| swarm.covered),
                bytes_up,
                bytes_down,
                ms,
            }),
            FedEvent::Judged {
                version, accuracy, ..
            } => {
                self.accuracy = Some(accuracy);
                // It is judged when the next may be there already.
                let judged = self
                    .versions
                    .iter_mut()
                    .rev()
                    .find(|made| made.version == version);
                if let Some(judged) = judged {
                    judged.accuracy = Some(accuracy);
                }
            }
            FedEvent::Trouble { .. } | FedEvent::Failed { .. } => self.troubles += 1,
            FedEvent::Finished { version, failure } => {
                self.version = version;
                self.state = if failure.is_none() { "done" } else { "failed" };
                self.failure = failure;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(version: u64) -> FedEvent {
        FedEvent::Round {
            round: version,
            version,
            clients: Vec::new(),
            lost: 1,
            loss: Some(0.5),
            staleness: 0.0,
            bytes_up: 10,
            bytes_down: 20,
            epsilon: None,
            swarm: serde_json::from_str(
                r#"{"complete":[4],"covered":true,"unprotected":0,"warm_up_ms":1,"ms":8}"#,
            )
            .unwrap(),
            ms: 7,
        }
    }

    fn run(log: Vec<FedEvent>) -> RunRounds {
        RunRounds::from(FedStatus {
            name: "digits".into(),
            status: None,
            running: true,
            members: Vec::new(),
            events: log.len(),
            log,
        })
    }

    #[test]
    fn an_accuracy_belongs_to_the_version_that_was_judged() {
        let judged = FedEvent::Judged {
            version: 1,
            clients: 2,
            accuracy: 0.75,
            loss: 0.1,
        };
        let made = run(vec![round(1), round(2), judged]);
        let accuracies: Vec<Option<f64>> = made.versions.iter().map(|version| version.accuracy).collect();
        assert_eq!(accuracies, [Some(0.75), None]);
        let went = &made.versions[0];
        assert_eq!(
            (went.complete, went.warm_up, went.covered),
            (Some(1), Some(0.125), Some(true))
        );
        assert_eq!(
            (made.state, made.accuracy, made.rounds),
            ("running", Some(0.75), None)
        );
    }

    #[test]
    fn a_run_that_is_over_says_how_it_ended_and_shows_its_last_versions() {
        let mut log: Vec<FedEvent> = (1..=MOST_VERSIONS as u64 + 5).map(round).collect();
        log.push(FedEvent::Failed {
            round: 206,
            why: "too few".into(),
        });
        log.push(FedEvent::Finished {
            version: 205,
            failure: Some("too few".into()),
        });
        let made = run(log);
        assert_eq!((made.state, made.version, made.troubles), ("failed", 205, 1));
        assert_eq!(made.failure.as_deref(), Some("too few"));
        let ends = (made.versions[0].version, made.versions[MOST_VERSIONS - 1].version);
        assert_eq!((made.versions.len(), ends), (MOST_VERSIONS, (6, 205)));
    }
}
