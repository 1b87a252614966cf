//! Which edges are taken, what begins, with which input.

use super::settle::kept;
use super::{Machine, Outcome, Phase, Run, RunId, RunState, StepState, What};
use karman_types::{Edge, Side, TaskError, Workflow};
use serde_json::{Map, Value};

impl Machine {
    /// Begins whatever can begin, and ends what is at its end.
    pub(super) fn advance(&mut self) {
        for task in 0..self.workflow.tasks().len() {
            if !matches!(self.record.phase, Phase::Running) {
                break;
            }
            if self.record.steps[task].state == StepState::Waiting {
                self.decide(task);
            }
            if self.record.steps[task].state == StepState::Running {
                self.fill(task);
            }
        }
        match &self.record.phase {
            Phase::Running if self.is_complete() => {
                let output = self.result();
                self.end(Outcome::Done(output));
            }
            Phase::Undoing(_) => self.undo_next(),
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        let ended = |state| matches!(state, StepState::Done | StepState::Skipped);
        self.record.steps.iter().all(|step| ended(step.state))
    }

    /// Begins or skips a task once all edges into it are decided.
    fn decide(&mut self, task: usize) {
        match self.taken(task) {
            None => {}
            Some(Err((from, error))) => self.fail(Some(from), error),
            Some(Ok(edges)) if edges.is_empty() && !self.workflow.edges_into(task).is_empty() => {
                self.change().steps[task].state = StepState::Skipped;
                self.tell(What::Skipped { task });
            }
            Some(Ok(_)) => self.begin(task),
        }
    }

    /// The edges into a task that are taken, as places in the workflow; nothing while one is undecided.
    fn taken(&self, task: usize) -> Option<Result<Vec<usize>, (usize, TaskError)>> {
        let into = self.workflow.edges_into(task);
        let waits = |&&edge: &&usize| {
            let from = self.workflow.edges()[edge].from;
            matches!(
                self.record.steps[from].state,
                StepState::Waiting | StepState::Running
            )
        };
        if into.iter().find(waits).is_some() {
            return None;
        }
        let mut taken = Vec::new();
        for &edge in into {
            let from = self.workflow.edges()[edge].from;
            match self.is_taken(&self.workflow.edges()[edge]) {
                Ok(true) => taken.push(edge),
                Ok(false) => {}
                Err(error) => return Some(Err((from, error))),
            }
        }
        Some(Ok(taken))
    }

    /// Whether an edge is taken, its first task being done or skipped.
    fn is_taken(&self, edge: &Edge) -> Result<bool, TaskError> {
        let Some(output) = self.record.output(&self.workflow, edge.from) else {
            return Ok(false);
        };
        let holds = |edge: &Edge| match &edge.when {
            None => Ok(!edge.default),
            Some(when) => when.holds(&output).map_err(|error| {
                let to = &self.workflow.tasks()[edge.to].name;
                TaskError::invalid(format!("the edge to `{to}`: {error}")).with_field("when")
            }),
        };
        if !edge.default {
            return holds(edge);
        }
        let siblings = self.workflow.edges_from(edge.from).iter();
        let mut others = siblings.map(|&other| &self.workflow.edges()[other]);
        let others = others.try_fold(false, |any, other| {
            Ok::<_, TaskError>(any || (other.when.is_some() && holds(other)?))
        });
        Ok(!others?)
    }

    fn begin(&mut self, task: usize) {
        let runs = match self.items(task) {
            Ok(runs) => runs,
            Err(error) => return self.fail(Some(task), error),
        };
        self.tell(What::Begun { task, runs });
        let run = Run {
            attempt: 0,
            doubtful: false,
            state: RunState::Waiting,
        };
        let step = &mut self.change().steps[task];
        step.runs = vec![run; runs];
        step.state = match runs {
            0 => StepState::Done,
            _ => StepState::Running,
        };
        if runs == 0 {
            self.tell(What::Done { task });
        }
    }

    /// How many runs a task has.
    fn items(&self, task: usize) -> Result<usize, TaskError> {
        let Some(each) = &self.workflow.tasks()[task].each else {
            return Ok(1);
        };
        let wrong = |what: String| Err(TaskError::invalid(what).with_field("each"));
        match each.find(&self.task_input(task)) {
            Some(Value::Array(items)) if items.len() <= Workflow::MAX_ITEMS => Ok(items.len()),
            Some(Value::Array(items)) => wrong(format!(
                "`{each}` has {} items; {} is the most that a task fans out over",
                items.len(),
                Workflow::MAX_ITEMS
            )),
            Some(_) => wrong(format!("`{each}` of its input is no list")),
            None => wrong(format!("its input has no `{each}`")),
        }
    }

    /// Starts runs that wait, as many as may run at once.
    fn fill(&mut self, task: usize) {
        let at_once = self.workflow.tasks()[task].at_once as usize;
        let runs = &self.record.steps[task].runs;
        let busy = |run: &&Run| run.state.is_live() || run.state == RunState::Pausing;
        let free = at_once.saturating_sub(runs.iter().filter(busy).count());
        let waiting = runs
            .iter()
            .enumerate()
            .filter(|(_, run)| run.state == RunState::Waiting);
        let next: Vec<usize> = waiting.map(|(item, _)| item).take(free).collect();
        for item in next {
            let of = RunId {
                task,
                item,
                undo: false,
            };
            if let Err(error) = self.check_input(of) {
                self.failed(of, error.clone());
                return self.fail(Some(task), error);
            }
            self.try_again(of);
        }
    }

    /// Whether what goes into a run keeps the contract of its task.
    fn check_input(&self, of: RunId) -> Result<(), TaskError> {
        let contract = &self.workflow.tasks()[of.task].inputs;
        match contract.is_empty() {
            true => Ok(()),
            false => kept(contract.check_json(Side::Input, &self.run_input(of))),
        }
    }

    /// Starts the next attempt at a run.
    pub(super) fn try_again(&mut self, of: RunId) {
        let run = &mut self.change().steps[of.task].runs[of.item];
        run.attempt += 1;
        run.state = RunState::Running;
        self.start(of);
    }

    /// What goes into a task: the workflow's input, the output before it, or a table of several.
    fn task_input(&self, task: usize) -> Value {
        let Some(Ok(taken)) = self.taken(task) else {
            return Value::Null;
        };
        let from = |edge: &usize| self.workflow.edges()[*edge].from;
        let output = |task| self.record.output(&self.workflow, task).unwrap_or_default();
        match &taken[..] {
            [] => self.record.input.clone(),
            [only] => output(from(only)),
            several => self.by_name(several.iter().map(from)),
        }
    }

    /// What goes into a run.
    pub(super) fn run_input(&self, of: RunId) -> Value {
        let input = self.task_input(of.task);
        match &self.workflow.tasks()[of.task].each {
            None => input,
            Some(each) => {
                let item = each.find(&input).and_then(|list| list.get(of.item));
                item.cloned().unwrap_or_default()
            }
        }
    }

    /// The output of the workflow: of the tasks that ran and after which nothing did.
    fn result(&self) -> Value {
        let goes_on = |task: usize| {
            let mut edges = self.workflow.edges_from(task).iter();
            // One that cannot be decided has failed the run before.
            edges.any(|edge| self.is_taken(&self.workflow.edges()[*edge]).unwrap_or(true))
        };
        let last = |task: &usize| self.record.steps[*task].state == StepState::Done && !goes_on(*task);
        let last: Vec<usize> = (0..self.workflow.tasks().len()).filter(last).collect();
        match last[..] {
            [only] => self.record.output(&self.workflow, only).unwrap_or_default(),
            _ => self.by_name(last.into_iter()),
        }
    }

    fn by_name(&self, tasks: impl Iterator<Item = usize>) -> Value {
        let entry = |task: usize| {
            let output = self.record.output(&self.workflow, task).unwrap_or_default();
            (self.workflow.tasks()[task].name.clone(), output)
        };
        Value::Object(tasks.map(entry).collect::<Map<_, _>>())
    }
}
