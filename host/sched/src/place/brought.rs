use super::draft::Draft;
use super::{Decision, Fate, Fleet, Job, Place, Reason};
use crate::plugin::{ByName, Failed, Failure, Guests, PolicyPlugin, words_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A policy that a plugin brings, with FATE in reserve: where it fails, that decides, and the failure is told ([`Brought::failures`]).
///
/// It is asked [by name](ByName) with the jobs and the fleet. What is expected of a task where it goes is reckoned here, as for every
/// other policy. Studies ask it; nodes place a step at a time ([`super::Placed`]).
#[derive(Debug)]
pub struct Brought {
    policy: ByName,
    reserve: Fate,
    failures: Vec<Failed>,
}

/// Where a plugin has a task go, before anybody has looked whether it can.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    /// The job, by its id.
    pub job: u64,
    /// The task, by its place in the job.
    pub task: usize,
    /// The node, by its place in the fleet.
    pub node: usize,
    /// Why, as the end of a sentence.
    pub because: String,
}

impl Brought {
    /// The policy of a plugin.
    pub fn new(plugin: PolicyPlugin, guests: Arc<dyn Guests>) -> Self {
        let mut policy = ByName::new(plugin.name.clone());
        policy.set_plugin(Some((plugin, guests)));
        Self {
            policy,
            reserve: Fate::default(),
            failures: Vec::new(),
        }
    }

    /// The failures since this was last asked, the oldest first.
    pub fn failures(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failures)
    }
}

impl Place for Brought {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        let since = Duration::try_from_secs_f64(now).unwrap_or_default();
        let asked = self
            .policy
            .ask(since, |plugin, guests| asked((plugin, guests), now, jobs, fleet));
        asked.unwrap_or_else(|failure| {
            self.failures.push(self.policy.failed(failure));
            self.reserve.place(now, jobs, fleet)
        })
    }
}

/// Where a plugin has tasks go, if they can, with what is expected of each.
pub(super) fn asked(
    (plugin, guests): (&PolicyPlugin, &dyn Guests),
    now: f64,
    jobs: &[Job],
    fleet: &Fleet,
) -> Result<Vec<Decision>, Failure> {
    let placements = guests.place(plugin, now, jobs, fleet)?;
    let mut draft = Draft::new(fleet, jobs, now);
    let by_id = |(job, task): (usize, usize)| ((jobs[job].id, task), job);
    let mut waiting: BTreeMap<(u64, usize), usize> = draft.ready().into_iter().map(by_id).collect();
    let mut decisions = Vec::with_capacity(placements.len());
    for placement in placements {
        let Placement { job, task, node, .. } = placement;
        let wrong = |problem: String| Failure::Placement { job, task, problem };
        let place = waiting
            .remove(&(job, task))
            .ok_or_else(|| wrong("does not wait for a node".into()))?;
        if node >= fleet.nodes.len() {
            return Err(wrong(format!("cannot go to node {node}: there is none")));
        }
        let estimate = draft
            .estimate(place, task, node)
            .ok_or_else(|| wrong(format!("cannot run on node {node}")))?;
        draft.book(place, task, node, &estimate);
        decisions.push(Decision {
            job,
            task,
            chosen: Some(estimate.at(node, estimate.finish)),
            runner_up: None,
            reason: Reason::Said(words_of(&placement.because)),
        });
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Component, Mode, Node, State, Task};
    use crate::plugin::testing::{Says, plugin, trap};
    use karman_types::NodeId;

    fn says(said: Result<Vec<Placement>, Failure>) -> (Brought, Arc<Says>) {
        let guests = Says::place(said);
        (Brought::new(plugin(), guests.clone()), guests)
    }

    fn placement(job: u64, task: usize, node: usize) -> Placement {
        Placement {
            job,
            task,
            node,
            because: "so it says\u{202e}".into(),
        }
    }

    /// Two nodes of one slot; the component has no room on a third.
    fn fleet() -> Fleet {
        let node = |name: &[u8], memory| Node::new(NodeId::of_key(name), 0, 1.0, 10e6, memory, 1);
        Fleet {
            nodes: vec![node(b"a", 1 << 30), node(b"b", 1 << 30), node(b"c", 1)],
            components: vec![Component {
                bytes: 1 << 20,
                fetch: 0,
                warm: 0.0,
                scale_out: 0.5,
                cold: 2.0,
            }],
            latency: [0.0, 0.0],
        }
    }

    /// Two tasks that wait, and one that has a node.
    fn jobs() -> Vec<Job> {
        let task = |state| Task {
            component: 0,
            work: 1.0,
            inputs: Vec::new(),
            state,
        };
        let placed = State::Placed { node: 0, finish: 9.0 };
        vec![Job {
            id: 7,
            arrived: 0.0,
            deadline: None,
            origin: 0,
            tasks: vec![task(State::Waiting), task(State::Waiting), task(placed)],
        }]
    }

    #[test]
    fn what_is_expected_of_a_task_is_reckoned_for_the_plugin() {
        let (mut policy, _) = says(Ok(vec![placement(7, 1, 1), placement(7, 0, 1)]));
        let decisions = policy.place(0.0, &jobs(), &fleet());
        let chosen = |n: usize| decisions[n].chosen.unwrap();
        assert_eq!((chosen(0).mode, chosen(0).finish), (Mode::Cold, 3.0));
        // The second takes the slot after the first, and its instance.
        assert_eq!(
            (chosen(1).mode, chosen(1).begin, chosen(1).finish),
            (Mode::Warm, 3.0, 4.0)
        );
        assert_eq!(decisions[0].reason, Reason::Said("so it says".into()));
        assert!(policy.failures().is_empty());
        // Who names nobody lets all wait.
        let (mut policy, _) = says(Ok(Vec::new()));
        assert!(policy.place(0.0, &jobs(), &fleet()).is_empty() && policy.failures().is_empty());
    }

    #[test]
    fn what_cannot_be_the_default_decides() {
        let by_default = Fate::default().place(0.0, &jobs(), &fleet());
        for (placements, problem) in [
            (vec![placement(8, 0, 0)], "does not wait for a node"),
            (vec![placement(7, 2, 0)], "does not wait for a node"),
            (vec![placement(7, 3, 0)], "does not wait for a node"),
            (
                vec![placement(7, 0, 0), placement(7, 0, 1)],
                "does not wait for a node",
            ),
            (vec![placement(7, 0, 3)], "cannot go to node 3: there is none"),
            (vec![placement(7, 0, 2)], "cannot run on node 2"),
        ] {
            let (mut policy, _) = says(Ok(placements));
            assert_eq!(policy.place(0.0, &jobs(), &fleet()), by_default);
            let failed = policy.failures().remove(0).to_string();
            assert!(
                failed.starts_with("policy says 1.0.0 did not decide, the default did: it placed task")
                    && failed.ends_with(problem),
                "{failed}"
            );
        }
    }

    #[test]
    fn one_that_fails_again_and_again_is_left_alone_for_a_while() {
        let (mut policy, guests) = says(Err(trap()));
        for _ in 0..9 {
            policy.place(1.0, &jobs(), &fleet());
        }
        assert_eq!(guests.asked(), 3);
        assert_eq!(policy.failures().len(), 9);
        policy.place(11.5, &jobs(), &fleet());
        assert_eq!(guests.asked(), 4);
    }
}
