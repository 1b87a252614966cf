use super::Runs;
use super::view::round_the_clients;
use crate::app::App;
use crate::control::{Control, escape};
use crate::output::table;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::{FedEvent, FedStatus};
use karman_types::TaskError;
use serde_json::json;

/// `karman fed status`
#[derive(Args, Debug)]
pub(super) struct Status {
    /// One run, with its clients [default: all runs]
    name: Option<String>,
}

/// `karman fed stop`
#[derive(Args, Debug)]
pub(super) struct Stop {
    /// The run
    name: String,
}

impl Status {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let runs = Runs::open(app)?;
        match &self.name {
            None => {
                let all = runs.all()?;
                app.output.result(|| listed(&all), || json!(all))
            }
            Some(name) => {
                let one = runs.one(name, 0)?;
                app.output.result(|| shown(&one), || json!(one))
            }
        }
    }
}

impl Stop {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let path = format!("/fed/{}/stop", escape(&self.name));
        Control::new(app)?.order::<()>(Method::POST, &path, Bytes::new())?;
        app.output.result(
            || format!("{}   ends with the version that it has", self.name),
            || json!({ "name": self.name }),
        )
    }
}

fn listed(runs: &[FedStatus]) -> String {
    if runs.is_empty() {
        return "no federated runs".into();
    }
    let head = ["RUN", "VERSION", "ACCURACY", "HERE", "TRAINING", "STATE"].map(str::to_owned);
    let rows = std::iter::once(head.to_vec()).chain(runs.iter().map(row));
    table(&rows.collect::<Vec<_>>())
}

fn row(run: &FedStatus) -> Vec<String> {
    let state = match (&run.status, run.running) {
        (Some(status), _) if status.ended => match &status.failure {
            Some(why) => format!("ended: {why}"),
            None => "done".into(),
        },
        (Some(_), true) => "running".into(),
        (None, true) => "waiting for a client".into(),
        (_, false) => "stopped; goes on when it is run again".into(),
    };
    let of =
        |tell: &dyn Fn(&karman_fed::Status) -> String| run.status.as_ref().map_or_else(|| "-".into(), tell);
    vec![
        run.name.clone(),
        of(&|status| format!("{}/{}", status.version, status.rounds)),
        of(&|status| {
            status
                .accuracy
                .map_or_else(|| "-".into(), |share| format!("{share:.3}"))
        }),
        of(&|status| status.here.to_string()),
        of(&|status| status.training.to_string()),
        state,
    ]
}

/// One run: its line, and for each client how often its updates counted and what it did wrong last.
fn shown(run: &FedStatus) -> String {
    let mut rows = vec![
        ["CLIENT", "NODE", "UPDATES", "LAST TROUBLE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut ids: Vec<u64> = (0..run.members.len() as u64).collect();
    for event in &run.log {
        if let FedEvent::Round { clients, .. } = event {
            ids.extend(clients.iter().map(|client| client.0));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let took_part = |event: &&FedEvent| matches!(event, FedEvent::Round { clients, .. } if clients.iter().any(|client| client.0 == id));
        let trouble = run.log.iter().rev().find_map(|event| match event {
            FedEvent::Trouble { client, what } if client.0 == id => Some(what.clone()),
            _ => None,
        });
        rows.push(vec![
            id.to_string(),
            run.members
                .get(id as usize)
                .map_or_else(|| "here".into(), |node| node.short()),
            run.log.iter().filter(took_part).count().to_string(),
            trouble.unwrap_or_else(|| "-".into()),
        ]);
    }
    let went = run.log.iter().rev().find_map(|event| match event {
        FedEvent::Round {
            version,
            swarm: Some(swarm),
            ..
        } => Some(format!("\n\nversion {version}:{}", round_the_clients(swarm, run))),
        _ => None,
    });
    let clients = table(&rows);
    format!(
        "{}\n\n{clients}{}",
        listed(std::slice::from_ref(run)),
        went.unwrap_or_default()
    )
}
