use super::continuum::{Continuum, Who, pause};
use super::round::CLIENT;
use super::truth::{Known, Shot, known};
use crate::app::App;
use crate::control::{Control, escape};
use bytes::Bytes;
use http::Method;
use karman_node::{
    Deployed, Example, FlowOrder, FlowStatus, HeldModel, MeasureOrder, Measured, ModelInParts, NodeOffer,
    SplitOrder, SplitPlan,
};
use karman_types::{Slo, TaskError, TaskId, Workflow};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const WORKFLOW: &str = include_str!("../../../../../plugins/flood/flood.toml");
const SMALL: &[u8] = include_bytes!("../../../../../plugins/flood/models/flood-s.onnx");
/// The large model.
pub(super) const LARGE: &[u8] = include_bytes!("../../../../../plugins/flood/models/flood-l.onnx");
/// What the models do: the workflow names it, too.
pub(super) const CAPABILITY: &str = "earth/segmentation/water";
/// The task of the workflow in which tiles are looked at.
const SEGMENT: &str = "segment";
/// Where the pictures are taken: in the part of the terrain that no model was trained on.
const PLACE: (usize, usize) = (100, 255);
/// Tiles that implementations are measured with.
const EXAMPLES: usize = 10;
/// How far activations may come out of a link from what went in: eight bits.
const MAX_ERROR: f64 = 0.004;
/// How long the satellite may take to hear what the dish offers.
const FOUND: Duration = Duration::from_secs(20);

/// The plugins' files.
pub(super) struct Plugins {
    /// Each with the node that it is for.
    placed: Vec<(Who, &'static str, Bytes)>,
    /// The client of the federated round.
    client: Bytes,
}

impl Plugins {
    const ALL: [(Who, &'static str); 5] = [
        (Who::Sat, "flood-capture"),
        (Who::Sat, "flood-tiles"),
        (Who::Sat, "flood-screen"),
        (Who::Dish, "flood-alert"),
        (Who::Siren, "siren"),
    ];

    /// Reads them.
    ///
    /// # Errors
    /// `unavailable` for one that is not there.
    pub(super) fn read(folder: &Path) -> Result<Self, TaskError> {
        let file = |name: &str| {
            let path = folder.join(format!("{name}.wasm"));
            let bytes = std::fs::read(&path).map_err(|_| {
                TaskError::unavailable(format!("{} is not there", path.display()))
                    .with_hint("`cargo xtask demo` in a clone of the repository builds the plugins and starts this; or name their folder with --plugins")
            })?;
            Ok::<Bytes, TaskError>(bytes.into())
        };
        let placed = Self::ALL
            .into_iter()
            .map(|(who, name)| Ok((who, name, file(name)?)));
        Ok(Self {
            placed: placed.collect::<Result<_, TaskError>>()?,
            client: file(CLIENT)?,
        })
    }

    /// The client of the federated round.
    pub(super) const fn client(&self) -> &Bytes {
        &self.client
    }
}

/// The picture of this number: the water rises, clouds pass.
pub(super) fn shot(number: usize) -> Shot {
    let (column, row) = PLACE;
    Shot {
        column,
        row,
        level: 10.0 + 2.0 * number as f64,
        clouds: 0.25,
        seed: 1000 + number as u32,
    }
}

/// The workflow.
///
/// # Errors
/// `internal` when the file that came with this program does not read.
pub(super) fn workflow() -> Result<Workflow, TaskError> {
    Workflow::from_toml(WORKFLOW).map_err(|error| TaskError::internal(format!("flood.toml: {error}")))
}

/// Its SLO.
pub(super) fn slo(workflow: &Workflow) -> Slo {
    let usual = || Slo::over(Slo::USUAL_REQUESTS);
    workflow.slo().cloned().unwrap_or_else(usual)
}

/// Puts plugins and models in their places, all at once.
///
/// # Errors
/// What a node says.
pub(super) fn furnish(continuum: &Continuum, plugins: &Plugins) -> Result<(), TaskError> {
    let model = |who: Who, name: &str, file: &'static [u8], info: Value| {
        let path = format!("/models/{name}?info={}", escape(&info.to_string()));
        order::<HeldModel>(continuum, who, &path, file.into()).map(drop)
    };
    let does = || json!({ "capability": CAPABILITY });
    std::thread::scope(|scope| {
        let deploy = |(who, name, file): &(Who, &'static str, Bytes)| {
            let path = format!("/plugins/{name}?grant-asked=true");
            order::<Deployed>(continuum, *who, &path, file.clone()).map(drop)
        };
        let mut all: Vec<_> = plugins
            .placed
            .iter()
            .map(|plugin| scope.spawn(move || deploy(plugin)))
            .collect();
        all.push(scope.spawn(|| model(Who::Sat, "flood-s", SMALL, does())));
        all.push(scope.spawn(|| model(Who::Dish, "flood-l", LARGE, does())));
        // On the ground there is a copy of what flies. Nobody is to call that one.
        all.push(scope.spawn(|| model(Who::Dish, "flood-s", SMALL, json!({}))));
        all.push(scope.spawn(|| model(Who::Cloud, "flood-l", LARGE, json!({}))));
        let panicked = |_| Err(TaskError::internal("a thread panicked"));
        all.into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(panicked))
    })
}

/// Lets the dish run its large model with the fog node and the cloud, as is fastest for many tiles.
///
/// # Errors
/// What the dish says.
pub(super) fn plan(continuum: &Continuum) -> Result<SplitPlan, TaskError> {
    let wanted = SplitOrder {
        over: vec!["tier=fog".into(), "tier=cloud".into()],
        // Many tiles come at once: the slowest stage counts like the time until a result.
        latency: Some(1.0),
        interval: Some(1.0),
        max_error: Some(MAX_ERROR),
        apply: true,
        ..SplitOrder::default()
    };
    order(continuum, Who::Dish, "/models/flood-l/plan", body(&wanted)?)
}

/// How the dish runs its large model now.
///
/// # Errors
/// What the dish says.
pub(super) fn cut(continuum: &Continuum) -> Result<String, TaskError> {
    let control = continuum.node(Who::Dish).control();
    let parts: Option<ModelInParts> = control.get("/models/flood-l/plan")?;
    let words = parts.map_or_else(|| "whole on the dish".into(), |parts| parts.runs);
    Ok(continuum.named(&words))
}

/// Tiles of other pictures with the truth about them, to measure with who can look for water.
///
/// # Errors
/// What the satellite says.
pub(super) fn examples(continuum: &Continuum) -> Result<MeasureOrder, TaskError> {
    let mut examples = Vec::new();
    for number in 0..EXAMPLES {
        let other = Shot {
            seed: 5000 + number as u32,
            ..shot(number)
        };
        let Known { tiles, truth, .. } = known(continuum, &other)?;
        let wet = truth
            .iter()
            .map(|[[rows]]| rows.iter().flatten().any(|pixel| *pixel != 0));
        let wet = tiles.iter().zip(&truth).zip(wet).filter(|(_, wet)| *wet);
        examples.extend(wet.map(|((tile, truth), _)| Example {
            input: tile.clone(),
            output: BTreeMap::from([("water".to_owned(), json!({ "mask": truth }))]),
        }));
        if examples.len() >= EXAMPLES {
            break;
        }
    }
    examples.truncate(EXAMPLES);
    Ok(MeasureOrder {
        workflow: WORKFLOW.into(),
        task: SEGMENT.into(),
        examples,
        cost: BTreeMap::new(),
        energy: BTreeMap::new(),
        only: None,
    })
}

/// Measures who can look for water.
///
/// # Errors
/// `unavailable` when the large model is not found; what the satellite says.
pub(super) fn measure(
    app: &App,
    continuum: &Continuum,
    wanted: &MeasureOrder,
) -> Result<Vec<Measured>, TaskError> {
    let started = Instant::now();
    while !offered(continuum)? {
        if started.elapsed() > FOUND {
            return Err(TaskError::unavailable(format!(
                "the satellite does not hear in {} s what the dish offers",
                FOUND.as_secs()
            )));
        }
        pause(app, Duration::from_millis(100))?;
    }
    order(continuum, Who::Sat, "/flows/measure", body(wanted)?)
}

fn offered(continuum: &Continuum) -> Result<bool, TaskError> {
    let offers: Vec<NodeOffer> = continuum.node(Who::Sat).control().get("/mesh/offers")?;
    let dish = continuum.node(Who::Dish).id();
    let tasks = offers.iter().filter(|offer| offer.offer.node == dish);
    Ok(tasks
        .flat_map(|offer| &offer.offer.tasks)
        .any(|task| task.name.starts_with(CAPABILITY)))
}

/// Orders a capture from the satellite.
///
/// # Errors
/// What the satellite says.
pub(super) fn capture(continuum: &Continuum, workflow: &Workflow, shot: &Shot) -> Result<TaskId, TaskError> {
    #[derive(Deserialize)]
    struct Accepted {
        flow: TaskId,
    }
    let wanted = FlowOrder {
        workflow: workflow.clone(),
        input: shot.order(),
    };
    let Accepted { flow } = order(continuum, Who::Sat, "/flows", body(&wanted)?)?;
    Ok(flow)
}

/// How far a capture is, once it has ended or this time is over.
///
/// # Errors
/// What the satellite says.
pub(super) fn status(continuum: &Continuum, run: TaskId, wait: Duration) -> Result<FlowStatus, TaskError> {
    let path = format!("/flows/{run}?wait={}ms", wait.as_millis());
    continuum.node(Who::Sat).control().get(&path)
}

/// Whether nothing of a capture is to be looked at any more: it has ended, or all that is left is to tell the dish.
pub(super) fn is_looked_at(status: &FlowStatus) -> bool {
    let mut steps = status.steps.iter().filter(|step| step.task == SEGMENT);
    status.state.has_ended() || steps.any(|step| matches!(&step.state[..], "done" | "skipped"))
}

fn order<T: DeserializeOwned>(
    continuum: &Continuum,
    who: Who,
    path: &str,
    body: Bytes,
) -> Result<T, TaskError> {
    order_at(continuum.node(who).control(), who, path, body)
}

/// Gives a node an order.
///
/// # Errors
/// What it says, with its name.
pub(super) fn order_at<T: DeserializeOwned>(
    control: &Control,
    who: Who,
    path: &str,
    body: Bytes,
) -> Result<T, TaskError> {
    control
        .order(Method::POST, path, body)
        .map_err(|error| TaskError {
            message: format!("`{who}`: {}", error.message),
            ..error
        })
}

/// An order as it is sent.
///
/// # Errors
/// `internal` for one that cannot be written.
pub(super) fn body(order: &impl serde::Serialize) -> Result<Bytes, TaskError> {
    let bytes = serde_json::to_vec(order).map_err(|error| TaskError::internal(error.to_string()))?;
    Ok(bytes.into())
}
