use super::event::Request;
use super::host::Host;
use super::{Answer, GroupOutcome, ModelEntry, Outcome, Scenario, Verdict, WorkloadOutcome};
use crate::Instant;
use std::time::Duration;

/// What is counted while a scenario runs.
pub(super) struct Tallies {
    workloads: Vec<(WorkloadOutcome, Duration)>,
    failures: Vec<u64>,
    sampled: Vec<f64>,
    waiting: Vec<Vec<f64>>,
    busy: Vec<Vec<f64>>,
    answers: Vec<Answer>,
}

impl Tallies {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let workloads = scenario.workloads.iter().map(|workload| {
            let models = scenario.models_of(workload);
            let exits: Vec<_> = models.iter().flat_map(|model| &model.exits).collect();
            let wanted = workload.slo.as_ref().and_then(|slo| slo.latency_p95);
            let due = wanted.or_else(|| models.first().map(|model| model.slo));
            let served_by = match models.len() {
                0..=1 => Vec::new(),
                _ => models.iter().map(|model| (model.name.clone(), 0)).collect(),
            };
            let outcome = WorkloadOutcome {
                name: workload.name.clone(),
                served_by,
                on_time_by_exit: vec![0; exits.len()],
                answered_by_exit: vec![0; exits.len()],
                accuracy_of_exit: exits.iter().map(|exit| exit.accuracy).collect(),
                ..WorkloadOutcome::default()
            };
            (outcome, due.unwrap_or_default())
        });
        let groups = scenario.nodes.len();
        Self {
            workloads: workloads.collect(),
            failures: vec![0; groups],
            sampled: Vec::new(),
            waiting: vec![Vec::new(); groups],
            busy: vec![Vec::new(); groups],
            answers: Vec::new(),
        }
    }

    pub(super) fn came(&mut self, workload: u32, counts: bool) {
        self.workloads[workload as usize].0.requests += u64::from(counts);
    }

    pub(super) fn ended(
        &mut self,
        scenario: &Scenario,
        request: Request,
        at: Instant,
        node: u32,
        verdict: Verdict,
    ) {
        // What ends after the end of the run has not ended.
        if !scenario.counts(request.came) || at > scenario.length.into() {
            return;
        }
        let (outcome, slo) = &mut self.workloads[request.workload as usize];
        let took = at.since(request.came);
        match verdict {
            Verdict::Refused => outcome.refused += 1,
            Verdict::Lost => outcome.lost += 1,
            Verdict::Answered { exit, .. } => {
                let in_time = u64::from(took <= *slo);
                outcome.on_time += in_time;
                outcome.late += 1 - in_time;
                outcome.on_time_by_exit[exit] += in_time;
                outcome.answered_by_exit[exit] += 1;
                if let Some((_, count)) = outcome.served_by.get_mut(request.candidate as usize) {
                    *count += 1;
                }
                outcome.responses.push(took.as_secs_f64());
            }
        }
        if scenario.keep_answers {
            self.answers.push(Answer {
                workload: request.workload,
                home: request.home,
                node,
                came: request.came,
                ended: at,
                verdict,
            });
        }
    }

    pub(super) fn failed(&mut self, group: usize) {
        self.failures[group] += 1;
    }

    pub(super) fn sample(&mut self, scenario: &Scenario, hosts: &[Host], now: Instant) {
        self.sampled.push(now.as_secs_f64());
        for (number, hosts) in hosts.chunk_by(|a, b| a.group == b.group).enumerate() {
            let cores = f64::from(scenario.nodes[number].cores);
            let count = hosts.len() as f64;
            let waiting: u64 = hosts.iter().map(Host::waiting).sum();
            let busy: u64 = hosts.iter().map(|host| host.servers.busy()).sum();
            self.waiting[number].push(waiting as f64 / count);
            self.busy[number].push(busy as f64 / (count * cores));
        }
    }

    pub(super) fn outcome(self, scenario: &Scenario, hosts: &[Host], events: u64) -> Outcome {
        let end = Instant::from(scenario.length);
        let measured = scenario.length - scenario.warm_up;
        let mut groups = Vec::new();
        let series = self.waiting.into_iter().zip(self.busy).zip(self.failures);
        let chunks = hosts.chunk_by(|a, b| a.group == b.group);
        for ((group, hosts), ((waiting, busy), failures)) in scenario.nodes.iter().zip(chunks).zip(series) {
            let joules = |host: &Host| {
                let busy = host.servers.busy_seconds(end);
                group.power().joules(measured, busy, group.cores, host.sending)
            };
            let busy_seconds: f64 = hosts.iter().map(|host| host.servers.busy_seconds(end)).sum();
            let present: f64 = hosts.iter().map(|host| host.servers.present_seconds(end)).sum();
            groups.push(GroupOutcome {
                name: group.name.clone(),
                utilisation: busy_seconds / present,
                joules: hosts.iter().map(joules).sum(),
                failures,
                waiting,
                busy,
            });
        }
        let described = scenario.workloads.iter();
        let workloads = described.zip(self.workloads).map(|(workload, (mut outcome, _))| {
            let ended = outcome.on_time + outcome.late + outcome.refused + outcome.lost;
            outcome.unfinished = outcome.requests - ended;
            let answered: u64 = outcome.answered_by_exit.iter().sum();
            outcome.mean_accuracy = (answered > 0).then(|| outcome.accuracy_sum() / answered as f64);
            outcome.cost = cost(&scenario.models_of(workload), &outcome.answered_by_exit);
            let responses = &outcome.responses;
            outcome.mean_response = responses.mean();
            outcome.p50_response = responses.percentile(0.5);
            outcome.p95_response = responses.percentile(0.95);
            outcome.p99_response = responses.percentile(0.99);
            outcome
        });
        Outcome {
            seed: scenario.seed,
            events,
            workloads: workloads.collect(),
            nodes: groups,
            sampled: self.sampled,
            answers: self.answers,
            scenario: String::new(),
            policy_failures: Vec::new(),
        }
    }
}

/// Money for the answers of these models, whose exits stand one after the other.
fn cost(models: &[&ModelEntry], answered_by_exit: &[u64]) -> f64 {
    let mut exits = answered_by_exit.iter();
    let of = |model: &&ModelEntry| {
        let answered: u64 = exits.by_ref().take(model.exits.len()).sum();
        answered as f64 * model.cost
    };
    models.iter().map(of).sum()
}
