use super::build::{self, DAWN, node_id};
use super::choice::SelectBy;
use super::event::{Event, Request};
use super::flow::{Flow, Stream, heard, nodes_of};
use super::host::{Batch, Host};
use super::tally::Tallies;
use super::{ModelEntry, NodeGroup, Outcome, Scenario, ScenarioError, Verdict};
use crate::{Channel, Contacts, Instant, Model, Sampler, Schedule, Streams, Telemetry};
use karman_sched::serve::{Action, Serve, ServedModel};
use karman_space::{ContactPlan, Line, LinkProfile};
use karman_types::ByteSize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A scenario that runs.
pub(super) struct World {
    scenario: Scenario,
    models: Vec<(ModelEntry, Sampler)>,
    workloads: Vec<Flow>,
    streams: Vec<Stream>,
    hosts: Vec<Host>,
    channels: HashMap<(u32, u32), Channel>,
    plan: ContactPlan,
    profiles: Vec<LinkProfile>,
    seeds: Streams,
    tallies: Tallies,
    /// What a policy did that ends the run.
    broken: Option<ScenarioError>,
}

impl World {
    pub(super) fn new(
        scenario: &Scenario,
        mut policy: impl FnMut(&NodeGroup) -> Box<dyn Serve>,
        select: &mut SelectBy<'_>,
    ) -> Result<Self, ScenarioError> {
        let seeds = Streams::new(scenario.seed);
        let mut hosts = Vec::new();
        for (number, group) in scenario.nodes.iter().enumerate() {
            let models = scenario.models.iter().map(|model| model.profile(group.speed));
            let models: Arc<[ServedModel]> = models.collect::<Result<_, _>>()?;
            for index in 0..group.count {
                let node = hosts.len() as u64;
                let id = node_id(&format!("{}-{index}", group.name));
                let load = Telemetry::new(scenario.telemetry.quality(), seeds.stream("telemetry", node));
                let random = seeds.stream("service", node);
                let mut host = Host::new((id, group, number), models.clone(), policy(group), random, load);
                host.failures = build::failures(group, seeds.stream("failures", node));
                hosts.push(host);
            }
        }
        let flows = scenario
            .workloads
            .iter()
            .map(|workload| Flow::new(scenario, workload, &seeds, select));
        let mut world = Self {
            models: scenario
                .models
                .iter()
                .map(|model| Ok((model.clone(), model.sampler()?)))
                .collect::<Result<_, ScenarioError>>()?,
            workloads: flows.collect::<Result<_, _>>()?,
            streams: Vec::new(),
            channels: HashMap::new(),
            plan: scenario.plan()?,
            profiles: scenario
                .nodes
                .iter()
                .map(|group| LinkProfile::new(group.links.clone()))
                .collect(),
            tallies: Tallies::new(scenario),
            broken: None,
            scenario: scenario.clone(),
            hosts,
            seeds,
        };
        for (number, workload) in scenario.workloads.iter().enumerate() {
            for home in nodes_of(scenario, &workload.at) {
                let random = seeds.stream(&format!("arrivals {}", workload.name), u64::from(home));
                let workload = number as u32;
                world.streams.push(Stream {
                    workload,
                    home,
                    random,
                });
            }
        }
        Ok(world)
    }

    pub(super) const fn streams(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn next_arrival(&mut self, now: Instant, stream: u32) -> Option<Instant> {
        let stream = &mut self.streams[stream as usize];
        self.workloads[stream.workload as usize]
            .arrivals
            .next(now, &mut stream.random)
    }

    pub(super) const fn nodes(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn next_failure(&mut self, node: u32) -> Option<(Instant, Event)> {
        let failure = self.hosts[node as usize].failures.as_mut()?.next()?;
        let until = failure.end;
        Some((failure.start, Event::Fail { node, until }))
    }

    /// The outcome, after this many events.
    pub(super) fn outcome(mut self, events: u64) -> Result<Outcome, ScenarioError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        Ok(self.tallies.outcome(&self.scenario, &self.hosts, events))
    }

    fn node_name(&self, node: usize) -> String {
        let group = self.hosts[node].group;
        let first = self.scenario.nodes[..group]
            .iter()
            .map(|group| group.count as usize)
            .sum::<usize>();
        format!("{}-{}", self.scenario.nodes[group].name, node - first)
    }

    fn come(&mut self, stream: u32, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        if let Some(at) = self.next_arrival(now, stream) {
            schedule.at(at, Event::Come { stream });
        }
        let Stream { workload, home, .. } = self.streams[stream as usize];
        let choice = self.workloads[workload as usize].choice.as_mut();
        let candidate = match choice.map_or(Ok(0), |choice| choice.choose(now)) {
            Ok(candidate) => candidate,
            Err(error) => return self.break_off(error, schedule),
        };
        let request = Request {
            workload,
            home,
            came: now,
            candidate,
        };
        let counts = self.scenario.counts(now);
        self.tallies.came(workload, counts);
        let node = self.route(now, stream);
        let size = self.workloads[workload as usize].request;
        match self.send(now, home, node, size) {
            Some(at) if at == now => self.reach(node, request, schedule),
            Some(at) => schedule.at(at, Event::Reach { node, request }),
            None => self.lose(now, request),
        }
    }

    fn route(&mut self, now: Instant, stream: u32) -> u32 {
        let stream = &mut self.streams[stream as usize];
        let flow = &mut self.workloads[stream.workload as usize];
        let fresh = self.scenario.telemetry.fresh();
        let load = |node: u32| {
            let known = self.hosts[node as usize].load.known(now);
            let known = known.filter(|known| known.age <= fresh);
            // Who says nothing may be down: it comes after everybody who does.
            known.map_or(f64::INFINITY, |known| *known.value)
        };
        flow.route(stream, load)
    }

    /// When something is there that is sent now; nothing when it does not get there.
    fn send(&mut self, now: Instant, from: u32, to: u32, size: ByteSize) -> Option<Instant> {
        if from == to {
            return Some(now);
        }
        let channel = self.channels.entry((from, to)).or_insert_with(|| {
            let (a, b) = (&self.hosts[from as usize], &self.hosts[to as usize]);
            if !self.plan.contacts_between(a.id, b.id).is_empty() {
                return Channel::Contacts(Contacts::new(&self.plan, a.id, b.id, DAWN));
            }
            let seed = self.seeds.seed_of("line", u64::from(from) << 32 | u64::from(to));
            match self.profiles[a.group].to(b.id, b.tier) {
                Some(link) => Channel::Line(Box::new(Line::new(link.clone(), seed))),
                None => Channel::Local,
            }
        });
        let sent = channel.send(now, size.0)?;
        if let Channel::Line(_) | Channel::Contacts(_) = channel {
            self.hosts[from as usize].sending += sent.took;
        }
        Some(sent.arrived)
    }

    fn reach(&mut self, node: u32, request: Request, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        let host = &mut self.hosts[node as usize];
        if !host.up {
            return self.lose(now, request);
        }
        let model = self.workloads[request.workload as usize].model(request.candidate);
        host.arrived(now, model, request);
        self.serve(node, schedule);
    }

    /// Does what the policy of a node says.
    fn serve(&mut self, node: u32, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        loop {
            let host = &mut self.hosts[node as usize];
            match host.device.poll(now.since_start()) {
                Ok(None) => return,
                Ok(Some(Action::Run {
                    model,
                    exit,
                    planned,
                    requests,
                })) => {
                    let (entry, variation) = &self.models[model];
                    let group = &self.scenario.nodes[host.group];
                    let speed = group.speed * (1.0 - group.foreign);
                    let mean = entry.mean_seconds(exit, requests.len()) / speed;
                    let time = crate::seconds(mean * variation.draw(&mut host.random));
                    let (life, began) = (host.life, now);
                    let slot = host.begin(
                        now,
                        Batch {
                            model,
                            exit,
                            planned,
                            began,
                            requests,
                        },
                    );
                    schedule.after(time, Event::Done { node, slot, life });
                }
                Ok(Some(Action::Refuse { requests, .. })) => {
                    host.refused(requests.len());
                    for request in requests {
                        self.tallies
                            .ended(&self.scenario, request, now, node, Verdict::Refused);
                        heard(&mut self.workloads, now, request, false);
                    }
                }
                Ok(Some(Action::Wait { until })) => {
                    // In the past, it would ask for ever.
                    let until = Instant::from(until).max(now + Duration::from_nanos(1));
                    if host.wakes <= now || until < host.wakes {
                        host.wakes = until;
                        schedule.at(until, Event::Wake { node });
                    }
                    return;
                }
                Err(error) => {
                    let node = self.node_name(node as usize);
                    return self.break_off(ScenarioError::Policy { node, error }, schedule);
                }
            }
        }
    }

    fn break_off(&mut self, error: ScenarioError, schedule: &mut Schedule<Event>) {
        self.broken.get_or_insert(error);
        schedule.stop();
    }

    fn done(&mut self, node: u32, slot: u32, life: u32, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        let host = &mut self.hosts[node as usize];
        if host.life != life {
            return;
        }
        let Some(batch) = host.end(now, slot) else {
            return;
        };
        for request in batch.requests {
            let flow = &self.workloads[request.workload as usize];
            let (size, chooses) = (flow.answer, flow.choice.is_some());
            let exit = flow.exit(request.candidate, batch.exit);
            match self.send(now, node, request.home, size) {
                Some(at) => {
                    let accuracy = self.models[batch.model].0.exits[batch.exit].accuracy;
                    let verdict = Verdict::Answered { exit, accuracy };
                    self.tallies.ended(&self.scenario, request, at, node, verdict);
                    if chooses {
                        schedule.at(at, Event::Heard { request });
                    }
                }
                None => self.lose(now, request),
            }
        }
        self.serve(node, schedule);
    }

    fn lose(&mut self, now: Instant, request: Request) {
        self.tallies
            .ended(&self.scenario, request, now, request.home, Verdict::Lost);
        heard(&mut self.workloads, now, request, false);
    }

    fn sample(&mut self, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        for host in self.hosts.iter_mut().filter(|host| host.up) {
            let load = host.load_now();
            host.load.sample(now, |noise| noise.of(load));
        }
        self.tallies.sample(&self.scenario, &self.hosts, now);
        schedule.after(self.scenario.telemetry.period, Event::Sample);
    }

    fn fail(&mut self, node: u32, until: Instant, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        schedule.at(until, Event::Recover { node });
        let host = &mut self.hosts[node as usize];
        let cores = self.scenario.nodes[host.group].cores;
        self.tallies.failed(host.group);
        for request in host.fail(now, cores) {
            self.lose(now, request);
        }
    }
}

impl Model for World {
    type Event = Event;

    fn handle(&mut self, event: Event, schedule: &mut Schedule<Event>) {
        match event {
            Event::Come { stream } => self.come(stream, schedule),
            Event::Reach { node, request } => self.reach(node, request, schedule),
            Event::Done { node, slot, life } => self.done(node, slot, life, schedule),
            Event::Wake { node } => self.serve(node, schedule),
            Event::Heard { request } => heard(&mut self.workloads, schedule.now(), request, true),
            Event::Sample => self.sample(schedule),
            Event::Fail { node, until } => self.fail(node, until, schedule),
            Event::Recover { node } => {
                self.hosts[node as usize].up = true;
                if let Some((at, event)) = self.next_failure(node) {
                    schedule.at(at, event);
                }
            }
            Event::WarmedUp => {
                for host in &mut self.hosts {
                    host.servers.restart(schedule.now());
                    host.sending = Duration::ZERO;
                }
            }
        }
    }
}
