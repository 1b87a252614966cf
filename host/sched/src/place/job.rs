use super::PlaceError;
use serde::{Deserialize, Serialize};

/// One run of a workflow: tasks that wait for each other, and how far they are.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Job {
    /// To name it.
    pub id: u64,
    /// When it came.
    pub arrived: f64,
    /// When it must have ended.
    pub deadline: Option<f64>,
    /// The node where its input lies, whose cluster is its home.
    pub origin: usize,
    /// Its tasks, each after those whose output it takes.
    pub tasks: Vec<Task>,
}

/// One task of a job.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Task {
    /// What runs, by its place in [`super::Fleet::components`].
    pub component: usize,
    /// Seconds on a node of speed 1.
    pub work: f64,
    /// What it takes in.
    pub inputs: Vec<Input>,
    /// How far it is.
    pub state: State,
}

/// One input of a task.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Input {
    /// The task whose output it is; nothing for the input of the job.
    pub from: Option<usize>,
    /// How much of it.
    pub bytes: u64,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub enum State {
    /// It has no node.
    #[default]
    Waiting,
    /// It has a node, and has not begun there: its input is on the way, or it waits for a slot.
    Placed {
        /// The node.
        node: usize,
        /// When it is expected to be done.
        finish: f64,
    },
    /// It runs.
    Running {
        /// The node.
        node: usize,
        /// When it is expected to be done.
        finish: f64,
    },
    /// Its output lies at this node.
    Done {
        /// The node.
        node: usize,
        /// Since then.
        at: f64,
    },
}

impl State {
    /// The node, and when the output is or is expected there.
    pub const fn output(self) -> Option<(usize, f64)> {
        match self {
            Self::Waiting => None,
            Self::Placed { node, finish } | Self::Running { node, finish } => Some((node, finish)),
            Self::Done { node, at } => Some((node, at)),
        }
    }

    /// Whether it has begun.
    pub const fn has_begun(self) -> bool {
        matches!(self, Self::Running { .. } | Self::Done { .. })
    }
}

impl Job {
    /// Checks what the policies count on, for a fleet of this many nodes and components.
    ///
    /// # Errors
    /// [`PlaceError`] names the first task or number that does not fit.
    pub fn check(&self, nodes: usize, components: usize) -> Result<(), PlaceError> {
        let number = |field: String, value: f64, fits: bool| match fits {
            true => Ok(()),
            false => Err(PlaceError::Number { field, value }),
        };
        let job = self.id;
        number(
            format!("jobs[{job}].arrived"),
            self.arrived,
            self.arrived.is_finite(),
        )?;
        if let Some(deadline) = self.deadline {
            number(format!("jobs[{job}].deadline"), deadline, !deadline.is_nan())?;
        }
        let placed = self.tasks.iter().filter_map(|task| task.state.output());
        if let Some((node, _)) = placed
            .chain([(self.origin, 0.0)])
            .find(|(node, _)| *node >= nodes)
        {
            return Err(PlaceError::NoNode { node });
        }
        for (place, task) in self.tasks.iter().enumerate() {
            let fits = task.work.is_finite() && task.work >= 0.0;
            number(format!("jobs[{job}].tasks[{place}].work"), task.work, fits)?;
            if task.component >= components {
                let component = task.component;
                return Err(PlaceError::NoComponent { component });
            }
            if task
                .inputs
                .iter()
                .any(|input| input.from.is_some_and(|from| from >= place))
            {
                return Err(PlaceError::Order { job, task: place });
            }
        }
        Ok(())
    }

    /// Whether everything that a task waits for is done.
    pub fn is_ready(&self, task: usize) -> bool {
        let done = |from: usize| matches!(self.tasks[from].state, State::Done { .. });
        self.tasks[task]
            .inputs
            .iter()
            .all(|input| input.from.is_none_or(done))
    }

    /// For each task the tasks that take its output, with how many bytes.
    pub fn takers(&self) -> Vec<Vec<(usize, u64)>> {
        let mut takers = vec![Vec::new(); self.tasks.len()];
        for (place, task) in self.tasks.iter().enumerate() {
            for input in &task.inputs {
                if let Some(from) = input.from {
                    takers[from].push((place, input.bytes));
                }
            }
        }
        takers
    }

    /// For each task the longest way from its start to the end of the job, in seconds: at this mean speed and rate, every edge
    /// paid (the upward rank of HEFT, Topcuoglu, Hariri and Wu 2002).
    pub fn upward_ranks(&self, speed: f64, rate: f64) -> Vec<f64> {
        let mut ranks: Vec<f64> = vec![0.0; self.tasks.len()];
        for place in (0..self.tasks.len()).rev() {
            ranks[place] += self.tasks[place].work / speed;
            for input in &self.tasks[place].inputs {
                if let Some(from) = input.from {
                    ranks[from] = ranks[from].max(ranks[place] + input.bytes as f64 / rate);
                }
            }
        }
        ranks
    }

    /// The work of the tasks that have not begun, in seconds at speed 1.
    pub fn work_left(&self) -> f64 {
        let left = self.tasks.iter().filter(|task| !task.state.has_begun());
        left.map(|task| task.work).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_longest_way_to_the_end() {
        let task = |work, inputs: &[(usize, u64)]| Task {
            component: 0,
            work,
            inputs: inputs
                .iter()
                .map(|&(from, bytes)| Input {
                    from: Some(from),
                    bytes,
                })
                .collect(),
            state: State::Waiting,
        };
        let mut job = Job {
            id: 1,
            arrived: 0.0,
            deadline: None,
            origin: 0,
            tasks: vec![
                task(2.0, &[]),
                task(4.0, &[(0, 10)]),
                task(6.0, &[(0, 40)]),
                task(2.0, &[(1, 0), (2, 0)]),
            ],
        };
        assert_eq!(job.check(1, 1), Ok(()));
        assert_eq!(
            job.upward_ranks(2.0, 10.0),
            [1.0 + 4.0 + 3.0 + 1.0, 3.0, 4.0, 1.0]
        );
        assert!(job.is_ready(0) && !job.is_ready(1));
        job.tasks[1].inputs[0].from = Some(1);
        assert_eq!(job.check(1, 1), Err(PlaceError::Order { job: 1, task: 1 }));
    }
}
