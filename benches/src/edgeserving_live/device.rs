//! One run: requests come in real time, and this thread runs what a policy says.

use super::network::Network;
use super::registered::{Blocks, Cell, Registered};
use anyhow::Result;
use karman_sched::serve::{Action, Device, ServedModel};
use karman_sim::{Arrivals, Instant as Virtual, Shape, Streams};
use karman_study::pairs::percentile;
use karman_study::serving::{Contender, Run};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    came: Duration,
    instance: usize,
}

/// An answer: the instance, when its request came and when it was there, in seconds, and its exit.
pub(super) type Row = (usize, f64, f64, usize);

/// One cell with its times, for this machine.
pub(super) struct Bench<'a> {
    pub(super) network: &'a Network,
    pub(super) registered: &'a Registered,
    pub(super) blocks: &'a Blocks,
    slo: Duration,
    /// Requests each second, of all instances together.
    rate: f64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        network: &'a Network,
        registered: &'a Registered,
        blocks: &'a Blocks,
        cell: Cell,
    ) -> Result<Self> {
        let most = registered.most;
        Ok(Self {
            slo: network.whole(most.min(5))?.mul_f64(cell.slo),
            rate: cell.load * most as f64 / network.whole(most)?.as_secs_f64(),
            network,
            registered,
            blocks,
        })
    }

    /// Plays the requests of a seed to a contender: what came of it, and every answer.
    pub(super) fn play(&self, contender: Contender, seed: u64) -> Result<(Run, Vec<Row>)> {
        let served = self.network.served(self.slo)?;
        let instances: Arc<[ServedModel]> = vec![served; self.registered.shares.len()].into();
        let mut device = Device::new(instances, contender.policy(), 1);
        let requests = self.requests(seed)?;
        let mut coming = requests.iter().copied().peekable();
        let mut answers = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < self.blocks.length {
            let now = begun.elapsed();
            while let Some(request) = coming.next_if(|request| request.came <= now) {
                device.arrived(request.came, request.instance, request);
            }
            let mut until = coming.peek().map_or(self.blocks.length, |request| request.came);
            match device.poll(now)? {
                Some(Action::Run {
                    exit,
                    planned,
                    requests,
                    ..
                }) => {
                    self.network.run(exit, requests.len())?;
                    let ended = begun.elapsed();
                    device.finished(planned, ended.saturating_sub(now));
                    answers.extend(requests.into_iter().map(|request| (request, ended, exit)));
                    continue;
                }
                // It counts as a violation, as whatever is not answered.
                Some(Action::Refuse { .. }) => continue,
                Some(Action::Wait { until: asked }) => until = until.min(asked),
                None => {}
            }
            // Woken too early, it looks again.
            std::thread::park_timeout(until.saturating_sub(begun.elapsed()));
        }
        let row = |(request, ended, exit): &(Request, Duration, usize)| {
            let Request { came, instance } = *request;
            (instance, came.as_secs_f64(), ended.as_secs_f64(), *exit)
        };
        let rows = answers.iter().map(row).collect();
        Ok((self.judge(&requests, &answers), rows))
    }

    /// All that come, by time.
    fn requests(&self, seed: u64) -> Result<Vec<Request>> {
        let whole: f64 = self.registered.shares.iter().sum();
        let mut requests = Vec::new();
        for (instance, share) in self.registered.shares.iter().enumerate() {
            let arrivals = Arrivals::new(self.rate * share / whole, Shape::Exponential.sampler()?)?;
            let mut random = Streams::new(seed).stream("arrivals", instance as u64);
            let mut next = arrivals.next(Virtual::START, &mut random);
            while let Some(at) = next.filter(|at| at.since_start() < self.blocks.length) {
                let came = at.since_start();
                requests.push(Request { came, instance });
                next = arrivals.next(at, &mut random);
            }
        }
        requests.sort_by_key(|request| request.came);
        Ok(requests)
    }

    fn judge(&self, requests: &[Request], answers: &[(Request, Duration, usize)]) -> Run {
        let counted = requests.iter().filter(|request| self.blocks.counts(request.came));
        let mut run = Run {
            requests: counted.count() as f64,
            ..Run::default()
        };
        let (mut on_time, mut took_ms) = (0.0, Vec::new());
        for (request, ended, exit) in answers {
            let came = request.came;
            if !self.blocks.counts(came) || *ended > self.blocks.length {
                continue;
            }
            let took = ended.saturating_sub(came);
            let accuracy = self.network.exits()[*exit].accuracy;
            run.answered += 1.0;
            run.accuracy += accuracy;
            if took <= self.slo {
                on_time += 1.0;
                run.on_time_accuracy += accuracy;
            }
            took_ms.push(took.as_secs_f64() * 1e3);
        }
        run.violations = run.requests - on_time;
        run.p95_ms = percentile(&took_ms, 0.95);
        run
    }
}
