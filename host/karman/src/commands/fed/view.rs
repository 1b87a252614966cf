//! A run as it goes on: one line for each round, on standard output.

use crate::app::App;
use karman_fed::{ClientId, Run, SwarmReport};
use karman_node::{FedEvent, FedStatus};
use karman_types::{TaskError, format_bytes, format_duration};
use serde_json::json;
use std::time::Duration;

/// What has been shown so far.
#[derive(Default)]
pub(super) struct View {
    /// A round that may still be judged.
    waiting: Option<Line>,
    /// What was judged last: which version, and its accuracy.
    judged: Option<(u64, f64)>,
    /// What clients did wrong since the last line.
    troubles: Vec<String>,
}

struct Line {
    version: u64,
    text: String,
}

impl View {
    /// Shows an event: as it is for programs, once there is something to say for people.
    pub(super) fn show(&mut self, app: &App, event: &FedEvent, run: &FedStatus) -> Result<(), TaskError> {
        if app.output.json {
            return app.output.line(json!(event));
        }
        for line in self.lines(event, run) {
            app.output.line(line)?;
        }
        Ok(())
    }

    fn lines(&mut self, event: &FedEvent, run: &FedStatus) -> Vec<String> {
        match event {
            FedEvent::Trouble { client, what } => {
                self.troubles
                    .push(format!("client {} {what}", named(*client, run)));
                Vec::new()
            }
            FedEvent::PassedOver { client, why } => {
                vec![format!("client {} is not asked: {why}", named(*client, run))]
            }
            FedEvent::Round {
                version,
                clients,
                lost,
                loss,
                bytes_up,
                epsilon,
                swarm,
                rank,
                ms,
                ..
            } => {
                let before = self.flush(None);
                let rounds = run.status.as_ref().map_or(0, |status| status.rounds);
                let troubles = match std::mem::take(&mut self.troubles) {
                    none if none.is_empty() => String::new(),
                    some => format!(" ({})", some.join("; ")),
                };
                let loss = loss.map_or_else(String::new, |loss| format!("   loss {loss:.3}"));
                let went = swarm
                    .as_ref()
                    .map_or_else(String::new, |swarm| round_the_clients(swarm, run));
                let changed = rank.map_or_else(String::new, |rank| format!("   rank {rank}"));
                let spent = epsilon.map_or_else(String::new, |epsilon| format!("   ε {epsilon:.2}"));
                self.waiting = Some(Line {
                    version: *version,
                    text: format!(
                        "round {version}/{rounds}   clients {}/{}{troubles}{loss}   {} up   {}{changed}{went}{spent}",
                        clients.len(),
                        clients.len() + *lost as usize,
                        format_bytes(*bytes_up),
                        format_duration(Duration::from_millis(*ms))
                    ),
                });
                before
            }
            FedEvent::Judged {
                version, accuracy, ..
            } => self.flush(Some((*version, *accuracy))),
            FedEvent::Failed { round, why } => {
                let mut lines = self.flush(None);
                let troubles = std::mem::take(&mut self.troubles).join("; ");
                let between = if troubles.is_empty() { "" } else { "   " };
                lines.push(format!("round {round} made no version: {why}{between}{troubles}"));
                lines
            }
            FedEvent::Finished { version, failure } => {
                let mut lines = self.flush(None);
                lines.extend(std::mem::take(&mut self.troubles));
                let accuracy = match self.judged {
                    None => String::new(),
                    Some((last, accuracy)) if last == *version => format!("   accuracy {accuracy:.3}"),
                    Some((earlier, accuracy)) => {
                        format!("   accuracy {accuracy:.3} of version {earlier}")
                    }
                };
                lines.push(match failure {
                    None => format!("{}: {version} versions{accuracy}", run.name),
                    Some(why) => format!("{}: ended after {version} versions{accuracy}: {why}", run.name),
                });
                lines
            }
        }
    }

    /// The round that waits, with its accuracy if it was judged.
    fn flush(&mut self, judged: Option<(u64, f64)>) -> Vec<String> {
        let before = self.judged;
        self.judged = judged.or(before);
        match (self.waiting.take(), judged) {
            (None, None) => Vec::new(),
            (Some(line), Some((version, accuracy))) if line.version == version => {
                let change = before.map_or(String::new(), |(_, before)| {
                    format!(" ({:+.3})", accuracy - before)
                });
                vec![format!("{}   accuracy {accuracy:.3}{change}", line.text)]
            }
            (line, judged) => {
                let late =
                    judged.map(|(version, accuracy)| format!("version {version}: accuracy {accuracy:.3}"));
                line.map(|line| line.text).into_iter().chain(late).collect()
            }
        }
    }
}

/// What a run does now, in a line.
pub(super) fn doing(run: &FedStatus, described: &Run) -> String {
    let name = &run.name;
    if let Some(waits) = waits(run, described) {
        return waits;
    }
    let Some(status) = &run.status else {
        return format!("{name}: a client makes the first version");
    };
    let round = (status.version + 1).min(status.rounds);
    format!(
        "{name}: round {round}/{}, {} clients are at work, {} updates are here",
        status.rounds, status.training, status.gathered
    )
}

/// What a run waits for whose first round cannot begin; nothing where it can.
pub(super) fn waits(run: &FedStatus, described: &Run) -> Option<String> {
    let name = &run.name;
    let Some(status) = &run.status else {
        let plugin = &described.clients.plugin;
        let none = run.members.is_empty() && described.clients.simulated == 0;
        return none.then(|| format!("{name}: waiting for a node that has the client `{plugin}`"));
    };
    let (here, needed) = (status.here, described.start_with);
    let waits = status.version == 0 && status.training == 0 && here < needed;
    waits.then(|| format!("{name}: waiting for clients: {here} of the {needed} of `start-with` are here"))
}

/// A client as people know it: by its node, where it is on one.
fn named(client: ClientId, run: &FedStatus) -> String {
    let node = run.members.get(client.0 as usize);
    node.map_or_else(|| client.0.to_string(), |node| node.short())
}

/// How updates went from client to client, and whom they have not come to.
pub(super) fn round_the_clients(swarm: &SwarmReport, run: &FedStatus) -> String {
    let covered = if swarm.covered { "" } else { ", cover not reached" };
    let who = |client: &ClientId| named(*client, run);
    let apart = swarm.apart.iter();
    let apart = apart.map(|apart| format!(", without client {}: {}", who(&apart.client), apart.why));
    let false_pieces = swarm.false_pieces.iter();
    let out =
        false_pieces.map(|client| format!(", client {} gave false pieces and is left out", who(client)));
    let named: String = apart.chain(out).collect();
    format!(
        "   {} have the mean, warm-up {:.0} % of {}{covered}{named}",
        swarm.complete.len(),
        100.0 * swarm.warm_up_share(),
        format_duration(Duration::from_millis(swarm.ms))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_fed::{Apart, Status};

    #[test]
    fn a_run_that_waits_says_what_for() {
        let described =
            Run::from_toml("name = 'digits'\nrounds = 3\nstart-with = 5\n[clients]\nplugin = 'fed-digits'\n");
        let described = described.unwrap();
        let mut run = FedStatus {
            name: "digits".into(),
            status: None,
            running: true,
            members: Vec::new(),
            events: 0,
            forgotten: Default::default(),
            log: Vec::new(),
        };
        let nobody = "digits: waiting for a node that has the client `fed-digits`";
        assert_eq!(waits(&run, &described).as_deref(), Some(nobody));
        assert_eq!(doing(&run, &described), nobody);
        run.members.push(karman_types::NodeId::of_key(b"node"));
        assert_eq!(waits(&run, &described), None);
        assert_eq!(
            doing(&run, &described),
            "digits: a client makes the first version"
        );
        let mut status = Status {
            version: 0,
            rounds: 3,
            here: 2,
            training: 0,
            gathered: 0,
            accuracy: None,
            spent: None,
            ended: false,
            failure: None,
        };
        run.status = Some(status.clone());
        let few = "digits: waiting for clients: 2 of the 5 of `start-with` are here";
        assert_eq!(doing(&run, &described), few);
        (status.here, status.training, status.gathered) = (5, 3, 2);
        run.status = Some(status.clone());
        let trains = "digits: round 1/3, 3 clients are at work, 2 updates are here";
        assert_eq!(doing(&run, &described), trains);
        status.version = 3;
        run.status = Some(status);
        assert!(doing(&run, &described).starts_with("digits: round 3/3"));
    }

    #[test]
    fn a_round_is_one_line_with_all_that_happened_in_it() {
        let run = FedStatus {
            name: "digits".into(),
            status: None,
            running: true,
            members: Vec::new(),
            events: 0,
            forgotten: Default::default(),
            log: Vec::new(),
        };
        let round = |version| FedEvent::Round {
            round: version,
            version,
            clients: vec![ClientId(0), ClientId(2)],
            lost: 1,
            loss: Some(0.25),
            staleness: 0.0,
            bytes_up: 2048,
            bytes_down: 4096,
            epsilon: Some(1.5),
            swarm: None,
            rank: Some(7),
            ms: 120,
        };
        let judged = |version, accuracy| FedEvent::Judged {
            version,
            clients: 3,
            accuracy,
            loss: 0.2,
        };
        let mut view = View::default();
        let passed_over = FedEvent::PassedOver {
            client: ClientId(3),
            why: "not in view long enough: 40 s of 1 min 35 s needed".into(),
        };
        assert_eq!(
            view.lines(&passed_over, &run),
            ["client 3 is not asked: not in view long enough: 40 s of 1 min 35 s needed"]
        );
        let trouble = FedEvent::Trouble {
            client: ClientId(1),
            what: "late: its time is over".into(),
        };
        assert!(view.lines(&trouble, &run).is_empty());
        assert!(view.lines(&round(1), &run).is_empty());
        let first = view.lines(&judged(1, 0.5), &run);
        assert_eq!(
            first,
            [
                "round 1/0   clients 2/3 (client 1 late: its time is over)   loss 0.250   2 KiB up   120 ms   rank 7   ε 1.50   accuracy 0.500"
            ]
        );
        view.lines(&round(2), &run);
        assert!(view.lines(&judged(2, 0.75), &run)[0].ends_with("accuracy 0.750 (+0.250)"));
        let mut swarm = SwarmReport {
            complete: vec![ClientId(0), ClientId(2)],
            apart: Vec::new(),
            false_pieces: Vec::new(),
            covered: false,
            unprotected: 3,
            warm_up_ms: 240,
            ms: 2000,
        };
        assert_eq!(
            round_the_clients(&swarm, &run),
            "   2 have the mean, warm-up 12 % of 2 s, cover not reached"
        );
        swarm.apart.push(Apart {
            client: ClientId(1),
            why: "it has left the round".into(),
        });
        let told = round_the_clients(&swarm, &run);
        assert!(
            told.ends_with(", without client 1: it has left the round"),
            "{told}"
        );
        swarm.false_pieces.push(ClientId(2));
        let told = round_the_clients(&swarm, &run);
        assert!(
            told.ends_with("round, client 2 gave false pieces and is left out"),
            "{told}"
        );
        // One that nobody judged is shown when the next one comes.
        view.lines(&round(3), &run);
        assert!(view.lines(&round(4), &run)[0].starts_with("round 3/0"));
        let end = FedEvent::Finished {
            version: 4,
            failure: None,
        };
        let last = view.lines(&end, &run);
        assert_eq!(
            (last.len(), last[1].as_str()),
            (2, "digits: 4 versions   accuracy 0.750 of version 2")
        );
    }
}
