mod search;

use super::draft::{Draft, Estimate};
use super::list::{Order, ordered};
use super::{Decision, Fleet, Job, Mode, Place, Reason};
use search::{Found, Search};
use serde::{Deserialize, Serialize};

/// Scores a placement by the state it leaves behind: what the node then holds, where the output lies and what can be reached from
/// there, for the tasks that come after (FATE: Huang, Hu, Wu and Li 2026; it is described without formulas, these are ours).
///
/// A task at a node costs what passes until it is done there, and `weight` times what that does to the future:
/// - the tasks after it, up to `horizon` levels deep, are placed tentatively where each is done first; what each takes from when
///   its input is there counts, discounted by level and weighted by how long its way to the end of the job is;
/// - a component that gives way will be loaded again if tasks that are known will want it and few others hold it; one that is
///   loaded serves others, too.
///
/// The ready tasks at the front are assigned together, by a search over the best nodes of each that is cut off after a number
/// of looks (not of milliseconds: a decision must be replayable) and begins with the greedy assignment, so that it is never
/// worse. A task whose node is busy goes there just in time for its input to come while it waits; until then it is looked at again
/// whenever something changes, for by then another node may be better.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    settings: FateSettings,
}

/// What [`Fate`] weighs, and how far it looks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct FateSettings {
    /// What the future counts against the present. Default 0.5; 0 turns all of it off.
    pub weight: f64,
    /// What a level of tasks counts against the one before it. Default 0.7.
    pub discount: f64,
    /// How many levels of tasks it looks ahead. Default 2.
    pub horizon: u32,
    /// What holding components counts. Default 1; 0 turns it off.
    pub residency: f64,
    /// Ready tasks that are assigned together; those after them follow greedily. Default 8.
    pub frontier: usize,
    /// Nodes that are tried for each of them. Default 3.
    pub candidates: usize,
    /// Nodes from which these are taken, and on which tasks that come after are tried. Default 8.
    pub pool: usize,
    /// How many placements the search looks at. Default 200.
    pub looks: usize,
    /// Which tasks stand at the front. Default: of the job with the least work left.
    pub order: Order,
    /// How many times longer than its input takes to come a task may have to wait at a node and still goes there now. Default 2, for nothing
    /// may change just in time; 0: only to a node that is free.
    pub lead: f64,
}

impl Default for FateSettings {
    fn default() -> Self {
        Self {
            weight: 0.5,
            discount: 0.7,
            horizon: 2,
            residency: 1.0,
            frontier: 8,
            candidates: 3,
            pool: 8,
            looks: 200,
            order: Order::ShortestJob,
            lead: 2.0,
        }
    }
}

impl Fate {
    /// With these settings.
    pub const fn new(settings: FateSettings) -> Self {
        Self { settings }
    }
}

impl Place for Fate {
    fn name(&self) -> &str {
        "fate"
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        let draft = Draft::new(fleet, jobs, now);
        let lead = self.settings.lead;
        let is_free = |draft: &Draft<'_>| (0..fleet.nodes.len()).any(|node| draft.is_free(node));
        let tasks = ordered(&draft, self.settings.order);
        let (front, rest) = tasks.split_at(tasks.len().min(self.settings.frontier));
        let future = Future::new(self.settings, &draft);

        let mut search = Search {
            settings: self.settings,
            stages: front.iter().map(|&task| future.stage(&draft, task)).collect(),
            looks: 0,
            best: None,
        };
        search.descend(&draft, &mut Vec::new(), 0.0);
        let Found { steps, mut draft, .. } = search.best.unwrap_or_else(|| Found {
            total: 0.0,
            steps: Vec::new(),
            draft,
        });
        let mut decisions: Vec<Decision> = front
            .iter()
            .zip(&steps)
            .map(|(&task, step)| decision(jobs, (now, lead), task, &step[..]))
            .collect();
        for &task in rest {
            let any_free = is_free(&draft);
            let stage = future.stage(&draft, task);
            let options = stage.options(&draft, 2);
            if let Some(first) = options.first() {
                draft.book(task.0, task.1, first.node, &first.estimate);
            }
            let decision = decision(jobs, (now, lead), task, &options);
            let waits = decision.chosen.is_none();
            decisions.push(decision);
            // Where no node is free, few of those after it would go now: to look at all of a long queue takes more than it gives.
            if waits && !any_free {
                break;
            }
        }
        decisions
    }
}

/// The first option is chosen if it does not wait longer there than it may; the second is the runner-up.
fn decision(
    jobs: &[Job],
    (now, lead): (f64, f64),
    (job, task): (usize, usize),
    options: &[Scored],
) -> Decision {
    let waits = |option: &Scored| {
        let Estimate { free_at, data_at, .. } = option.estimate;
        free_at - now > lead * (data_at - now)
    };
    let candidate = |option: &Scored| option.estimate.at(option.node, option.score);
    let (chosen, reason) = match options.first() {
        None => (None, Reason::NoRoom),
        Some(first) if waits(first) => (
            None,
            Reason::Waits {
                node: first.node,
                until: first.estimate.free_at,
            },
        ),
        Some(first) => (
            Some(candidate(first)),
            Reason::FutureState {
                cost: first.estimate.finish - now,
                future: first.future,
            },
        ),
    };
    Decision {
        job: jobs[job].id,
        task,
        chosen,
        runner_up: options.get(1).map(candidate),
        reason,
    }
}

/// A task with the nodes that are worth a look, and what each of them would do to the future.
struct Stage {
    task: (usize, usize),
    pool: Vec<(usize, f64)>,
    /// No placement of it scores less.
    least: f64,
}

/// A placement with its score.
#[derive(Clone, Copy, Debug)]
struct Scored {
    node: usize,
    estimate: Estimate,
    future: f64,
    score: f64,
}

impl Stage {
    /// The best placements as the plan stands.
    fn options(&self, draft: &Draft<'_>, most: usize) -> Vec<Scored> {
        let score = |&(node, future): &(usize, f64)| {
            let estimate = draft.estimate(self.task.0, self.task.1, node)?;
            Some(Scored {
                node,
                estimate,
                future,
                score: estimate.finish - draft.now + future,
            })
        };
        let mut options: Vec<Scored> = self.pool.iter().filter_map(score).collect();
        options.sort_by(|a, b| a.score.total_cmp(&b.score));
        options.truncate(most);
        options
    }
}

/// What placements do to the tasks after them.
struct Future {
    settings: FateSettings,
    /// For each component the nodes on which a task of it would be done first.
    pools: Vec<Vec<usize>>,
    /// For each component how many tasks that have not begun want it, and how many nodes hold it.
    wanted: Vec<f64>,
    held: Vec<f64>,
    /// For each component what a node of mean speed and rate needs to load it.
    load: Vec<f64>,
    /// For each job its tasks' ranks, and who takes their output.
    ranks: Vec<Vec<f64>>,
    takers: Vec<Vec<Vec<(usize, u64)>>>,
}

impl Future {
    fn new(settings: FateSettings, draft: &Draft<'_>) -> Self {
        let (fleet, jobs) = (draft.fleet, draft.jobs);
        let (speed, rate) = draft.means();
        let components = fleet.components.len();
        let (mut wanted, mut held) = (vec![0.0; components], vec![0.0; components]);
        for task in jobs.iter().flat_map(|job| &job.tasks) {
            wanted[task.component] += f64::from(u8::from(!task.state.has_begun()));
        }
        for resident in fleet.nodes.iter().flat_map(|node| &node.resident) {
            held[resident.component] += 1.0;
        }
        let load = |component: &super::Component| {
            (component.cold - component.scale_out).max(0.0) / speed + component.fetch as f64 / rate
        };
        let pool = |component: usize| match wanted[component] > 0.0 {
            true => quickest(draft, component, settings.pool),
            false => Vec::new(),
        };
        Self {
            settings,
            pools: (0..components).map(pool).collect(),
            load: fleet.components.iter().map(load).collect(),
            wanted,
            held,
            ranks: jobs.iter().map(|job| job.upward_ranks(speed, rate)).collect(),
            takers: jobs.iter().map(Job::takers).collect(),
        }
    }

    /// The nodes where a task is done first, each with what it would do to the future.
    fn stage(&self, draft: &Draft<'_>, task: (usize, usize)) -> Stage {
        let nodes = 0..draft.fleet.nodes.len();
        let estimates = nodes.filter_map(|node| Some((node, draft.estimate(task.0, task.1, node)?)));
        let mut estimates: Vec<(usize, Estimate)> = estimates.collect();
        let by_finish = |a: &(usize, Estimate), b: &(usize, Estimate)| {
            a.1.finish.total_cmp(&b.1.finish).then(a.0.cmp(&b.0))
        };
        keep_least(&mut estimates, self.settings.pool, by_finish);
        let mut least = f64::INFINITY;
        let pool = estimates.into_iter().map(|(node, estimate)| {
            let future = match self.settings.weight > 0.0 {
                true => self.settings.weight * self.after(draft, task, node, &estimate),
                false => 0.0,
            };
            least = least.min(estimate.finish - draft.now + future);
            (node, future)
        });
        let pool = pool.collect();
        Stage { task, pool, least }
    }

    /// What the tasks after this one cost once it is placed there, and what the node then holds.
    fn after(&self, draft: &Draft<'_>, task: (usize, usize), node: usize, estimate: &Estimate) -> f64 {
        let mut draft = draft.clone();
        let component = draft.jobs[task.0].tasks[task.1].component;
        let loads = !draft.node(node).holds(component);
        let gone = draft.book(task.0, task.1, node, estimate);
        let regret: f64 = gone
            .into_iter()
            .map(|gone| self.worth(gone, self.held[gone]))
            .sum();
        let gain = match loads {
            true => self.worth(component, self.held[component] + 1.0),
            false => 0.0,
        };
        let mut cost = self.settings.residency * (regret - gain);
        let whole = self.ranks[task.0][task.1].max(f64::MIN_POSITIVE);
        let mut level = vec![task.1];
        let mut factor = 1.0;
        for _ in 0..self.settings.horizon {
            factor *= self.settings.discount;
            let takers = level.iter().flat_map(|&from| &self.takers[task.0][from]);
            let mut next: Vec<usize> = takers.map(|(taker, _)| *taker).collect();
            next.sort_unstable();
            next.dedup();
            for &taker in &next {
                let share = self.ranks[task.0][taker] / whole;
                cost += factor * share * self.tentatively(&mut draft, (task.0, taker), node);
            }
            level = next;
        }
        cost
    }

    /// Places a task where it is done first, and returns what it takes from when its input is there.
    fn tentatively(&self, draft: &mut Draft<'_>, (job, task): (usize, usize), beside: usize) -> f64 {
        let of = &draft.jobs[job].tasks[task];
        if of.state.has_begun() {
            return 0.0;
        }
        let outputs = of
            .inputs
            .iter()
            .filter_map(|input| draft.output(job, input.from?));
        let ready = outputs.map(|(_, at)| at).fold(draft.now, f64::max);
        let pool = self.pools[of.component].iter().copied().chain([beside]);
        let estimates = pool.filter_map(|node| Some((node, draft.estimate(job, task, node)?)));
        let best = estimates.min_by(|a, b| a.1.finish.total_cmp(&b.1.finish));
        match best {
            Some((node, estimate)) => {
                draft.book(job, task, node, &estimate);
                estimate.finish - ready
            }
            // Nobody is known that runs it: that speaks for no node.
            None if self.pools[of.component].is_empty() => 0.0,
            // Nowhere that can be reached from there: as bad as anything gets.
            None => self.load[of.component] + 1e3,
        }
    }

    /// What it is worth that this many nodes hold a component, for each of them: what loading it takes, as likely as a task that is
    /// known finds no other holder.
    fn worth(&self, component: usize, holders: f64) -> f64 {
        let holders = holders.max(1.0);
        self.load[component] * (self.wanted[component] / holders).min(1.0) / holders
    }
}

/// The nodes on which a task of mean work would be done first if its input were everywhere.
fn quickest(draft: &Draft<'_>, component: usize, most: usize) -> Vec<usize> {
    let tasks = draft.jobs.iter().flat_map(|job| &job.tasks);
    let works = tasks.filter(|task| task.component == component && !task.state.has_begun());
    let (count, sum) = works.fold((0.0, 0.0), |(count, sum), task| (count + 1.0, sum + task.work));
    let work = sum / f64::max(count, 1.0);
    let time = |node: usize| {
        let there = &draft.fleet.nodes[node];
        let too_large = draft.fleet.components[component].bytes > there.memory;
        let ways = there.ways(component).into_iter().flatten();
        let ways = ways.filter(|(mode, _)| *mode != Mode::Cold || !too_large);
        let ways = ways.map(|(mode, slot)| {
            let begin = there.slots[slot].free_at.max(draft.now);
            begin + draft.fleet.startup(component, node, mode) + work / there.speed
        });
        ways.min_by(f64::total_cmp)
    };
    let nodes = 0..draft.fleet.nodes.len();
    let mut timed: Vec<(usize, f64)> = nodes.filter_map(|node| Some((node, time(node)?))).collect();
    keep_least(&mut timed, most, |a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    timed.into_iter().map(|(node, _)| node).collect()
}

/// Keeps the `most` least items, in order.
fn keep_least<T>(items: &mut Vec<T>, most: usize, by: impl Fn(&T, &T) -> std::cmp::Ordering + Copy) {
    if items.len() > most && most > 0 {
        items.select_nth_unstable_by(most - 1, by);
    }
    items.truncate(most);
    items.sort_by(by);
}
