//! One request outside of any workflow, with bounds of its own: of the measured implementations that meet them all, the best answers.
//!
//! What is asked for is a capability, and then every implementation of it may answer; or a model or plugin by its name, and then the
//! nodes that have it. Requests that ask for the same with the same bounds share a policy: what one of them sees, the next one knows.

use super::choose::{Choice, Chooser, MOST_TRIES};
use super::fit::{Brings, candidates, last};
use super::implementations::{all_known, call, is_below};
use super::policy;
use super::served::Served;
use crate::drive::models::{Inferred, stopped};
use crate::drive::tasks::Inner;
use crate::node::Node;
use karman_engine::capability::nn::Tensors;
use karman_sched::Why;
use karman_sched::select::{Bounds, Task};
use karman_types::{
    Binding, Digest, ErrorKind, Implementation, NodeId, Slo, TaskError, TaskId, TaskRequest, TaskResponse,
    Tier,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The objectives of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// What the profile of the implementation that answers has to keep.
    pub bounds: Bounds,
    /// When it is over. While no p95 is bounded, who is likely to be later than this is rarely chosen.
    pub within: Duration,
}

/// The implementation that was chosen to answer a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Under which `karman why` tells of it.
    pub request: TaskId,
    /// By which it is spoken of: `digits-m@9c01d2e7`.
    pub name: String,
    /// The node that it is on.
    pub node: (NodeId, Tier),
    /// Why, in words.
    pub why: Why,
}

impl Chosen {
    /// The model or plugin, without its node.
    pub fn model(&self) -> &str {
        self.name.split('@').next().unwrap_or(&self.name)
    }
}

impl Node {
    /// Runs a model by name, or any that has the capability of this name, within what is wanted.
    ///
    /// # Errors
    /// `unavailable` with the field `accuracy`, `cost` or `p95` when nobody that is measured meets that bound, with the field `model`
    /// when nobody is measured, without one when none of those who may answer can be reached; `deadline`; what the model says.
    pub async fn infer_within(
        &self,
        name: &str,
        wanted: Wanted,
        inputs: Tensors,
    ) -> Result<(Inferred, Chosen), TaskError> {
        let asking = Asking::begin(self, name, wanted, Brings::Tensors).await?;
        let (inferred, chosen) = asking
            .answered(|implementation, _, left| {
                let inputs = inputs.clone();
                async move {
                    match &implementation.binding {
                        Binding::Remote { task, .. } => {
                            let at = node_of(self, &implementation.binding);
                            self.infer_at(at, last(task), &inputs, left).await
                        }
                        Binding::Model(name) => self.infer(name, inputs, Some(left)).await,
                        Binding::Endpoint { url, model } => {
                            let endpoints = &self.tasks().inner().flows.endpoints;
                            Ok(Inferred {
                                results: endpoints.infer((url, model), &inputs, left).await?,
                                legs: Vec::new(),
                                ran_on: implementation.binding.to_string(),
                                node: node_of(self, &implementation.binding),
                                why: Cow::Borrowed(""),
                            })
                        }
                        plugin @ Binding::Plugin(_) => {
                            Err(TaskError::unavailable(format!("{plugin} takes no tensors")))
                        }
                    }
                }
            })
            .await?;
        let why = stopped(&inferred.legs, chosen.why.to_string().into());
        Ok((Inferred { why, ..inferred }, chosen))
    }

    /// Calls a task by name, or any that has the capability of this name, within what is wanted. It may run more than once: it is
    /// nothing for effects.
    ///
    /// # Errors
    /// Those of [`Node::infer_within`].
    pub async fn call_within(
        &self,
        name: &str,
        wanted: Wanted,
        request: TaskRequest,
    ) -> Result<(TaskResponse, Chosen), TaskError> {
        let asking = Asking::begin(self, name, wanted, Brings::Body).await?;
        let tasks = self.tasks().inner();
        asking
            .answered(|implementation, run, left| {
                let request = request.clone();
                async move { call(tasks, &implementation.binding, request, run, Some(left)).await }
            })
            .await
    }

    /// Whether a name is that of a capability for which somebody was measured.
    ///
    /// # Errors
    /// What the disk refuses.
    pub async fn is_measured(&self, capability: &str) -> Result<bool, TaskError> {
        let known = all_known(self.tasks().inner()).await?;
        Ok(known.keys().any(|known| is_below(known, capability)))
    }
}

/// A request that is being answered. What became of it is reported when this is dropped, also when its caller gave it up.
struct Asking<'a> {
    node: &'a Node,
    run: TaskId,
    chooser: Arc<Chooser>,
    over: Instant,
    wanted: Wanted,
    served: Served,
}

impl<'a> Asking<'a> {
    async fn begin(node: &'a Node, name: &str, wanted: Wanted, brings: Brings) -> Result<Self, TaskError> {
        let tasks = node.tasks().inner();
        let chooser = chooser(tasks, name, wanted, brings).await?;
        let run = node.runtime().context(None).task;
        let served = Served::request(tasks, run);
        served.chosen_by(&chooser);
        Ok(Self {
            node,
            run,
            chooser,
            over: Instant::now() + wanted.within,
            wanted,
            served,
        })
    }

    /// The answer of the chosen implementation; of another one where that cannot be reached.
    async fn answered<T, F>(
        &self,
        ask: impl Fn(Implementation, TaskId, Duration) -> F,
    ) -> Result<(T, Chosen), TaskError>
    where
        F: Future<Output = Result<T, TaskError>>,
    {
        for tried in 1.. {
            let Choice {
                candidate,
                implementation,
                why,
            } = self.choose().await?;
            let left = self.left();
            let calling = self.served.begins(&self.chooser, (0, candidate), &implementation);
            let asked = timeout(left, ask(implementation.clone(), self.run, left)).await;
            let answer = asked.unwrap_or_else(|_| Err(self.late(&implementation)));
            calling.ended(answer.as_ref().err().map(|error| error.kind));
            match answer {
                Ok(answer) => return Ok((answer, self.chosen(&implementation, why))),
                Err(error) if error.kind == ErrorKind::Unavailable && tried < MOST_TRIES => {}
                Err(error) => return Err(error),
            }
        }
        Err(TaskError::internal("no attempt was made"))
    }

    /// Who is to answer, while there is time for it.
    async fn choose(&self) -> Result<Choice, TaskError> {
        let (tasks, of) = (self.node.tasks().inner(), (self.run, 0));
        let choosing = self.chooser.choose(tasks, of, Some(self.left()));
        match timeout(self.left(), choosing).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(choice)) if !self.left().is_zero() => Ok(choice),
            _ => {
                let within = self.wanted.within;
                let late = format!("who answers was not chosen within {within:.0?}, and nobody was asked");
                Err(TaskError::deadline(late).with_hint(
                    "allow more, or name a faster policy as `select` under `[policies]` in node.toml",
                ))
            }
        }
    }

    fn left(&self) -> Duration {
        self.over.saturating_duration_since(Instant::now())
    }

    fn chosen(&self, implementation: &Implementation, why: Why) -> Chosen {
        Chosen {
            request: self.run,
            name: implementation.name.clone(),
            node: node_of(self.node, &implementation.binding),
            why,
        }
    }

    fn late(&self, implementation: &Implementation) -> TaskError {
        let (within, name) = (self.wanted.within, &implementation.name);
        TaskError::deadline(format!("`{name}` did not answer within {within:.0?}"))
            .with_hint(format!("`karman why {}` says why it was chosen", self.run))
    }
}

/// The policy that requests for the same with the same bounds share.
async fn chooser(
    tasks: &Inner,
    name: &str,
    wanted: Wanted,
    brings: Brings,
) -> Result<Arc<Chooser>, TaskError> {
    wanted
        .bounds
        .check()
        .map_err(|error| TaskError::invalid(error.to_string()))?;
    let limit = wanted.bounds.p95.unwrap_or_else(|| rounded(wanted.within));
    let of = Digest::of(format!("{name}\n{:?}\n{limit:?}\n{brings:?}", wanted.bounds).as_bytes());
    let measured = tasks.flows.measured.load(Ordering::Relaxed);
    let policy = policy::named(tasks, None)?;
    let choosers = &tasks.flows.choosers;
    if let Some(known) = choosers.get(&of, (measured, policy.plugin())) {
        return Ok(known);
    }
    let mut before = tasks.decisions.before().await;
    if let Some(known) = choosers.get(&of, (measured, policy.plugin())) {
        return Ok(known);
    }
    let one = Task {
        name: name.to_owned(),
        visits: 1.0,
        within: 1.0,
        candidates: candidates(tasks, name, &wanted.bounds, brings).await?,
    };
    let slo = Slo {
        latency_p95: Some(limit),
        ..Slo::over(Slo::USUAL_REQUESTS)
    };
    let places = BTreeMap::from([(0, 0)]);
    let chooser = Chooser::over(tasks, (name, vec![one], slo), places, (measured, &policy))?;
    let chooser = chooser.resumed(of, before.get(&of).cloned()).await?;
    before.remove(&of);
    Ok(choosers.keep(of, chooser))
}

/// A time that callers give as what is left to them differs from request to request; to within an eighth, it is the same.
fn rounded(within: Duration) -> Duration {
    let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
    let kept = u64::BITS - 4;
    let rest = kept.saturating_sub(micros.leading_zeros());
    Duration::from_micros((micros >> rest << rest).max(1))
}

fn node_of(node: &Node, binding: &Binding) -> (NodeId, Tier) {
    let here = (node.runtime().id(), node.tier());
    match binding {
        Binding::Remote { node: there, .. } => {
            let peers = node.mesh().map(|mesh| mesh.peers()).unwrap_or_default();
            let offers = peers.iter().filter_map(|peer| peer.offer.as_ref());
            let mut tiers = offers
                .filter(|(offer, _)| offer.node == *there)
                .map(|(offer, _)| offer.tier);
            (*there, tiers.next().unwrap_or(here.1))
        }
        _ => here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_about_the_same_share_a_policy() {
        let rounded = |ms: u64| super::rounded(Duration::from_millis(ms));
        assert_eq!(rounded(59_990), rounded(59_000));
        assert_ne!(rounded(200), rounded(100));
        for ms in [1, 7, 50, 200, 300_000] {
            let (kept, given) = (rounded(ms), Duration::from_millis(ms));
            assert!(
                kept <= given && kept >= given.mul_f64(0.875),
                "{kept:?} of {given:?}"
            );
        }
        assert!(super::rounded(Duration::ZERO) > Duration::ZERO);
        assert!(super::rounded(Duration::MAX) > Duration::from_secs(1 << 40));
    }
}
