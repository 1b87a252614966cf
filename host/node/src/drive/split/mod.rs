//! Models over several nodes: each runs a part, and who calls the model does not know.
//!
//! | file | what |
//! |---|---|
//! | `wire` | what nodes say to each other about it |
//! | `order`, `orders` | how a model is to run in parts; which do, for the next start |
//! | `profiles` | how fast nodes are, as each measures it |
//! | `rounds` | which links are measured at the same time |
//! | `predict` | how long a model would take that was never timed |
//! | `policy` | who says where a model is cut |
//! | `problem`, `plan` | what follows from that, and what nodes must make ready for it |
//! | `pilot` | a model in use: every request by the plan of the moment, every measurement into the next plan |
//! | `pilot::planner` | whose turn it is with the re-planner, which takes a while |
//! | `pilot::learn` | what requests tell of nodes, links and tensors |
//! | `pilot::follow`, `pilot::lost`, `pilot::late` | when a plan is gone by; when those who failed are asked again, or last |
//! | `running` | what runs a model in parts: a pilot, or a crew |
//! | `way` | the route that its requests take, with what is known of it |
//! | `stages` | the parts of models that this node has ready |
//! | `encodings` | activations and results on their way: as they are, or smaller within the caller's bound |
//! | `journey` | a request from stage to stage, past those that do not answer |
//! | `patience` | how long a node is waited for until who holds the data begins with the rest itself |
//! | `answers` | how long it is waited for at all: as long as it answers |
//! | `unpacked` | what comes from other nodes, decoded: where it holds up nobody, and no more at once than there is room for |
//! | `serve` | what this node does for others: make a stage ready, run it |
//! | `inside` | the other way to split a model: inside its layers, by memory |
//!
//! The node that has the model plans. Others fetch its file by digest, once, and cut their part out of it themselves, so that a
//! cut can move without a byte of weights. A request carries where its stages run, and who may stand in: the node that holds
//! the last activations sends them to the next in line when one dies, is too slow, or gives what does not fit. Where the node that
//! plans could do the rest itself it begins with that as soon as the others are late, and takes what is there first.

mod answers;
mod encodings;
mod inside;
mod journey;
mod order;
mod orders;
mod patience;
mod pilot;
mod plan;
mod policy;
mod predict;
mod problem;
mod profiles;
mod rounds;
mod running;
mod serve;
mod stages;
mod unpacked;
mod way;
mod wire;

pub(in crate::drive) use encodings::measured;
pub use inside::{InsideLayer, InsideNode, InsideOrder, InsidePlan};
pub use order::SplitOrder;
pub(in crate::drive) use orders::forget_order;
pub use plan::SplitPlan;
pub use policy::CutBy;
pub(crate) use profiles::tell as profile;
pub use profiles::{NodeProfile, WholeOnGpu};
pub(crate) use serve::{prepare, run};
pub(in crate::drive) use unpacked::{Unpacked, unpack_apart};
pub use wire::Leg;

use crate::drive::links::LinkMeasure;
use crate::node::{Inner, Node};
use crate::runtime::Runtime;
use crate::services::blocking;
use answers::Answers;
use inside::Turns;
use karman_engine::capability::nn::Tensors;
use karman_types::{Backoff, Digest, TaskError};
use orders::{Order, Orders};
use parking_lot::Mutex;
use patience::Words;
use pilot::Pilot;
use profiles::Times;
use running::Running;
use serde::{Deserialize, Serialize};
use stages::Stages;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use unpacked::Room;

/// How long a node that did not answer is asked last.
const ASKED_LAST: Duration = Duration::from_secs(10);

/// What this node knows of models that are run in parts.
pub(crate) struct Split {
    stages: Arc<Stages>,
    /// The models that run in parts now, by name; what tasks load under these names is diverted while this is locked.
    running: Mutex<HashMap<String, Running>>,
    turns: Turns,
    words: Words,
    answers: Answers,
    room: Room,
    /// Whoever times the layers of a model: two at once would time each other's load.
    timing: Arc<Mutex<()>>,
}

impl Split {
    /// For a machine with so many bytes of memory.
    pub(crate) fn new(runtime: &Runtime, memory: u64) -> Self {
        let (home, models) = (runtime.home().clone(), runtime.models().clone());
        Self {
            stages: Arc::new(Stages::new(home, models, memory)),
            running: Mutex::default(),
            turns: Turns::default(),
            words: Words::default(),
            answers: Answers::default(),
            room: Room::default(),
            timing: Arc::default(),
        }
    }

    /// Whether a model is run by several nodes now.
    fn runs(&self, name: &str) -> bool {
        self.running.lock().contains_key(name)
    }

    fn stages(&self) -> &Arc<Stages> {
        &self.stages
    }

    const fn words(&self) -> &Words {
        &self.words
    }

    const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Room for what other nodes send.
    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// Whether this node may lend the file under this name, `model/NAME`: a model of its own, or one that visits.
    pub(super) fn knows_as(&self, name: &str, model: Digest) -> Result<bool, TaskError> {
        self.stages.knows_as(name, model)
    }
}

/// A model that is run in parts.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ModelInParts {
    /// Its name.
    pub model: String,
    /// Which node runs how much of it, in words.
    pub runs: String,
}

/// The results of a model that was run once, and who took part.
#[derive(Debug)]
pub struct RanInParts {
    /// The results.
    pub results: Tensors,
    /// What each node did, in order.
    pub legs: Vec<Leg>,
    /// The back-end, or which node runs which part.
    pub ran_on: String,
}

impl Node {
    /// How long the layers of a model take on the processor of this node, and the whole on its GPU, where it runs there.
    ///
    /// # Errors
    /// `unavailable` when this node has no such model; what its back-end or its GPU says.
    pub async fn profile_model(&self, name: &str) -> Result<NodeProfile, TaskError> {
        let digest = plan::model_of(self, name)?.digest;
        profiles::of_here(self, digest, Times::Kept).await
    }

    /// The same measured now, also where it was before: the node may have been busy then, or hot.
    ///
    /// # Errors
    /// Those of [`Node::profile_model`].
    pub async fn profile_model_again(&self, name: &str) -> Result<NodeProfile, TaskError> {
        let digest = plan::model_of(self, name)?.digest;
        profiles::of_here(self, digest, Times::Again).await
    }

    /// Plans which node runs which part of a model and, where the order says so, runs it like that from then on.
    ///
    /// # Errors
    /// `unavailable` when no plan can run; what the nodes say that cannot be done without.
    pub async fn plan_model(&self, name: &str, order: &SplitOrder) -> Result<SplitPlan, TaskError> {
        // Later, when it is planned again, one of them may be away.
        self.check_in_reach(&order.over).await?;
        let planned = plan::plan(self, name, order).await?;
        let answer = planned.answer(order.apply);
        if order.apply {
            let pilot = Pilot::start(self, planned).await?;
            self.apply(name, Order::Between(order.clone()), Running::Pilot(pilot))
                .await?;
        }
        Ok(answer)
    }

    /// Has a model run so by an order: both or neither, also where the caller that gave the order goes away meanwhile.
    async fn apply(&self, name: &str, order: Order, runs: Running) -> Result<(), TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        let apply = move || {
            node.orders()?.keep(&name, Some(&order))?;
            node.take_into_use(&name, runs, &order)
        };
        blocking(apply).await
    }

    /// Plans once more by an order that was given before, and runs the model like that if the operator has not said otherwise meanwhile.
    async fn plan_again(&self, name: &str, order: &Order) -> Result<(), TaskError> {
        let runs = match order {
            Order::Between(order) => {
                Running::Pilot(Pilot::start(self, plan::plan(self, name, order).await?).await?)
            }
            Order::Inside(order) => Running::Crew(inside::crew(self, name, order).await?),
        };
        self.take_into_use(name, runs, order)
    }

    /// Runs a model in parts from now on, if the order for it still holds.
    fn take_into_use(&self, name: &str, runs: Running, order: &Order) -> Result<(), TaskError> {
        {
            // All under the lock, as where it ends: a concurrent caller finds all of it or nothing.
            let mut running = self.split().running.lock();
            if !self.orders()?.hold(name, Some(order))? {
                return Ok(());
            }
            self.runtime().models().divert(name, Some(Arc::new(runs.clone())));
            running.insert(name.to_owned(), runs);
        }
        // It may have another file since its parts were made ready.
        if let Ok(model) = plan::model_of(self, name) {
            self.replaced(name, model.digest);
        }
        Ok(())
    }

    /// Has the plan of a model that runs in parts go by links that are stated, from now on, instead of those that are measured; those
    /// that are not named are not there. For who knows better: an operator who cuts a link, or an oracle in a study.
    ///
    /// # Errors
    /// `unavailable` when the model does not run in parts, or the plan that follows cannot be made ready; `invalid` for links that
    /// make no sense.
    pub async fn state_links(&self, name: &str, links: &[LinkMeasure]) -> Result<(), TaskError> {
        let running = self.split().running.lock().get(name).cloned();
        let pilot = match running {
            Some(Running::Pilot(pilot)) => pilot,
            Some(Running::Crew(_)) => {
                return Err(TaskError::unavailable(format!(
                    "model `{name}` runs in parts inside its layers, which do not follow links"
                )));
            }
            None => {
                let error = TaskError::unavailable(format!("model `{name}` does not run in parts"));
                return Err(error.with_hint(format!("karman model plan {name} --apply")));
            }
        };
        pilot.state(links).await
    }

    /// Runs a model here alone again.
    ///
    /// # Errors
    /// What the disk refuses.
    pub async fn unsplit_model(&self, name: &str) -> Result<bool, TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        let end = move || {
            node.orders()?.keep(&name, None)?;
            let mut running = node.split().running.lock();
            if !node.orders()?.hold(&name, None)? {
                // It was ordered in parts again meanwhile.
                return Ok(running.contains_key(&name));
            }
            Ok(node.run_alone(&name, &mut running))
        };
        blocking(end).await
    }

    /// Whether the model ran in parts until now.
    fn run_alone(&self, name: &str, running: &mut HashMap<String, Running>) -> bool {
        self.runtime().models().divert(name, None);
        let ended = running.remove(name);
        if let Some(Running::Pilot(pilot)) = &ended {
            self.split().stages.forget(pilot.digest());
        }
        ended.is_some()
    }

    /// This node has this file under that name now. Parts of another one run no longer: the model runs here alone until parts of the
    /// new file are ready, by the same order.
    pub(super) fn replaced(&self, name: &str, by: Digest) {
        {
            let mut running = self.split().running.lock();
            if running.get(name).is_none_or(|runs| runs.digest() == by) {
                return;
            }
            self.run_alone(name, &mut running);
        }
        tokio::spawn(resume(self.downgrade(), vec![name.to_owned()]));
    }

    /// The models of this node that are run in parts, by name.
    pub fn models_in_parts(&self) -> Vec<ModelInParts> {
        let running = self.split().running.lock().clone();
        let words = |(model, runs): (String, Running)| ModelInParts {
            model,
            runs: runs.words(),
        };
        let mut models: Vec<ModelInParts> = running.into_iter().map(words).collect();
        models.sort_by(|one, other| one.model.cmp(&other.model));
        models
    }

    /// Runs a model once: in parts where it is planned so, else here, together with others that wait for it where who asks has the time
    /// (`within`; nothing where it waits as long as it takes).
    ///
    /// # Errors
    /// Inputs that do not fit; what the back-end says; `unavailable` when a part runs nowhere.
    pub async fn run_model(
        &self,
        name: &str,
        inputs: Tensors,
        within: Option<Duration>,
    ) -> Result<RanInParts, TaskError> {
        let running = self.split().running.lock().get(name).cloned();
        if let Some(running) = running {
            let (results, legs) = Box::pin(running.run_in_parts(inputs)).await?;
            return Ok(RanInParts {
                results,
                legs,
                ran_on: running.words(),
            });
        }
        let (model, _) = self.runtime().models().named(name).await?;
        let done = model.ask(inputs, within).await?;
        let leg = Leg {
            compute_us: done.took.as_micros() as u64,
            batch: (done.together > 1).then_some(done.together),
            exit: done.exit,
            ..Leg::new(0, self.runtime().id())
        };
        Ok(RanInParts {
            results: done.outputs,
            legs: vec![leg],
            ran_on: model.runs_on(),
        })
    }

    fn orders(&self) -> Result<Orders, TaskError> {
        Orders::of(self.runtime().home())
    }
}

/// How long a model runs here alone, after a start or with another file, until its helpers are asked again: to ask is to measure links,
/// which takes them from others.
const ASK_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(300),
};

/// After a start: runs models in parts again that ran so before.
pub(crate) async fn resume_all(node: Weak<Inner>) {
    let names = Node::upgrade(&node).map(|node| orders_of(&node).into_keys().collect());
    resume(node, names.unwrap_or_default()).await;
}

fn orders_of(node: &Node) -> HashMap<String, Order> {
    let all = node.orders().and_then(|orders| orders.all());
    all.unwrap_or_else(|error| {
        tracing::warn!(%error, "models run here alone: how they are to run in parts cannot be read");
        HashMap::new()
    })
}

/// Runs these in parts again as they were ordered to. Until their helpers answer they run here alone.
async fn resume(node: Weak<Inner>, mut left: Vec<String>) {
    let mut pauses = 0u32;
    while !left.is_empty() {
        pauses = pauses.saturating_add(1);
        tokio::time::sleep(ASK_AGAIN.whole(pauses)).await;
        let Some(node) = Node::upgrade(&node) else { return };
        let mut waiting = Vec::new();
        for name in left {
            // What the operator said meanwhile counts.
            let Some(order) = orders_of(&node).remove(&name) else {
                continue;
            };
            if node.split().runs(&name) {
                continue;
            }
            if let Err(error) = node.plan_again(&name, &order).await {
                tracing::debug!(model = name, %error, "runs here alone for now");
                waiting.push(name);
            }
        }
        left = waiting;
    }
}
