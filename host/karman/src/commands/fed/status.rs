use super::view::round_the_clients;
use crate::app::App;
use crate::held::Held;
use crate::output::table;
use clap::Args;
use karman_fed::ClientId;
use karman_fed::privacy::{Adjacency, Spent};
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

/// `karman fed remove`
#[derive(Args, Debug)]
pub(super) struct Remove {
    /// The run
    name: String,
}

impl Status {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.name {
            None => {
                let held = Held::if_any(app)?;
                let all = held.map_or_else(|| Ok(Vec::new()), |held| held.fed_runs())?;
                match app.output.json {
                    true => all.iter().try_for_each(|run| app.output.line(json!(run))),
                    false => app.output.line(listed(&all)),
                }
            }
            Some(name) => {
                let one = Held::with_fed_run(app, name)?.fed_run(name, 0)?;
                app.output.result(|| shown(&one), || json!(one))
            }
        }
    }
}

impl Stop {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        Held::with_fed_run(app, &self.name)?.stop_fed_run(&self.name)?;
        app.output.result(
            || format!("{}   ends with the version that it has", self.name),
            || json!({ "name": self.name }),
        )
    }
}

impl Remove {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        Held::with_fed_run(app, &self.name)?.remove_fed_run(&self.name)?;
        app.output.result(
            || format!("{} is removed", self.name),
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
    let forgotten = &run.forgotten;
    ids.extend(forgotten.updates.keys().map(|client| client.0));
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let took_part = |event: &&FedEvent| matches!(event, FedEvent::Round { clients, .. } if clients.iter().any(|client| client.0 == id));
        let before = forgotten.updates.get(&ClientId(id)).copied().unwrap_or(0);
        let trouble = run.log.iter().rev().find_map(|event| match event {
            FedEvent::Trouble { client, what } if client.0 == id => Some(what.clone()),
            FedEvent::PassedOver { client, why } if client.0 == id => Some(format!("not asked: {why}")),
            _ => None,
        });
        rows.push(vec![
            id.to_string(),
            run.members
                .get(id as usize)
                .map_or_else(|| "here".into(), |node| node.short()),
            (run.log.iter().filter(took_part).count() as u64 + before).to_string(),
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
    let spent = run.status.as_ref().and_then(|status| status.spent.as_ref());
    let clients = table(&rows);
    let left_out = match forgotten.events {
        0 => String::new(),
        count => format!(
            "\n\nthe first {count} events are kept no longer: updates are counted from the beginning, troubles after those"
        ),
    };
    format!(
        "{}\n\n{clients}{}{}{left_out}",
        listed(std::slice::from_ref(run)),
        went.unwrap_or_default(),
        spent.map_or_else(String::new, |spent| format!("\n\n{}", given_away(spent)))
    )
}

/// What a private run has given away of a client, and what that compares.
pub(super) fn given_away(spent: &Spent) -> String {
    let told = format!("ε {:.2} at δ {:e}", spent.epsilon, spent.delta);
    let count = spent.rounds;
    match spent.adjacency {
        Adjacency::AddOrRemoveClient => {
            format!(
                "{told} after {count} rounds, between two runs of which one has a client that the other has not"
            )
        }
        Adjacency::AnyTwoUpdates => format!(
            "{told} of the client that has answered most ({count} orders), between two runs in which its \
             updates are others; each client keeps its own account"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_no_longer_is_counted_and_told() {
        let trouble = |client| FedEvent::Trouble {
            client: ClientId(client),
            what: "late".into(),
        };
        let mut run = FedStatus {
            name: "digits".into(),
            status: None,
            running: false,
            members: Vec::new(),
            events: 2,
            forgotten: Default::default(),
            log: vec![trouble(3), trouble(5)],
        };
        assert!(!shown(&run).contains("kept no longer"));
        run.forgotten.events = 40;
        run.forgotten.updates = [(ClientId(3), 7), (ClientId(4), 9)].into();
        let told = shown(&run);
        let line = |client: &str| -> Vec<&str> {
            let line = told.lines().find(|line| line.starts_with(client));
            line.unwrap().split_whitespace().collect()
        };
        assert_eq!(line("3 "), ["3", "here", "7", "late"]);
        assert_eq!(line("4 "), ["4", "here", "9", "-"]);
        assert!(
            told.ends_with("troubles after those") && told.contains("the first 40 events"),
            "{told}"
        );
    }

    #[test]
    fn what_a_private_run_gives_away_is_told_with_what_it_compares() {
        let mut spent = Spent {
            epsilon: 1.504,
            delta: 1e-5,
            adjacency: Adjacency::AddOrRemoveClient,
            order: 9.0,
            rounds: 12,
            drawn: 12,
        };
        let told = "ε 1.50 at δ 1e-5 after 12 rounds, between two runs of which one has a client that the other has not";
        assert_eq!(given_away(&spent), told);
        spent.adjacency = Adjacency::AnyTwoUpdates;
        let told = given_away(&spent);
        assert!(
            told.contains("ε 1.50 at δ 1e-5 of the client that has answered most (12 orders"),
            "{told}"
        );
    }
}
