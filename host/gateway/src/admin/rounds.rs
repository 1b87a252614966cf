//! Federated runs by their rounds: what each has made, and how right it is.

use karman_node::{FedEvent, FedNews, FedSeen, FedStatus, Node};
use karman_types::TaskError;
use serde::Serialize;
use std::collections::BTreeMap;
use tokio::sync::Mutex;
use utoipa::ToSchema;

/// Federated runs that are shown at most.
const MOST_RUNS: usize = 50;
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
    /// How often a client did something wrong, or nothing at all, as far as the log of the run goes back.
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

/// What was told of federated runs before: each look asks for what has happened since, and takes in nothing else.
#[derive(Default)]
pub(super) struct Rounds(Mutex<BTreeMap<String, Known>>);

struct Known {
    seen: FedSeen,
    run: RunRounds,
}

impl Rounds {
    /// Those that this node drives, or has driven, as they are now: those that go on first.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) async fn look(&self, node: &Node) -> Result<Vec<RunRounds>, TaskError> {
        // A concurrent reader waits, and has less to ask for.
        let mut known = self.0.lock().await;
        let seen = known.iter().map(|(name, known)| (name.clone(), known.seen));
        let news = node.fed_news(seen.collect(), MOST_RUNS).await?;
        let mut before = std::mem::take(&mut *known);
        let mut told = Vec::with_capacity(news.len());
        for FedNews { anew, seen, run } in news {
            let known_run = before.remove(&run.name).filter(|_| !anew);
            let mut now = known_run.map_or_else(|| RunRounds::of(run.name.clone()), |known| known.run);
            now.hear(run);
            told.push(now.clone());
            known.insert(now.name.clone(), Known { seen, run: now });
        }
        Ok(told)
    }
}

impl RunRounds {
    /// One of which nothing is known yet.
    const fn of(name: String) -> Self {
        Self {
            name,
            state: "waiting",
            version: 0,
            rounds: None,
            clients: 0,
            training: 0,
            accuracy: None,
            failure: None,
            troubles: 0,
            versions: Vec::new(),
        }
    }

    /// How it is now, and what has happened since.
    fn hear(&mut self, run: FedStatus) {
        let status = run.status.as_ref();
        // How it ended was told, and stays.
        if !matches!(self.state, "done" | "failed") {
            self.state = if run.running { "running" } else { "waiting" };
            self.version = status.map_or(0, |status| status.version);
        }
        self.rounds = status.map(|status| status.rounds);
        self.clients = status.map_or(0, |status| status.here);
        self.training = status.map_or(0, |status| status.training);
        // What clients have said of a version comes first.
        if self.accuracy.is_none() {
            self.accuracy = status.and_then(|status| status.accuracy);
        }
        run.log.into_iter().for_each(|event| self.take(event));
        let old = self.versions.len().saturating_sub(MOST_VERSIONS);
        self.versions.drain(..old);
    }

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
            FedEvent::PassedOver { .. } => {}
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
            rank: None,
            ms: 7,
        }
    }

    fn status(log: Vec<FedEvent>) -> FedStatus {
        FedStatus {
            name: "digits".into(),
            status: None,
            running: true,
            members: Vec::new(),
            events: log.len(),
            forgotten: Default::default(),
            log,
        }
    }

    fn run(log: Vec<FedEvent>) -> RunRounds {
        let mut made = RunRounds::of("digits".into());
        made.hear(status(log));
        made
    }

    fn judged(version: u64, accuracy: f64) -> FedEvent {
        FedEvent::Judged {
            version,
            clients: 2,
            accuracy,
            loss: 0.1,
        }
    }

    #[test]
    fn what_is_heard_in_parts_is_what_is_heard_at_once() {
        let mut log: Vec<FedEvent> = (1..=MOST_VERSIONS as u64 + 3).map(round).collect();
        log.insert(150, judged(150, 0.5));
        log.push(judged(MOST_VERSIONS as u64 + 2, 0.75));
        log.push(FedEvent::Failed {
            round: 204,
            why: "too few".into(),
        });
        log.push(FedEvent::Finished {
            version: 203,
            failure: None,
        });
        let whole = run(log.clone());
        assert_eq!(
            (whole.state, whole.accuracy, whole.troubles),
            ("done", Some(0.75), 1)
        );
        for part in 0..=log.len() {
            let mut parts = run(log[..part].to_vec());
            parts.hear(status(log[part..].to_vec()));
            assert_eq!(parts, whole, "after {part}");
            // Nothing new changes nothing.
            parts.hear(status(Vec::new()));
            assert_eq!(parts, whole, "after {part}");
        }
    }

    #[test]
    fn an_accuracy_belongs_to_the_version_that_was_judged() {
        let made = run(vec![round(1), round(2), judged(1, 0.75)]);
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
