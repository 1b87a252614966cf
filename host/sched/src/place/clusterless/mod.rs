//! ClusterLess (Farahani et al., ICDCS 2026) in its three algorithms: who coordinates the clusters (`super_master`), how a
//! cluster plans a workflow against its deadline (`intra`), and what goes to another cluster (`inter`).

mod inter;
mod intra;
mod super_master;

use super::draft::Draft;
use super::{Decision, Fleet, Job, Place, Reason, State};
use intra::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use super_master::SuperMaster;

/// Plans a workflow in the cluster where it came, each function on the worker and in the mode that is done first, and lets modes
/// become dearer (warm, one more instance, cold, another cluster) only as far as the deadline asks for it. What asks for another
/// cluster waits for the next epoch, in which the super-master sends it where it is done first, if that is in time and earlier
/// than at home.
///
/// One thing differs from the paper: a job is planned anew with every function that ends, and a function goes to its worker when its input
/// is there, not before. What a plan expects minutes ahead seldom comes.
#[derive(Clone, Debug)]
pub struct ClusterLess {
    settings: ClusterLessSettings,
    master: SuperMaster,
    /// Jobs with functions that ask for another cluster.
    asked: BTreeSet<u64>,
    offload: inter::Targets,
}

/// The constants of [`ClusterLess`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClusterLessSettings {
    /// Seconds between two decisions of the super-master. Default 1.
    pub epoch: f64,
    /// Seconds after which a cluster that was not heard of is lost. Default 5.
    pub heartbeat: f64,
    /// The most load of a super-master's cluster, as the mean share of its workers' slots. Default 0.75.
    pub most_load: f64,
    /// The most modes that are tried for one workflow. Default 32.
    pub rounds: usize,
    /// Workers of a cluster that are looked at for a function: those that are free first. Default 64.
    pub workers: usize,
    /// Where functions go that ask for another cluster. Default [`Offload::Best`].
    pub offload: Offload,
}

/// Where functions go that ask for another cluster.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Offload {
    /// Where they are done first, if that is in time and earlier than at home.
    #[default]
    Best,
    /// Nowhere.
    Never,
    /// To each other cluster in turn.
    RoundRobin,
    /// From each cluster always to the same other one, drawn with this seed.
    Fixed {
        /// The seed.
        seed: u64,
    },
}

impl Default for ClusterLessSettings {
    fn default() -> Self {
        Self {
            epoch: 1.0,
            heartbeat: 5.0,
            most_load: 0.75,
            rounds: 32,
            workers: 64,
            offload: Offload::Best,
        }
    }
}

impl Default for ClusterLess {
    fn default() -> Self {
        Self::new(ClusterLessSettings::default())
    }
}

impl ClusterLess {
    /// With these constants.
    pub fn new(settings: ClusterLessSettings) -> Self {
        Self {
            settings,
            master: SuperMaster::default(),
            asked: BTreeSet::new(),
            offload: inter::Targets::new(settings.offload),
        }
    }

    /// The cluster that coordinates the others, if one can.
    pub const fn super_master(&self) -> Option<usize> {
        self.master.cluster()
    }

    fn can_ask(&self) -> bool {
        self.settings.offload != Offload::Never && self.master.cluster().is_some()
    }
}

impl Place for ClusterLess {
    fn name(&self) -> &str {
        match self.settings.offload {
            Offload::Best => "clusterless",
            Offload::Never => "clusterless-intra",
            Offload::RoundRobin => "clusterless-round-robin",
            Offload::Fixed { .. } => "clusterless-fixed",
        }
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        let mut draft = Draft::new(fleet, jobs, now);
        let mut decisions = Vec::new();
        for job in by_deadline(jobs) {
            let plan = Plan::make(&draft, job, &self.settings, self.can_ask());
            plan.book(&mut draft);
            decisions.extend(plan.decisions(&draft));
        }
        let waits = decisions.iter().filter(|decision| decision.chosen.is_none());
        self.asked.extend(waits.map(|decision| decision.job));
        decisions
    }

    fn wake(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.master.hear(now, fleet);
        self.master.elect(now, &self.settings);
        let mut draft = Draft::new(fleet, jobs, now);
        let asked = std::mem::take(&mut self.asked);
        let mut asking = Vec::new();
        let mut decisions = Vec::new();
        for job in by_deadline(jobs) {
            if asked.contains(&jobs[job].id) {
                let plan = Plan::make(&draft, job, &self.settings, self.can_ask());
                plan.book(&mut draft);
                let locals = plan.decisions(&draft).into_iter();
                decisions.extend(locals.filter(|local| local.reason != Reason::AsksElsewhere));
                asking.extend(plan.asking(&draft).map(|(task, local)| (job, task, local)));
            }
        }
        decisions.extend(inter::send(&mut draft, &mut self.offload, &asking));
        let waits = decisions.iter().filter(|decision| decision.chosen.is_none());
        self.asked.extend(waits.map(|decision| decision.job));
        decisions
    }

    fn period(&self) -> Option<f64> {
        Some(self.settings.epoch)
    }
}

/// Jobs with something left to place, the one with the earliest deadline first.
fn by_deadline(jobs: &[Job]) -> Vec<usize> {
    let left = |job: &Job| job.tasks.iter().any(|task| task.state == State::Waiting);
    let mut order: Vec<usize> = (0..jobs.len()).filter(|&job| left(&jobs[job])).collect();
    let deadline = |job: usize| jobs[job].deadline.unwrap_or(f64::INFINITY);
    order.sort_by(|&a, &b| {
        deadline(a)
            .total_cmp(&deadline(b))
            .then(jobs[a].id.cmp(&jobs[b].id))
    });
    order
}

fn home(draft: &Draft<'_>, job: usize) -> usize {
    draft.fleet.nodes[draft.jobs[job].origin].cluster
}
