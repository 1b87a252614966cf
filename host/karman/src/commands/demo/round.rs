//! The federated round: the boards train the model that is on board by what they know of their valley, the dish makes one of what they
//! learnt and brings it up when the satellite passes, and the satellite measures it anew.

use super::beside::Beside;
use super::continuum::{Continuum, Who, pause, reaches};
use super::days::Days;
use super::mission::{CAPABILITY, Plugins, body, order_at};
use crate::app::App;
use crate::control::{Control, escape};
use bytes::Bytes;
use http::Method;
use karman_node::{Deployed, FedEvent, FedStatus, HeldModel, MeasureOrder, Measured, OnNode};
use karman_types::{ErrorKind, NodeId, TaskError, format_bytes};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

const DESCRIPTION: &str = include_str!("../../../../../plugins/flood/water.toml");
/// The client.
pub(super) const CLIENT: &str = "fed-flood";
/// How often to look whether the satellite is there.
const LOOK: Duration = Duration::from_millis(150);

/// What came of it.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Outcome {
    /// Those whose updates are in the new model.
    clients: Vec<Who>,
    /// From the opening of the round to its closing.
    took: Duration,
    /// Bytes of models to them, and of updates back.
    bytes_down: u64,
    bytes_up: u64,
    /// The new model's file, as it went up.
    model_bytes: u64,
    /// The pass in which it did, counted from 0.
    act: usize,
    /// Intersection over union on what the boards hold back, as they judge it.
    judged: Option<f64>,
    /// The same on the satellite, by pictures of other days: how many tiles, before and after.
    tiles: usize,
    before: f64,
    after: f64,
    /// What the satellite knows of its model since.
    measured: Option<Measured>,
}

/// What the round is made with.
pub(super) struct Round<'a> {
    app: &'a App,
    beside: &'a Beside,
    days: &'a Days,
    examples: &'a MeasureOrder,
    names: BTreeMap<NodeId, Who>,
    dish: Control,
    sat: Control,
    ids: (NodeId, NodeId),
}

/// What the round was, as its events tell it.
#[derive(Default)]
struct Told {
    clients: Vec<usize>,
    took: Duration,
    bytes_down: u64,
    bytes_up: u64,
    judged: Option<f64>,
    closed: bool,
}

/// Has the dish give both boards the client.
///
/// # Errors
/// What one of them says.
pub(super) fn deploy(continuum: &Continuum, plugins: &Plugins) -> Result<(), TaskError> {
    let path = format!("/mesh/plugins/{CLIENT}?on={}", escape("tier=edge"));
    let dish = continuum.node(Who::Dish).control();
    let deployed: Vec<OnNode<Deployed>> = order_at(dish, Who::Dish, &path, plugins.client().clone())?;
    deployed
        .into_iter()
        .try_for_each(|OnNode { outcome, .. }| outcome.map(drop))
}

impl<'a> Round<'a> {
    /// The round of these nodes, with connections of its own to them: it goes on beside the passes.
    ///
    /// # Errors
    /// `internal` when the system has no more descriptors.
    pub(super) fn new(
        app: &'a App,
        continuum: &Continuum,
        (beside, days): (&'a Beside, &'a Days),
        examples: &'a MeasureOrder,
    ) -> Result<Self, TaskError> {
        let (dish, sat) = (continuum.node(Who::Dish), continuum.node(Who::Sat));
        Ok(Self {
            app,
            beside,
            days,
            examples,
            names: Who::ALL.map(|who| (continuum.node(who).id(), who)).into(),
            dish: dish.another_control()?,
            sat: sat.another_control()?,
            ids: (dish.id(), sat.id()),
        })
    }

    /// All of it; it takes as long as it takes until the satellite passes.
    ///
    /// # Errors
    /// What a node says; `unavailable` when no pass is left to bring the new model up.
    pub(super) fn run(&self) -> Result<Outcome, TaskError> {
        let trained = self.train();
        // A round that came to nothing holds up nobody either.
        self.beside.trained();
        let (name, told, members) = trained?;
        let file = self
            .dish
            .send(Method::GET, &format!("/fed/{name}/onnx"), &[], Bytes::new())?
            .into_body();
        let model_bytes = file.len() as u64;
        let act = self.bring(&file)?;
        self.app.output.note(format!(
            "  the dish has brought the model that the boards have trained: {}",
            format_bytes(model_bytes)
        ));
        // While the two see each other, the captures come first.
        while reaches(&self.sat, self.ids.0)? && !self.beside.is_over() {
            pause(self.app, LOOK)?;
        }
        let after = self.days.overlap(&self.sat)?;
        let anew = MeasureOrder {
            only: Some(format!("flood-s@{}", self.ids.1.short())),
            ..self.examples.clone()
        };
        // A capture may be under way: then the times are those of a satellite that has something else to do as well.
        let measured: Vec<Measured> = order_at(&self.sat, Who::Sat, "/flows/measure", body(&anew)?)?;
        let named = told.clients.iter().filter_map(|client| members.get(*client));
        Ok(Outcome {
            clients: named.filter_map(|id| self.names.get(id).copied()).collect(),
            took: told.took,
            bytes_down: told.bytes_down,
            bytes_up: told.bytes_up,
            model_bytes,
            act,
            judged: told.judged,
            tiles: self.days.tiles,
            before: self.days.before,
            after,
            measured: measured.into_iter().next(),
        })
    }

    /// The round itself, which the dish drives: its name, what is told of it, the nodes of its clients.
    fn train(&self) -> Result<(String, Told, Vec<NodeId>), TaskError> {
        let run = karman_fed::Run::from_toml(DESCRIPTION)
            .map_err(|error| TaskError::internal(format!("water.toml: {error}")))?;
        let begun: FedStatus = order_at(&self.dish, Who::Dish, "/fed", body(&run)?)?;
        let (mut told, mut seen) = (Told::default(), 0);
        let members = loop {
            let path = format!("/fed/{}?after={seen}&wait_ms=2000", begun.name);
            let status: FedStatus = self.dish.get(&path)?;
            for event in &status.log {
                told.hear(event)?;
            }
            if !status.running {
                break status.members;
            }
            seen = status.events;
            if self.beside.is_over() {
                return Err(TaskError::unavailable("the round was not done in time"));
            }
        };
        match told.closed {
            true => Ok((run.name, told, members)),
            false => Err(TaskError::failed("the round has made no version")),
        }
    }

    /// Brings the new model up as soon as the satellite passes; the pass in which it does.
    fn bring(&self, file: &Bytes) -> Result<usize, TaskError> {
        let (dish_sees, info) = (self.ids.1, json!({ "capability": CAPABILITY }).to_string());
        let path = format!("/mesh/models/flood-s?on={dish_sees}&info={}", escape(&info));
        while !self.beside.is_over() {
            if let Some(act) = self.beside.act()
                && reaches(&self.dish, dish_sees)?
            {
                let brought = self
                    .dish
                    .order::<Vec<OnNode<HeldModel>>>(Method::POST, &path, file.clone());
                let brought = brought.and_then(|on| {
                    on.into_iter()
                        .try_for_each(|OnNode { outcome, .. }| outcome.map(drop))
                });
                match brought {
                    Ok(()) => return Ok(act),
                    // The pass was over first: there is another one.
                    Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Deadline) => {}
                    Err(error) => return Err(error),
                }
            }
            pause(self.app, LOOK)?;
        }
        Err(TaskError::unavailable(
            "no pass was left to bring the new model up",
        ))
    }
}

impl Told {
    fn hear(&mut self, event: &FedEvent) -> Result<(), TaskError> {
        match event {
            FedEvent::Round {
                clients,
                bytes_up,
                bytes_down,
                ms,
                ..
            } => {
                self.clients = clients.iter().map(|client| client.0 as usize).collect();
                self.took = Duration::from_millis(*ms);
                (self.bytes_up, self.bytes_down) = (*bytes_up, *bytes_down);
                self.closed = true;
            }
            FedEvent::Judged { accuracy, .. } => self.judged = Some(*accuracy),
            FedEvent::Failed { why, .. }
            | FedEvent::Finished {
                failure: Some(why), ..
            } => {
                return Err(TaskError::failed(why.clone()));
            }
            FedEvent::Trouble { .. }
            | FedEvent::PassedOver { .. }
            | FedEvent::Finished { failure: None, .. } => {}
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.clients.iter().map(|who| who.name()).collect();
        writeln!(
            f,
            "federated round: {} have trained flood-s for {:.1} s, by {} of weights down and {} of updates up",
            names.join(" and "),
            self.took.as_secs_f64(),
            format_bytes(self.bytes_down),
            format_bytes(self.bytes_up)
        )?;
        writeln!(
            f,
            "  {} went up in pass {}; since then the satellite runs it",
            format_bytes(self.model_bytes),
            self.act + 1
        )?;
        write!(
            f,
            "  IoU on the satellite, {} tiles of other days: {:.3} before, {:.3} after",
            self.tiles, self.before, self.after
        )?;
        if let Some(judged) = self.judged {
            write!(f, "; {judged:.3} on what the boards hold back")?;
        }
        let anew = self.measured.as_ref().and_then(|one| one.implementation.as_ref());
        match anew.and_then(|known| known.profile.accuracy) {
            Some(accuracy) => write!(
                f,
                "\n  measured anew on the satellite: IoU {accuracy:.3} in the mean of tiles"
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_fed::{ClientId, Run};

    #[test]
    fn the_description_is_one_that_a_node_follows() {
        let run = Run::from_toml(DESCRIPTION).unwrap();
        assert!(karman_node::check_run(&run).is_ok());
        assert_eq!((run.clients.plugin.as_str(), run.rounds), (CLIENT, 1));
    }

    #[test]
    fn a_round_that_made_nothing_is_told() {
        let mut told = Told::default();
        let round = FedEvent::Round {
            round: 1,
            version: 1,
            clients: vec![ClientId(1), ClientId(0)],
            lost: 0,
            loss: None,
            staleness: 0.0,
            bytes_up: 7,
            bytes_down: 8,
            epsilon: None,
            swarm: None,
            rank: None,
            ms: 1500,
        };
        told.hear(&round).unwrap();
        assert_eq!(
            (&told.clients[..], told.bytes_up, told.closed),
            (&[1, 0][..], 7, true)
        );
        let failed = FedEvent::Failed {
            round: 2,
            why: "nobody answered".into(),
        };
        let error = told.hear(&failed).unwrap_err();
        assert_eq!(error.message, "nobody answered");
    }
}
