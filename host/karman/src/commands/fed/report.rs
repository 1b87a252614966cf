use super::view::round_the_clients;
use super::{Runs, write_out};
use crate::app::App;
use clap::Args;
use karman_fed::ClientId;
use karman_node::{FedEvent, FedStatus};
use karman_sim::{Curve, Plot};
use karman_types::{TaskError, escape_xml, format_bytes, format_duration};
use serde_json::json;
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
        let run = Runs::open(app)?.one(&self.name, 0)?;
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
    let last = told.accuracy.last().map_or(String::new(), |(version, share)| {
        format!(", accuracy {share:.4} after version {version:.0}")
    });
    let troubles = match told.troubles.is_empty() {
        true => "<p>Nobody did anything wrong.</p>".into(),
        false => format!("<ul>\n{}</ul>", told.troubles),
    };
    let rounds = &told.rounds;
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title>\n<style>\
         body{{font:15px system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color-scheme:light dark}}\
         table{{border-collapse:collapse}}td,th{{text-align:right;padding:.15em .8em;border-bottom:1px solid #8884}}</style>\n\
         <h1>{name}</h1>\n<p>{} clients{last}</p>\n{}\
         <h2>Rounds</h2>\n<table><tr><th>version<th>clients<th>lost<th>loss<th>updates<th>time</tr>\n{rounds}</table>\n\
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
    /// A row of the table for each version.
    rounds: String,
    /// An item of the list for each trouble.
    troubles: String,
    accuracy: Vec<(f64, f64)>,
    loss: Vec<(f64, f64)>,
    /// MiB of updates up to each version.
    updates: Vec<(f64, f64)>,
    bytes_up: u64,
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
                writeln!(
                    self.rounds,
                    "<tr><td>{version}<td>{}<td>{lost}<td>{mean}<td>{}<td>{time}{went}</tr>",
                    clients.len(),
                    format_bytes(*bytes_up)
                )
            }
            FedEvent::Judged {
                version,
                accuracy: share,
                ..
            } => {
                self.accuracy.push((*version as f64, *share));
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

    fn plots(&self) -> String {
        let plot = |title: &str, y: &str, curve: &str, points| {
            Plot::new(title, "version", y, vec![Curve::new(curve, points)]).svg()
        };
        [
            plot(
                "Accuracy on samples held back",
                "accuracy",
                "mean",
                self.accuracy.clone(),
            ),
            plot("Loss of the training", "loss", "mean", self.loss.clone()),
            plot("Updates received", "MiB", "sum", self.updates.clone()),
        ]
        .concat()
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
    }
}
