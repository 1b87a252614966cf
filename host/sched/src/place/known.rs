use super::ahead::{Ahead, Step};
use super::{Component, Fleet, Input, Job, Node, PlaceError, Resident, Slot, State, Task};
use karman_types::NodeId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a step takes as long as it was measured nowhere.
const UNMEASURED: Duration = Duration::from_secs(1);
/// How far a node is whose round trip was never measured.
const FAR: Duration = Duration::from_secs(1);
/// The least that counts as a time: nothing divides by zero.
const LEAST: Duration = Duration::from_micros(1);
/// Cores of a node that are told apart.
const MOST_SLOTS: u32 = 64;

/// A node as the one that places a step knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its id.
    pub node: NodeId,
    /// The last round trip to it, nothing while none was measured; zero of the node that places.
    pub round_trip: Option<Duration>,
    /// The cores that it has.
    pub cores: u32,
    /// Calls under way there, as far as is known.
    pub busy: u32,
    /// How long ago it said what it offers, and how busy it is.
    pub heard: Option<Duration>,
    /// What of [`Ahead::needs`] it runs, and holds the model of.
    pub holds: Vec<bool>,
    /// What each of these took there lately until it was answered, without the round trip.
    pub takes: Vec<Option<Duration>>,
    /// How long each was waited for there that was given up, where none was answered since: it takes no less.
    pub outlasted: Vec<Option<Duration>>,
}

/// What a step is placed by. Times are seconds from the decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Situation {
    /// The step, as its workflow calls it.
    pub step: String,
    /// The step as the first task, which is ready, and those that come after it.
    pub job: Job,
    /// The nodes. The first is the one that places: inputs lie there.
    pub fleet: Fleet,
    /// How long ago each node was last heard of.
    pub heard: Vec<Option<Duration>>,
}

impl Situation {
    /// What the policies are shown of what a node knows. The first of the nodes is this one, whether it runs the step or not.
    ///
    /// - A step runs only where what it takes is held: a node that does not hold it has no room for it.
    /// - A node is as fast as it did the step, against the fastest that was measured; where it was not measured with the step, with what
    ///   comes after it; where it was not measured at all, as fast as the fastest, so that it is tried. How long the step was waited for in
    ///   vain is no measurement: it only says how fast a node is at most.
    /// - Of a link the round trip is known. The input is there after that time, so that an answer is expected when it would be back;
    ///   outputs, of which nobody knows yet how large they are, are taken to be as large as the input.
    /// - Calls under way on a node are taken to be like the step, and to have just begun.
    pub fn of(step: &str, ahead: &Ahead, (input, within): (u64, Option<Duration>), nodes: &[Known]) -> Self {
        let fastest: Vec<Option<Duration>> = (0..ahead.needs.len())
            .map(|need| nodes.iter().filter_map(|node| takes(node, need)).min())
            .collect();
        let works: Vec<Duration> = fastest
            .iter()
            .map(|fastest| fastest.unwrap_or(UNMEASURED))
            .collect();
        let first = ahead.steps.first().map_or(0, |step| step.need);
        let work = works.get(first).copied().unwrap_or(UNMEASURED);
        let input = input.max(1);
        let node = |known: &Known| node(known, (first, work), &fastest, input);
        let task = |step: &Step| task(step, &works, input);
        // What a component costs to be held or started does not come into it: the times that were measured have it.
        let held = Component {
            bytes: 1,
            fetch: 0,
            warm: 0.0,
            scale_out: 0.0,
            cold: 0.0,
        };
        Self {
            step: step.into(),
            job: Job {
                id: 0,
                arrived: 0.0,
                deadline: within.map(|within| within.as_secs_f64()),
                origin: 0,
                tasks: ahead.steps.iter().map(task).collect(),
            },
            fleet: Fleet {
                nodes: nodes.iter().map(node).collect(),
                components: vec![held; ahead.needs.len()],
                latency: [0.0, 0.0],
            },
            heard: nodes.iter().map(|node| node.heard).collect(),
        }
    }

    /// Checks what the policies count on: what comes from a log may be anything.
    pub(super) fn check(&self) -> Result<(), PlaceError> {
        self.fleet.check()?;
        self.job
            .check(self.fleet.nodes.len(), self.fleet.components.len())
    }
}

/// What a node takes for what is needed, where it holds that and it was measured.
fn takes(node: &Known, need: usize) -> Option<Duration> {
    let holds = node.holds.get(need).copied().unwrap_or_default();
    let takes = node.takes.get(need).copied().flatten();
    takes.filter(|_| holds).map(|takes| takes.max(LEAST))
}

fn node(known: &Known, (first, work): (usize, Duration), fastest: &[Option<Duration>], input: u64) -> Node {
    let speed = speed(known, (first, work), fastest);
    let way = known.round_trip.unwrap_or(FAR).max(LEAST);
    let held = known.holds.iter().enumerate().filter(|(_, holds)| **holds);
    Node {
        slots: slots(known, work.as_secs_f64() / speed),
        resident: held
            .map(|(component, _)| Resident {
                component,
                used_at: 0.0,
            })
            .collect(),
        ..Node::new(known.node, 0, speed, input as f64 / way.as_secs_f64(), 0, 0)
    }
}

/// How fast a node is, where the fastest that was measured is 1.
fn speed(known: &Known, (first, work): (usize, Duration), fastest: &[Option<Duration>]) -> f64 {
    let hoped = hoped_speed(known, first, fastest);
    match known.outlasted.get(first).copied().flatten() {
        Some(least) => hoped.min(work.as_secs_f64() / least.max(LEAST).as_secs_f64()),
        None => hoped,
    }
}

/// The same by what was measured of it.
fn hoped_speed(known: &Known, first: usize, fastest: &[Option<Duration>]) -> f64 {
    let ratio = |need: usize| {
        let fastest = fastest.get(need).copied().flatten()?;
        Some(fastest.as_secs_f64() / takes(known, need)?.as_secs_f64())
    };
    if let Some(of_the_step) = ratio(first) {
        return of_the_step;
    }
    let (mut count, mut sum) = (0.0, 0.0);
    for ratio in (0..fastest.len()).filter_map(ratio) {
        (count, sum) = (count + 1.0, sum + f64::ln(ratio));
    }
    f64::exp(sum / f64::max(count, 1.0))
}

/// Its cores, with the calls that are ahead on each.
fn slots(known: &Known, takes: f64) -> Vec<Slot> {
    let count = known.cores.clamp(1, MOST_SLOTS);
    let busy = match known.busy < known.cores {
        // A core is free, also where they are too many to be told apart.
        true => known.busy.min(count - 1),
        false => known.busy,
    };
    let slot = |place: u32| {
        let ahead = busy / count + u32::from(place < busy % count);
        Slot {
            free_at: f64::from(ahead) * takes,
            warm: None,
        }
    };
    (0..count).map(slot).collect()
}

fn task(step: &Step, works: &[Duration], bytes: u64) -> Task {
    let input = |from| Input { from, bytes };
    let inputs = match step.from.is_empty() {
        true => vec![input(None)],
        false => step.from.iter().map(|from| input(Some(*from))).collect(),
    };
    Task {
        component: step.need,
        work: works[step.need].as_secs_f64(),
        inputs,
        state: State::Waiting,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::place::BuiltIn;
    use karman_types::Workflow;
    use proptest::prelude::*;

    pub(in crate::place) const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// An idle node of four cores that holds all, this far away.
    pub(in crate::place) fn known(name: &str, way: u64, needs: usize) -> Known {
        Known {
            node: NodeId::of_key(name.as_bytes()),
            round_trip: Some(millis(way)),
            cores: 4,
            busy: 0,
            heard: Some(millis(300)),
            holds: vec![true; needs],
            takes: vec![None; needs],
            outlasted: vec![None; needs],
        }
    }

    /// A step, and another one after it.
    pub(in crate::place) fn ahead() -> Ahead {
        let text = "name = 'f'\n[task.one]\n[task.two]\nafter = ['one']";
        Ahead::of(&Workflow::from_toml(text).unwrap(), 0)
    }

    fn situation(nodes: &[Known]) -> Situation {
        let situation = Situation::of("one", &ahead(), (1000, None), nodes);
        assert_eq!(situation.check(), Ok(()));
        situation
    }

    /// Where the policy has the step go, and when it is expected to be done.
    fn goes(policy: BuiltIn, nodes: &[Known]) -> (usize, Duration) {
        let Situation { job, fleet, .. } = situation(nodes);
        let chosen = policy.policy().place(0.0, &[job], &fleet)[0].chosen.unwrap();
        let finish = Duration::from_secs_f64(chosen.finish);
        (chosen.node, millis(finish.as_secs_f64().mul_add(1e3, 0.5) as u64))
    }

    #[test]
    fn a_step_goes_only_where_what_it_takes_is_held() {
        let mut nodes = [known("here", 0, 2), known("near", 1, 2), known("far", 200, 2)];
        for policy in BuiltIn::ALL {
            for node in &mut nodes {
                node.holds[0] = true;
            }
            assert_eq!(goes(policy, &nodes).0, 0, "{policy:?}");
            nodes[0].holds[0] = false;
            assert_eq!(goes(policy, &nodes).0, 1, "{policy:?}");
            nodes[1].holds[0] = false;
            assert_eq!(goes(policy, &nodes).0, 2, "{policy:?}");
            nodes[2].holds[0] = false;
            let Situation { job, fleet, .. } = situation(&nodes);
            let placed = policy.policy().place(0.0, &[job], &fleet);
            assert!(
                placed.iter().all(|decision| decision.chosen.is_none()),
                "{policy:?}"
            );
        }
    }

    #[test]
    fn round_trips_and_times_that_were_measured_add_up() {
        let mut nodes = [known("here", 0, 2), known("fast", 50, 2), known("slow", 10, 2)];
        nodes[0].holds[0] = false;
        nodes[1].takes[0] = Some(millis(100));
        nodes[2].takes[0] = Some(millis(400));
        for policy in [BuiltIn::Fate, BuiltIn::Heft] {
            assert_eq!(goes(policy, &nodes), (1, millis(150)), "{policy:?}");
        }
        // One that was not measured is tried where it could be as fast.
        nodes[2].takes[0] = None;
        assert_eq!(goes(BuiltIn::Heft, &nodes), (2, millis(110)));
        // What it took for the step after this says how fast it is.
        nodes[1].takes[1] = Some(millis(10));
        nodes[2].takes[1] = Some(millis(40));
        assert_eq!(goes(BuiltIn::Heft, &nodes), (1, millis(150)));
    }

    #[test]
    fn a_wait_in_vain_is_no_measurement() {
        let mut nodes = [known("here", 0, 2), known("fast", 50, 2), known("new", 10, 2)];
        nodes[0].holds[0] = false;
        nodes[1].takes[0] = Some(millis(100));
        // Given up after 10 ms it may be as fast as the other, but no faster.
        nodes[2].outlasted[0] = Some(millis(10));
        assert_eq!(goes(BuiltIn::Heft, &nodes), (2, millis(110)));
        nodes[2].outlasted[0] = Some(millis(400));
        assert_eq!(goes(BuiltIn::Heft, &nodes), (1, millis(150)));
        // Where nobody was measured, a step takes a second, or as long as it was waited for.
        nodes[1].takes[0] = None;
        nodes[2].outlasted[0] = Some(millis(10));
        assert_eq!(goes(BuiltIn::Heft, &nodes), (2, millis(1010)));
        nodes[2].outlasted[0] = Some(millis(5000));
        assert_eq!(goes(BuiltIn::Heft, &nodes), (1, millis(1050)));
    }

    #[test]
    fn calls_under_way_are_waited_for() {
        let mut nodes = [known("here", 0, 2), known("busy", 10, 2), known("idle", 90, 2)];
        nodes[0].holds[0] = false;
        nodes[1].takes[0] = Some(millis(100));
        nodes[1].busy = 3;
        assert_eq!(goes(BuiltIn::Heft, &nodes), (1, millis(110)));
        nodes[1].busy = 5;
        let fleet = situation(&nodes).fleet;
        let free: Vec<f64> = fleet.nodes[1].slots.iter().map(|slot| slot.free_at).collect();
        assert_eq!(free, [0.2, 0.1, 0.1, 0.1]);
        nodes[1].busy = 4;
        for policy in BuiltIn::ALL {
            assert_eq!(goes(policy, &nodes), (2, millis(190)), "{policy:?}");
        }
        // Of a hundred cores one is free.
        (nodes[1].cores, nodes[1].busy) = (100, 99);
        assert_eq!(goes(BuiltIn::Heft, &nodes), (1, millis(110)));
    }

    proptest! {
        #[test]
        fn whatever_is_known_can_be_placed_by(
            nodes in prop::collection::vec(
                (
                    prop::option::of(0u64..10_000_000),
                    any::<u32>(),
                    any::<u32>(),
                    any::<[bool; 2]>(),
                    [prop::option::of(0u64..u64::MAX / 2), prop::option::of(0u64..100_000)],
                    prop::option::of(0u64..u64::MAX / 2),
                ),
                1..9,
            ),
            input in any::<u64>(),
        ) {
            let nodes: Vec<Known> = nodes
                .into_iter()
                .enumerate()
                .map(|(place, (way, cores, busy, holds, takes, outlasted))| Known {
                    round_trip: way.map(Duration::from_micros),
                    cores,
                    busy,
                    holds: holds.to_vec(),
                    takes: takes.map(|takes| takes.map(Duration::from_micros)).to_vec(),
                    outlasted: vec![outlasted.map(Duration::from_micros), None],
                    ..known(&place.to_string(), 0, 2)
                })
                .collect();
            let situation = Situation::of("one", &ahead(), (input, None), &nodes);
            prop_assert_eq!(situation.check(), Ok(()));
            for policy in BuiltIn::ALL {
                let jobs = [situation.job.clone()];
                for decision in policy.policy().place(0.0, &jobs, &situation.fleet) {
                    prop_assert_eq!(decision.task, 0);
                    if let Some(chosen) = decision.chosen {
                        prop_assert!(nodes[chosen.node].holds[0]);
                    }
                }
            }
        }
    }
}
