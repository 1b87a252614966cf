use super::{ClusterLessSettings, home};
use crate::place::draft::{Draft, Estimate, two_best};
use crate::place::{Candidate, Decision, Mode, Reason, State};

/// How dear a function may start.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Cap {
    Warm,
    ScaleOut,
    Cold,
    /// It asks for another cluster.
    Elsewhere,
}

impl Cap {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Warm => Some(Self::ScaleOut),
            Self::ScaleOut => Some(Self::Cold),
            Self::Cold => Some(Self::Elsewhere),
            Self::Elsewhere => None,
        }
    }

    const fn allows(self, mode: Mode) -> bool {
        match mode {
            Mode::Warm => true,
            Mode::ScaleOut => !matches!(self, Self::Warm),
            Mode::Cold => matches!(self, Self::Cold | Self::Elsewhere),
        }
    }
}

/// A plan for a job in its own cluster (algorithm 2).
///
/// It begins with every function on a warm instance, where there is one. While the job would be late, the function that is done
/// last and has a mode left gets the next one; that stays if it makes the job, or at least the function, earlier. After each
/// change all functions are placed anew, each on the worker where it is done first.
pub(super) struct Plan {
    job: usize,
    caps: Vec<Cap>,
    schedule: Schedule,
}

/// Where each function that can be moved goes: node, what is expected there, and the runner-up.
#[derive(Clone)]
struct Schedule {
    places: Vec<Option<(usize, Estimate, Option<Candidate>)>>,
    finishes: Vec<f64>,
    finish: f64,
}

impl Plan {
    pub(super) fn make(draft: &Draft<'_>, job: usize, settings: &ClusterLessSettings, can_ask: bool) -> Self {
        let of = &draft.jobs[job];
        let workers = workers(draft, home(draft, job), settings.workers);
        let caps = vec![Cap::Warm; of.tasks.len()];
        let schedule = Schedule::make(draft, job, &workers, &caps);
        let deadline = of.deadline.unwrap_or(f64::INFINITY);
        if schedule.finish > deadline {
            // Where no mode helps, every function would go through all of them, one by one, to the same end.
            let all = vec![Cap::Cold; caps.len()];
            let earliest = Schedule::make(draft, job, &workers, &all);
            if earliest.finish > deadline {
                let last = if can_ask { Cap::Elsewhere } else { Cap::Cold };
                return Self {
                    job,
                    caps: vec![last; caps.len()],
                    schedule: earliest,
                };
            }
        }
        let mut plan = Self { job, caps, schedule };
        plan.improve(draft, &workers, deadline, settings.rounds, can_ask);
        plan
    }

    /// While the job would be late, lets the function that is done last start more dearly. The cold start that a function cannot avoid
    /// is no mode that was tried in vain: the plan stands as it was made last.
    fn improve(
        &mut self,
        draft: &Draft<'_>,
        workers: &[usize],
        deadline: f64,
        most_rounds: usize,
        can_ask: bool,
    ) {
        let Self {
            job, caps, schedule, ..
        } = self;
        let tasks = &draft.jobs[*job].tasks;
        let mut exhausted: Vec<bool> = tasks.iter().map(|task| task.state != State::Waiting).collect();
        let mut rounds = 0;
        while schedule.finish > deadline && rounds < most_rounds {
            let open = (0..caps.len()).filter(|&task| !exhausted[task]);
            let last = open.max_by(|&a, &b| schedule.finishes[a].total_cmp(&schedule.finishes[b]));
            let Some(bottleneck) = last else { break };
            exhausted[bottleneck] = true;
            let before = caps[bottleneck];
            while let Some(cap) = caps[bottleneck].next() {
                caps[bottleneck] = cap;
                rounds += 1;
                if cap == Cap::Elsewhere {
                    // What the other cluster makes of it shows in the next epoch; here, it stays as it was.
                    if !can_ask {
                        caps[bottleneck] = before;
                    }
                    break;
                }
                let tried = Schedule::make(draft, *job, workers, caps);
                let earlier = tried.finish < schedule.finish
                    || (tried.finish == schedule.finish
                        && tried.finishes[bottleneck] < schedule.finishes[bottleneck]);
                if earlier {
                    *schedule = tried;
                    exhausted[bottleneck] = false;
                    break;
                }
            }
        }
    }

    pub(super) fn book(&self, draft: &mut Draft<'_>) {
        for (task, place) in self.schedule.places.iter().enumerate() {
            if let Some((node, estimate, _)) = place {
                draft.book(self.job, task, *node, estimate);
            }
        }
    }

    /// Functions that ask for another cluster, with what they would get at home.
    pub(super) fn asking(&self, draft: &Draft<'_>) -> impl Iterator<Item = (usize, Candidate)> {
        let ready = ready(draft, self.job);
        ready
            .filter(|task| self.caps[*task] == Cap::Elsewhere)
            .filter_map(|task| {
                let (node, estimate, _) = self.schedule.places[task].as_ref()?;
                Some((task, estimate.at(*node, estimate.finish)))
            })
    }

    /// What becomes of the functions whose input is there; the others will be planned again.
    pub(super) fn decisions(&self, draft: &Draft<'_>) -> Vec<Decision> {
        let of = &draft.jobs[self.job];
        let slack = of.deadline.unwrap_or(f64::INFINITY) - self.schedule.finish;
        let decide = |task: usize| {
            let decision = |chosen, runner_up, reason| Decision {
                job: of.id,
                task,
                chosen,
                runner_up,
                reason,
            };
            let Some((node, estimate, runner_up)) = self.schedule.places[task] else {
                return decision(None, None, Reason::NoRoom);
            };
            let local = estimate.at(node, estimate.finish);
            match self.caps[task] {
                Cap::Elsewhere => decision(None, Some(local), Reason::AsksElsewhere),
                _ if slack >= 0.0 => decision(Some(local), runner_up, Reason::InTime { slack }),
                _ => decision(Some(local), runner_up, Reason::Late { by: -slack }),
            }
        };
        ready(draft, self.job).map(decide).collect()
    }
}

/// The functions of a job that have no worker, and whose input is there.
fn ready(draft: &Draft<'_>, job: usize) -> impl Iterator<Item = usize> {
    let of = &draft.jobs[job];
    let ready = |task: &usize| of.tasks[*task].state == State::Waiting && of.is_ready(*task);
    (0..of.tasks.len()).filter(ready)
}

impl Schedule {
    fn make(draft: &Draft<'_>, job: usize, workers: &[usize], caps: &[Cap]) -> Self {
        let mut draft = draft.clone();
        let tasks = draft.jobs[job].tasks.len();
        let mut schedule = Self {
            places: vec![None; tasks],
            finishes: vec![draft.now; tasks],
            finish: draft.now,
        };
        for (task, cap) in caps.iter().enumerate() {
            if draft.jobs[job].tasks[task].state != State::Waiting {
                let end = draft.output(job, task).map_or(draft.now, |(_, at)| at);
                schedule.finishes[task] = end;
                schedule.finish = schedule.finish.max(end);
                continue;
            }
            let best = best_two(&draft, job, task, workers, |mode| cap.allows(mode));
            let best = best.or_else(|| best_two(&draft, job, task, workers, |_| true));
            // A function that fits nowhere makes the job late for good.
            let Some((node, estimate, runner_up)) = best else {
                schedule.finishes[task] = f64::INFINITY;
                schedule.finish = f64::INFINITY;
                continue;
            };
            draft.book(job, task, node, &estimate);
            schedule.finishes[task] = estimate.finish;
            schedule.finish = schedule.finish.max(estimate.finish);
            schedule.places[task] = Some((node, estimate, runner_up));
        }
        schedule
    }
}

/// The worker and the allowed mode in which a function is done first, with the runner-up among the other workers.
pub(super) fn best_two(
    draft: &Draft<'_>,
    job: usize,
    task: usize,
    workers: &[usize],
    allowed: impl Fn(Mode) -> bool,
) -> Option<(usize, Estimate, Option<Candidate>)> {
    let [best, second] = two_best(workers.iter().filter_map(|&node| {
        let way = draft.estimate_if(job, task, node, &allowed)?;
        Some((way.finish, node, way))
    }));
    let (_, node, estimate) = best?;
    Some((
        node,
        estimate,
        second.map(|(finish, node, way)| way.at(node, finish)),
    ))
}

/// The workers of a cluster; of very many, those that have a free slot first.
pub(super) fn workers(draft: &Draft<'_>, cluster: usize, most: usize) -> Vec<usize> {
    let nodes = draft.fleet.nodes.iter().enumerate();
    let mut workers: Vec<usize> = nodes
        .filter(|(_, node)| node.cluster == cluster)
        .map(|(place, _)| place)
        .collect();
    if workers.len() > most {
        let free_at = |node: usize| {
            let slots = draft.fleet.nodes[node].slots.iter();
            slots
                .map(|slot| slot.free_at.max(draft.now))
                .fold(f64::INFINITY, f64::min)
        };
        let key = |node: usize| (free_at(node), -draft.fleet.nodes[node].speed, node);
        workers.sort_by(|&a, &b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        workers.truncate(most);
    }
    workers
}
