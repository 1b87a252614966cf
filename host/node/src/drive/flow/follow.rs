//! Following a run: what has happened to it, and what happens from then on, one after the other.
//!
//! What is told stands in the progress that was written down, so that it has the same number for everybody and for good. Nothing waits
//! for a follower: it reads on when it can, and what it has not read stays where it is.

use super::looks::Look;
use super::progress::Progress;
use super::{FlowStatus, is_one};
use crate::drive::status::{TaskState, TaskStatus};
use crate::drive::tasks::{Inner, Tasks};
use crate::node::Node;
use karman_sched::flow::{Change, What};
use karman_types::{NodeId, TaskError, TaskId, Workflow};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before a run is looked at again where nothing here tells of it: it waits, or another node coordinates it. Of these the
/// keepers are asked once for all who follow it here.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Changes that are made ready at once.
const AT_ONCE: usize = 256;
/// The name of the end, after which nothing comes.
const END: &str = "end";

/// How far somebody knows a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Known {
    /// This many changes, from the first.
    Changes(usize),
    /// Its end.
    End,
}

impl Known {
    /// The id of the last event that somebody knows.
    pub(crate) fn read(id: &str) -> Option<Self> {
        match id {
            END => Some(Self::End),
            number => number.parse().ok().map(Self::Changes),
        }
    }
}

/// Something that has happened to a run, as it is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlowEvent {
    /// After which to go on: the number of the change, or `end`.
    pub(crate) id: String,
    /// What, in one word.
    pub(crate) name: &'static str,
    /// More of it.
    pub(crate) data: Value,
}

/// Somebody who follows a run.
pub(crate) struct Follower {
    node: Node,
    run: TaskId,
    /// How many changes were made ready.
    known: usize,
    ready: VecDeque<FlowEvent>,
    is_over: bool,
    /// Shared with all who follow it here.
    look: Arc<Look<Seen>>,
}

/// How far a run is.
pub(super) struct Seen {
    status: TaskStatus,
    progress: Option<Progress>,
}

/// What there is to tell.
enum News {
    Changes(Vec<FlowEvent>),
    End(FlowEvent),
}

impl Node {
    /// Follows a run from what is known of it; nothing where that is its end.
    ///
    /// # Errors
    /// Those of [`Tasks::flow`].
    pub(crate) async fn follow(&self, run: TaskId, known: Known) -> Result<Option<Follower>, TaskError> {
        self.tasks().run_status(run).await?;
        Ok(match known {
            Known::End => None,
            Known::Changes(known) => Some(Follower {
                node: self.clone(),
                run,
                known,
                ready: VecDeque::new(),
                is_over: false,
                look: self.tasks().inner().flows.looks.at(run),
            }),
        })
    }
}

impl Follower {
    /// The next event, once there is one; nothing after the end, or an error.
    ///
    /// # Errors
    /// `unavailable` when this node stops, or cannot tell any more how far the run is; it goes on all the same.
    pub(crate) async fn next(&mut self) -> Option<Result<FlowEvent, TaskError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.look().await {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }

    /// Makes ready what there is, or waits until there may be something.
    async fn look(&mut self) -> Result<(), TaskError> {
        let tasks = self.node.tasks();
        let (news, pause) = tasks.news(self.run, self.known, &self.look).await?;
        match news {
            News::End(event) => {
                self.ready.push_back(event);
                self.is_over = true;
            }
            News::Changes(events) if !events.is_empty() => {
                self.known += events.len();
                self.ready.extend(events);
            }
            News::Changes(_) => tokio::select! {
                () = more(tasks.inner(), self.run, self.known) => {}
                () = end(tasks.inner(), self.run) => {}
                () = sleep(pause) => {}
                () = self.node.stops() => return Err(stopped()),
            },
        }
        Ok(())
    }
}

fn stopped() -> TaskError {
    TaskError::unavailable("this node stops; the run goes on once somebody coordinates it again")
        .with_hint("ask again with the id of the last event in `last-event-id`")
}

/// Waits until this node has written down more of a run than is known. Where it does not coordinate the run, it may yet come to.
async fn more(tasks: &Inner, run: TaskId, known: usize) {
    let is_more = |progress: &Option<Progress>| {
        let progress = progress.as_ref();
        progress.is_some_and(|progress| progress.record.history.count() > known)
    };
    loop {
        let mut taken_up = pin!(tasks.flows.taken_up.notified());
        taken_up.as_mut().enable();
        let live = tasks.flows.get(run);
        if let Some(mut durable) = live.map(|live| live.durable.subscribe()) {
            // It is left off when nobody tells any more.
            let _ = durable.wait_for(is_more).await;
            return;
        }
        taken_up.await;
    }
}

/// Waits until a run of this node has ended.
async fn end(tasks: &Inner, run: TaskId) {
    let waiting = tasks.ended.of(run);
    loop {
        let mut ended = pin!(waiting.end().notified());
        ended.as_mut().enable();
        match tasks.known(run).map(|status| status.state.is_open()) {
            Some(true) => ended.await,
            Some(false) => return,
            None => pending().await,
        }
    }
}

impl Tasks {
    /// The task that a run is.
    ///
    /// # Errors
    /// Those of [`Tasks::flow`].
    pub(super) async fn run_status(&self, run: TaskId) -> Result<TaskStatus, TaskError> {
        let status = self.status(run).await?;
        match is_one(&status.name) {
            true => Ok(status),
            false => Err(TaskError::invalid(format!(
                "{run} is no run of a workflow but of the task `{}`",
                status.name
            ))
            .with_hint("`karman task status` shows it")),
        }
    }

    /// What there is to tell to somebody who knows this many changes; where that is nothing, after which pause there may be more.
    async fn news(
        &self,
        run: TaskId,
        known: usize,
        look: &Look<Seen>,
    ) -> Result<(News, Duration), TaskError> {
        let held = self.inner().known(run);
        if held.as_ref().is_none_or(|status| status.state.is_open())
            && let Some(events) = self.durable_here(run, known)
        {
            return Ok((News::Changes(events), LOOK_AGAIN));
        }
        let (seen, pause) = match held {
            Some(_) => (self.seen(run).await.map(Arc::new), LOOK_AGAIN),
            None => look.see(LOOK_AGAIN, self.seen(run)).await,
        };
        Ok((seen?.news(known)?, pause))
    }

    /// How far a run is, by this node or by the keepers.
    async fn seen(&self, run: TaskId) -> Result<Seen, TaskError> {
        // How far it is comes after whether it has ended: what ended before has all its changes then.
        let status = self.run_status(run).await?;
        if status.state == TaskState::Moved {
            let to = status.nodes.first().map(NodeId::short).unwrap_or_default();
            let moved = TaskError::unavailable(format!("run {run} was handed over to node {to}"));
            return Err(moved.with_hint("ask that node"));
        }
        let progress = self.progress(run).await?;
        Ok(Seen { status, progress })
    }

    /// What there is to tell of a run that is coordinated here, as far as it was begun.
    fn durable_here(&self, run: TaskId, known: usize) -> Option<Vec<FlowEvent>> {
        let live = self.inner().flows.get(run)?;
        let durable = live.durable.borrow();
        durable.as_ref().map(|progress| changes(progress, known))
    }
}

impl Seen {
    /// What it tells to somebody who knows this many changes.
    fn news(&self, known: usize) -> Result<News, TaskError> {
        let events = self.progress.as_ref().map(|progress| changes(progress, known));
        let events = events.unwrap_or_default();
        if !events.is_empty() {
            return Ok(News::Changes(events));
        }
        let status = FlowStatus::of(&self.status, self.progress.clone());
        if !status.state.has_ended() {
            return Ok(News::Changes(events));
        }
        let data = serde_json::to_value(&status).map_err(|error| TaskError::internal(error.to_string()))?;
        Ok(News::End(FlowEvent {
            id: END.into(),
            name: "ended",
            data,
        }))
    }
}

/// The next changes of a run for somebody who knows this many.
fn changes(progress: &Progress, known: usize) -> Vec<FlowEvent> {
    let changes = progress.record.history.after(known).take(AT_ONCE);
    changes
        .map(|(number, change)| told(&progress.workflow, number, change))
        .collect()
}

fn told(workflow: &Workflow, number: usize, Change { after_ms, what }: &Change) -> FlowEvent {
    let (name, task, item, error) = match what {
        What::Begun { task, .. } => ("begun", Some(task), None, None),
        What::Skipped { task } => ("skipped", Some(task), None, None),
        What::Placed { task, item, .. } => ("placed", Some(task), Some(item), None),
        What::Item { task, item } => ("item", Some(task), Some(item), None),
        What::Retried {
            task, item, error, ..
        } => ("retried", Some(task), Some(item), Some(error)),
        What::Failed { task, item, error } => ("failed", Some(task), Some(item), Some(error)),
        What::Done { task } => ("done", Some(task), None, None),
        What::Undoing { task, error } => ("undoing", task.as_ref(), None, Some(error)),
        What::Undone { task, item } => ("undone", Some(task), Some(item), None),
        What::NotUndone { task, item, error } => ("not-undone", Some(task), Some(item), Some(error)),
        What::Brief => ("brief", None, None, None),
    };
    let mut data = json!({ "after-ms": after_ms });
    if let Some(task) = task.and_then(|task| workflow.tasks().get(*task)) {
        data["task"] = task.name.as_str().into();
        if let Some(item) = item.filter(|_| task.each.is_some()) {
            data["item"] = json!(item);
        }
    }
    match what {
        What::Begun { runs, .. } => data["runs"] = json!(runs),
        What::Retried { attempt, .. } => data["attempt"] = json!(attempt),
        What::Placed { node, why, .. } => {
            if let Some(node) = node {
                data["node"] = json!(node);
            }
            data["why"] = json!(why);
        }
        _ => {}
    }
    if let Some(error) = error {
        data["error"] = json!(error);
    }
    FlowEvent {
        id: number.to_string(),
        name,
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_a_number_or_the_end() {
        assert_eq!(Known::read("0"), Some(Known::Changes(0)));
        assert_eq!(Known::read("17"), Some(Known::Changes(17)));
        assert_eq!(Known::read("end"), Some(Known::End));
        for id in ["", "-1", "1.5", "the end"] {
            assert_eq!(Known::read(id), None, "{id}");
        }
    }

    #[test]
    fn a_change_is_told_in_the_words_of_its_workflow() {
        let text = "name = 'f'\n[task.one]\n[task.many]\nafter = ['one']\neach = 'list'";
        let workflow = Workflow::from_toml(text).unwrap();
        let place = |name: &str| {
            workflow
                .tasks()
                .iter()
                .position(|task| task.name == name)
                .unwrap()
        };
        let (one, many) = (place("one"), place("many"));
        let told = |what| {
            let change = Change { after_ms: 5, what };
            let event = told(&workflow, 3, &change);
            assert_eq!(event.id, "3");
            (event.name, event.data)
        };
        let begun = told(What::Begun { task: many, runs: 2 });
        assert_eq!(
            begun,
            ("begun", json!({ "after-ms": 5, "task": "many", "runs": 2 }))
        );
        let item = told(What::Item { task: many, item: 1 });
        assert_eq!(
            item,
            ("item", json!({ "after-ms": 5, "task": "many", "item": 1 }))
        );
        let node = NodeId::of_key(b"a");
        let placed = told(What::Placed {
            task: one,
            item: 0,
            node: Some(node),
            why: "it is near".into(),
        });
        let data = json!({ "after-ms": 5, "task": "one", "node": node, "why": "it is near" });
        assert_eq!(placed, ("placed", data));
        let error = TaskError::failed("broken");
        let retried = What::Retried {
            task: one,
            item: 0,
            attempt: 2,
            error: error.clone(),
        };
        let data = json!({ "after-ms": 5, "task": "one", "attempt": 2, "error": error });
        assert_eq!(told(retried), ("retried", data));
        let undoing = told(What::Undoing {
            task: None,
            error: error.clone(),
        });
        assert_eq!(undoing, ("undoing", json!({ "after-ms": 5, "error": error })));
        assert_eq!(told(What::Brief), ("brief", json!({ "after-ms": 5 })));
    }
}
