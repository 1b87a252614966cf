use super::status::given_away;
use super::view::round_the_clients;
use super::write_out;
use crate::app::App;
use crate::held::Held;
use clap::Args;
use karman_fed::ClientId;
use karman_node::{FedEvent, FedStatus};
use karman_sim::{Curve, Plot};
use karman_types::{TaskError, escape_xml, format_bytes, format_duration};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// `karman fed report`
#[derive(Args, Debug)]
pub(super) struct Report {
    /// The run
    name: String,
    /// The file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Report {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let run = Held::with_fed_run(app, &self.name)?.fed_run(&self.name, 0)?;
        write_out(
            app,
            &self.output,
            page(&run).as_bytes(),
            || format!("{} events of {}", run.events, run.name),
            || json!({ "name": run.name, "events": run.events }),
        )
    }
}

/// One page without anything to fetch: curves first, then the rounds, then what clients did wrong.
fn page(run: &FedStatus) -> String {
    let name = escape_xml(&run.name);
    let told = Told::of(run);
    let last = told.judged.last_key_value();
    let last = last.map_or(String::new(), |(version, share)| {
        format!(", accuracy {share:.4} after version {version}")
    });
    let spent = run.status.as_ref().and_then(|status| status.spent.as_ref());
    let spent = spent.map_or(String::new(), |spent| format!("<p>{}</p>\n", given_away(spent)));
    let forgotten = match run.forgotten.events {
        0 => String::new(),
        count => format!(
            "<p>The first {count} events of this run are kept no longer: the page begins after them.</p>\n"
        ),
    };
    let troubles = match told.troubles.is_empty() {
        true => "<p>Nobody did anything wrong.</p>".into(),
        false => format!("<ul>\n{}</ul>", told.troubles),
    };
    let rounds = told.rounds();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title>\n<style>\
         body{{font:15px system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color-scheme:light dark}}\
         table{{border-collapse:collapse}}td,th{{text-align:right;padding:.15em .8em;border-bottom:1px solid #8884}}</style>\n\
         <h1>{name}</h1>\n<p>{} clients{last}</p>\n{spent}{forgotten}{}\
         <h2>Rounds</h2>\n<table>{rounds}</table>\n\
         <h2>Troubles</h2>\n{troubles}\n</html>\n",
        run.members
            .len()
            .max(run.status.as_ref().map_or(0, |status| status.here)),
        told.plots(),
    )
}

/// What the page says of a run's events.
#[derive(Default)]
struct Told {
    rounds: Vec<Row>,
    /// An item of the list for each trouble.
    troubles: String,
    /// The accuracy of each version that was judged.
    judged: BTreeMap<u64, f64>,
    loss: Vec<(f64, f64)>,
    /// MiB of updates up to each version.
    updates: Vec<(f64, f64)>,
    bytes_up: u64,
}

/// A version in the table.
struct Row {
    version: u64,
    /// Cells before those that not every version has: clients, lost, loss.
    before: String,
    /// What is given away by then, where the run is private.
    epsilon: Option<f64>,
    /// Cells after them: updates, time.
    after: String,
}

impl Told {
    fn of(run: &FedStatus) -> Self {
        let mut told = Self::default();
        for event in &run.log {
            // Writing into a string cannot fail.
            let _ = told.add(event, run);
        }
        told
    }

    fn add(&mut self, event: &FedEvent, run: &FedStatus) -> std::fmt::Result {
        match event {
            FedEvent::Round {
                version,
                clients,
                lost,
                loss: mean,
                bytes_up,
                epsilon,
                swarm,
                ms,
                ..
            } => {
                self.bytes_up += bytes_up;
                self.loss.extend(mean.map(|mean| (*version as f64, mean)));
                self.updates
                    .push((*version as f64, self.bytes_up as f64 / f64::from(1 << 20)));
                let time = format_duration(Duration::from_millis(*ms));
                let went = swarm
                    .as_ref()
                    .map_or_else(String::new, |swarm| escape_xml(&round_the_clients(swarm, run)));
                let mean = mean.map_or_else(|| "none".into(), |mean| format!("{mean:.4}"));
                self.rounds.push(Row {
                    version: *version,
                    before: format!("<td>{}<td>{lost}<td>{mean}", clients.len()),
                    epsilon: *epsilon,
                    after: format!("<td>{}<td>{time}{went}", format_bytes(*bytes_up)),
                });
                Ok(())
            }
            FedEvent::Judged {
                version, accuracy, ..
            } => {
                self.judged.insert(*version, *accuracy);
                Ok(())
            }
            FedEvent::Trouble { client, what } => self.add_trouble(*client, run, what),
            FedEvent::PassedOver { client, why } => {
                self.add_trouble(*client, run, &format!("was not asked: {why}"))
            }
            FedEvent::Failed { round, why } => {
                writeln!(
                    self.troubles,
                    "<li>round {round} made no version: {}</li>",
                    escape_xml(why)
                )
            }
            FedEvent::Finished { failure, .. } => match failure {
                Some(why) => writeln!(self.troubles, "<li>ended: {}</li>", escape_xml(why)),
                None => Ok(()),
            },
        }
    }

    fn add_trouble(&mut self, client: ClientId, run: &FedStatus, what: &str) -> std::fmt::Result {
        let at = run.members.get(client.0 as usize).map(|node| node.short());
        let at = at.map_or(String::new(), |node| format!(" on node {node}"));
        writeln!(
            self.troubles,
            "<li>client {}{at}: {}</li>",
            client.0,
            escape_xml(what)
        )
    }

    /// The rows of the table.
    fn rounds(&self) -> String {
        let is_private = self.is_private();
        let given_away = if is_private { "<th>ε" } else { "" };
        let mut rows = format!(
            "<tr><th>version<th>clients<th>lost<th>loss<th>accuracy{given_away}<th>updates<th>time</tr>\n"
        );
        for row in &self.rounds {
            let accuracy = self.judged.get(&row.version);
            let accuracy = accuracy.map_or(String::new(), |share| format!("{share:.4}"));
            let epsilon = row.epsilon.map(|epsilon| format!("<td>{epsilon:.2}"));
            let epsilon = epsilon.unwrap_or_else(|| if is_private { "<td>" } else { "" }.to_owned());
            let Row {
                version,
                before,
                after,
                ..
            } = row;
            // Writing into a string cannot fail.
            let _ = writeln!(
                rows,
                "<tr><td>{version}{before}<td>{accuracy}{epsilon}{after}</tr>"
            );
        }
        rows
    }

    fn is_private(&self) -> bool {
        self.rounds.iter().any(|row| row.epsilon.is_some())
    }

    fn plots(&self) -> String {
        let plot = |title: &str, y: &str, curve: &str, points| {
            Plot::new(title, "version", y, vec![Curve::new(curve, points)]).svg()
        };
        let judged = self.judged.iter();
        let accuracy = judged.map(|(version, share)| (*version as f64, *share));
        let mut plots = [
            plot(
                "Accuracy on samples held back",
                "accuracy",
                "mean",
                accuracy.collect(),
            ),
            plot("Loss of the training", "loss", "mean", self.loss.clone()),
            plot("Updates received", "MiB", "sum", self.updates.clone()),
        ]
        .concat();
        if self.is_private() {
            let rows = self.rounds.iter();
            let epsilon = rows.filter_map(|row| Some((row.version as f64, row.epsilon?)));
            plots += &plot("What is given away of a client", "ε", "ε", epsilon.collect());
        }
        plots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_say_is_text_not_a_page() {
        let run = FedStatus {
            name: "digits".into(),
            status: None,
            running: false,
            members: Vec::new(),
            events: 2,
            forgotten: Default::default(),
            log: vec![
                FedEvent::Trouble {
                    client: ClientId(3),
                    what: "gave up: <script>alert(1)</script>".into(),
                },
                FedEvent::Judged {
                    version: 7,
                    clients: 2,
                    accuracy: 0.9612,
                    loss: 0.1,
                },
            ],
        };
        let page = page(&run);
        assert!(
            page.contains("client 3: gave up: &lt;script&gt;") && !page.contains("<script>"),
            "{page}"
        );
        assert!(page.contains("accuracy 0.9612 after version 7"), "{page}");
        assert!(!page.contains('ε'), "{page}");
    }

    #[test]
    fn a_private_run_says_what_it_has_given_away() {
        let round = |version, epsilon| {
            json!({
                "event": "round", "round": version, "version": version, "clients": [1, 2], "lost": 0, "loss": 0.5,
                "staleness": 0.0, "bytes_up": 10, "bytes_down": 10, "epsilon": epsilon, "ms": 7
            })
        };
        let judged = json!({ "event": "judged", "version": 2, "clients": 2, "accuracy": 0.75, "loss": 0.1 });
        let log = json!([round(1, 0.4), round(2, 0.63), judged]);
        let spent = json!({
            "epsilon": 0.63, "delta": 1e-5, "adjacency": "add-or-remove-client", "order": 9.0, "rounds": 2, "drawn": 2
        });
        let run: FedStatus = serde_json::from_value(json!({
            "name": "digits", "running": false, "members": [], "events": 3, "log": log,
            "status": {
                "version": 2, "rounds": 6, "here": 2, "training": 0, "gathered": 0, "accuracy": 0.75, "spent": spent,
                "ended": true, "failure": null
            }
        }))
        .unwrap();
        let page = page(&run);
        assert!(
            page.contains("<p>ε 0.63 at δ 1e-5 after 2 rounds, between two runs"),
            "{page}"
        );
        assert!(page.contains("<th>accuracy<th>ε<th>updates"), "{page}");
        assert!(
            page.contains("<tr><td>2<td>2<td>0<td>0.5000<td>0.7500<td>0.63<td>10 B"),
            "{page}"
        );
        assert!(page.contains("What is given away of a client"), "{page}");
    }
}
