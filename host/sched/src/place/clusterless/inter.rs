use super::intra::best_two;
use super::{Offload, home};
use crate::place::draft::Draft;
use crate::place::{Candidate, Decision, Reason};

/// Where functions go that ask for another cluster, as far as that is not looked for.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    offload: Offload,
    next: usize,
    fixed: Vec<usize>,
}

impl Targets {
    pub(super) const fn new(offload: Offload) -> Self {
        Self {
            offload,
            next: 0,
            fixed: Vec::new(),
        }
    }

    /// The clusters that are looked at for a function of this one.
    fn of(&mut self, home: usize, clusters: usize) -> Vec<usize> {
        let others: Vec<usize> = (0..clusters).filter(|cluster| *cluster != home).collect();
        match self.offload {
            _ if others.is_empty() => others,
            Offload::Never => Vec::new(),
            Offload::Best => others,
            Offload::RoundRobin => {
                self.next += 1;
                vec![others[self.next % others.len()]]
            }
            Offload::Fixed { seed } => {
                if self.fixed.len() != clusters {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    self.fixed = (0..clusters).map(|_| rng.usize(..others.len())).collect();
                }
                vec![others[self.fixed[home]]]
            }
        }
    }
}

/// Sends functions to other clusters (algorithm 3): those with the earliest deadline first, each to where it is done first, if that
/// lets the job make its deadline and is earlier than at home; else it stays. Functions ask only while there is a super-master.
pub(super) fn send(
    draft: &mut Draft<'_>,
    targets: &mut Targets,
    asking: &[(usize, usize, Candidate)],
) -> Vec<Decision> {
    let clusters = draft
        .fleet
        .nodes
        .iter()
        .map(|node| node.cluster + 1)
        .max()
        .unwrap_or(0);
    let mut members = vec![Vec::new(); clusters];
    for (place, node) in draft.fleet.nodes.iter().enumerate() {
        members[node.cluster].push(place);
    }
    let mut decisions = Vec::with_capacity(asking.len());
    // They come by the deadlines of their jobs, and in a job from its beginning.
    for &(job, task, local) in asking {
        let looked_at = targets.of(home(draft, job), clusters);
        let found = looked_at.into_iter().filter_map(|cluster| {
            let (node, estimate, second) = best_two(draft, job, task, &members[cluster], |_| true)?;
            Some((cluster, node, estimate, second))
        });
        let best = found.min_by(|a, b| a.2.finish.total_cmp(&b.2.finish));
        let deadline = draft.jobs[job].deadline.unwrap_or(f64::INFINITY);
        let blind = matches!(targets.offload, Offload::RoundRobin | Offload::Fixed { .. });
        let id = draft.jobs[job].id;
        let stays = |runner_up| Decision {
            job: id,
            task,
            chosen: Some(local),
            runner_up,
            reason: Reason::Late {
                by: (local.finish - deadline).max(0.0),
            },
        };
        decisions.push(match best {
            Some((cluster, node, estimate, _))
                if blind
                    || (!is_late(draft, job, task, estimate.finish) && estimate.finish < local.finish) =>
            {
                draft.book(job, task, node, &estimate);
                Decision {
                    job: id,
                    task,
                    chosen: Some(estimate.at(node, estimate.finish)),
                    runner_up: Some(local),
                    reason: Reason::Offloaded {
                        cluster,
                        home: local.finish,
                    },
                }
            }
            Some((_, node, estimate, _)) => stays(Some(estimate.at(node, estimate.finish))),
            None => stays(None),
        });
    }
    decisions
}

/// Whether a job is late if a function of it is done then, however fast the nodes are on which the others run.
fn is_late(draft: &Draft<'_>, job: usize, task: usize, finish: f64) -> bool {
    let (of, speed) = (&draft.jobs[job], draft.fleet.fastest());
    let after = of.upward_ranks(speed, f64::INFINITY)[task] - of.tasks[task].work / speed;
    of.deadline.is_some_and(|deadline| finish + after > deadline)
}
