//! The simulated system: a pool of replicas at the edge with one queue, and a cloud above it.

use super::registered::{Monitoring, System};
use anyhow::{Context, Result};
use karman_sched::tier::{Measured, Router, View};
use karman_sim::{
    Arrivals, Instant, Model, Quality, Sampler, Samples, Schedule, Shape, Simulation, Station, Streams,
    Telemetry, seconds,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// What came of a run, after the warm-up.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    pub(super) p95: f64,
    pub(super) p99: f64,
    /// Replica-seconds and priced cloud-seconds, each second.
    pub(super) cost: f64,
    /// The share of requests that went above.
    pub(super) above: f64,
    /// Replicas in the mean.
    pub(super) replicas: f64,
}

/// A load for some time, after a warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    pub(super) load: f64,
    pub(super) warm_up: f64,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

struct Edge<'a> {
    system: &'a System,
    router: &'a mut dyn Router,
    arrivals: Arrivals,
    gaps: fastrand::Rng,
    work: Sampler,
    works: fastrand::Rng,
    pool: Station<Job>,
    cloud: Station<Job>,
    /// Replicas that start, and how many of their starts have been called off.
    starting: u32,
    called_off: u32,
    telemetry: Telemetry<Measured>,
    /// When requests were answered in the last window, and how long they took.
    answered: VecDeque<(Instant, f64)>,
    /// Busy and present seconds of the pool at each reading of the last window.
    readings: VecDeque<(Instant, f64, f64)>,
    latencies: Samples,
    came: u64,
    went_above: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    came: Instant,
    /// Seconds on a replica of the edge.
    work: f64,
}

enum Event {
    Arrival,
    Done { job: Job, above: bool },
    Started,
    Reading,
    WarmedUp,
}

/// Runs one policy on a trace. The same seed brings the same requests with the same work to every policy.
pub(super) fn run(
    system: &System,
    trace: Trace,
    monitoring: Monitoring,
    router: &mut dyn Router,
) -> Result<Run> {
    let streams = Streams::new(trace.seed);
    let gaps = Shape::BoundedPareto {
        exponent: system.burst_exponent,
        most: system.burst_most,
    };
    let quality = Quality {
        lag: Duration::from_secs_f64(monitoring.lag),
        noise: monitoring.noise,
        dropped: monitoring.dropped,
    };
    let edge = Edge {
        system,
        router,
        arrivals: Arrivals::new(trace.load, gaps.sampler()?)?,
        gaps: streams.stream("arrivals", 0),
        work: Shape::LogNormal {
            sigma: system.service_sigma,
        }
        .sampler()?,
        works: streams.stream("work", 0),
        pool: Station::new(1, Instant::START),
        cloud: Station::new(system.most_above.into(), Instant::START),
        starting: 0,
        called_off: 0,
        telemetry: Telemetry::new(quality, streams.stream("telemetry", 0)),
        answered: VecDeque::new(),
        readings: VecDeque::new(),
        latencies: Samples::default(),
        came: 0,
        went_above: 0,
    };
    let mut simulation = Simulation::new(edge);
    simulation.schedule().at(Instant::START, Event::Arrival);
    simulation.schedule().at(Instant::START, Event::Reading);
    simulation
        .schedule()
        .at(Instant::from_secs_f64(trace.warm_up), Event::WarmedUp);
    let end = Instant::from_secs_f64(trace.warm_up + trace.seconds);
    simulation.run_until(end);
    simulation
        .model()
        .outcome(end, trace.seconds)
        .context("nothing was answered")
}

impl Edge<'_> {
    fn outcome(&self, end: Instant, seconds: f64) -> Option<Run> {
        let replicas = self.pool.servers.present_seconds(end) / seconds;
        let above = self.cloud.servers.busy_seconds(end) / seconds;
        Some(Run {
            p95: self.latencies.percentile(0.95)?,
            p99: self.latencies.percentile(0.99)?,
            cost: replicas + self.system.cloud_price * above,
            above: self.went_above as f64 / self.came as f64,
            replicas,
        })
    }

    fn view(&self, now: Instant) -> View {
        View {
            now: now.since(Instant::START),
            replicas: self.pool.servers.count() as u32,
            starting: self.starting,
            here: (self.pool.queue.len() as u64 + self.pool.servers.busy()) as u32,
            above: (self.cloud.queue.len() as u64 + self.cloud.servers.busy()) as u32,
            measured: self.telemetry.known(now).map(|known| *known.value),
        }
    }

    fn arrive(&mut self, now: Instant) {
        let job = Job {
            came: now,
            work: self.system.service * self.work.draw(&mut self.works),
        };
        let above = self.router.route(&self.view(now)).above;
        self.came += 1;
        self.went_above += u64::from(above);
        if above { &mut self.cloud } else { &mut self.pool }.arrive(now, job);
    }

    fn start(&mut self, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        while let Some(queued) = self.pool.start(now) {
            schedule.after(
                seconds(queued.job.work),
                Event::Done {
                    job: queued.job,
                    above: false,
                },
            );
        }
        while let Some(queued) = self.cloud.start(now) {
            let time = queued.job.work / self.system.cloud_speed;
            schedule.after(
                seconds(time),
                Event::Done {
                    job: queued.job,
                    above: true,
                },
            );
        }
    }

    fn answer(&mut self, now: Instant, job: Job, above: bool) {
        if above { &mut self.cloud } else { &mut self.pool }.end(now);
        let way = if above { self.system.cloud_round_trip } else { 0.0 };
        let took = now.since(job.came).as_secs_f64() + way;
        self.answered.push_back((now, took));
        self.latencies.push(took + self.system.client_round_trip);
    }

    /// Monitoring reads, then the autoscaler looks at the desired replicas.
    fn read(&mut self, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        let window = Duration::from_secs_f64(self.system.window);
        while self.answered.front().is_some_and(|(at, _)| *at + window < now) {
            self.answered.pop_front();
        }
        while self.readings.front().is_some_and(|(at, ..)| *at + window < now) {
            self.readings.pop_front();
        }
        let (busy, present) = (
            self.pool.servers.busy_seconds(now),
            self.pool.servers.present_seconds(now),
        );
        let (_, busy_then, present_then) = self.readings.front().copied().unwrap_or((now, 0.0, 0.0));
        self.readings.push_back((now, busy, present));
        let mut took = Samples::default();
        self.answered.iter().for_each(|(_, seconds)| took.push(*seconds));
        if let (Some(mean), Some(p95)) = (took.mean(), took.percentile(0.95)) {
            let utilisation = if present > present_then {
                (busy - busy_then) / (present - present_then)
            } else {
                0.0
            };
            self.telemetry.sample(now, |noise| Measured {
                mean: noise.of(mean),
                p95: noise.of(p95),
                utilisation: noise.of(utilisation),
            });
        }
        let desired = self.router.desired(&self.view(now));
        self.scale(now, desired.clamp(1, self.system.most), schedule);
    }

    fn scale(&mut self, now: Instant, desired: u32, schedule: &mut Schedule<Event>) {
        let ready = self.pool.servers.count() as u32;
        let have = ready + self.starting;
        if desired > have {
            self.starting += desired - have;
            for _ in have..desired {
                schedule.after(seconds(self.system.start_up), Event::Started);
            }
        } else {
            // Those that start are called off first; those that go finish what they have.
            let called_off = self.starting.min(have - desired);
            self.starting -= called_off;
            self.called_off += called_off;
            self.pool.servers.scale(now, u64::from(ready.min(desired)));
        }
    }
}

impl Model for Edge<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        match event {
            Event::Arrival => {
                self.arrive(now);
                let next = self.arrivals.next(now, &mut self.gaps);
                next.into_iter().for_each(|at| schedule.at(at, Event::Arrival));
            }
            Event::Done { job, above } => self.answer(now, job, above),
            Event::Started if self.called_off > 0 => self.called_off -= 1,
            Event::Started => {
                self.starting -= 1;
                self.pool.servers.scale(now, self.pool.servers.count() + 1);
            }
            Event::Reading => {
                self.read(schedule);
                schedule.after(seconds(self.system.scrape), Event::Reading);
            }
            Event::WarmedUp => {
                self.pool.restart(now);
                self.cloud.restart(now);
                self.readings.clear();
                self.latencies = Samples::default();
                (self.came, self.went_above) = (0, 0);
            }
        }
        self.start(schedule);
    }
}
