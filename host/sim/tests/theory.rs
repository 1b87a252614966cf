//! What queueing theory knows, the simulator finds: mean waits of M/M/1, M/M/c and M/D/1, Little's law, the utilisation law.
//!
//! Seeds are fixed. A tolerance is four standard errors, estimated from the means of independent runs: were the simulator
//! wrong by more than that, or the standard error badly estimated, a test would fail.

use karman_sim::{
    Arrivals, Instant, Model, Sampler, Samples, Schedule, Shape, Simulation, Station, Streams, seconds,
};

/// A station to which jobs come, each with its work.
struct Shop {
    arrivals: Arrivals,
    service: (f64, Sampler),
    random: [fastrand::Rng; 2],
    station: Station<()>,
    waits: Samples,
    ended: u64,
}

enum Event {
    Arrival,
    End,
    WarmedUp,
}

impl Model for Shop {
    type Event = Event;

    fn handle(&mut self, event: Event, schedule: &mut Schedule<Event>) {
        let now = schedule.now();
        match event {
            Event::Arrival => {
                self.station.arrive(now, ());
                if let Some(at) = self.arrivals.next(now, &mut self.random[0]) {
                    schedule.at(at, Event::Arrival);
                }
            }
            Event::End => {
                self.station.end(now);
                self.ended += 1;
            }
            Event::WarmedUp => {
                self.station.restart(now);
                self.waits = Samples::default();
                self.ended = 0;
            }
        }
        while let Some(queued) = self.station.start(now) {
            self.waits.push(now.since(queued.since).as_secs_f64());
            let (mean, shape) = self.service;
            schedule.after(seconds(mean * shape.draw(&mut self.random[1])), Event::End);
        }
    }
}

const WARM_UP: f64 = 500.0;
const LENGTH: f64 = 4_000.0;
const RUNS: u64 = 20;

fn sampler(shape: Shape) -> Sampler {
    shape.sampler().expect("a distribution")
}

fn run(seed: u64, rate: f64, servers: u64, service: Shape) -> Simulation<Shop> {
    let streams = Streams::new(seed);
    let mut simulation = Simulation::new(Shop {
        arrivals: Arrivals::new(rate, sampler(Shape::Exponential)).expect("a rate"),
        service: (1.0, sampler(service)),
        random: [streams.stream("arrivals", 0), streams.stream("service", 0)],
        station: Station::new(servers, Instant::START),
        waits: Samples::default(),
        ended: 0,
    });
    simulation.schedule().at(Instant::START, Event::Arrival);
    simulation
        .schedule()
        .at(Instant::from_secs_f64(WARM_UP), Event::WarmedUp);
    simulation.run_until(Instant::from_secs_f64(WARM_UP + LENGTH));
    simulation
}

/// Compares the mean of independent runs with what theory says.
fn assert_mean(what: &str, values: &[f64], theory: f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    assert!(
        (mean - theory).abs() < 4.0 * error && error < 0.1 * theory,
        "{what}: {mean} +- {error}, theory {theory}"
    );
}

/// The probability to wait in M/M/c with this load in Erlang (Erlang, 1917).
fn erlang_c(load: f64, servers: u64) -> f64 {
    let mut term = 1.0;
    let mut sum = 0.0;
    for n in 0..servers {
        sum += term;
        term *= load / (n + 1) as f64;
    }
    let all_busy = term / (1.0 - load / servers as f64);
    all_busy / (sum + all_busy)
}

#[test]
fn waits_utilisation_and_throughput_are_those_of_theory() {
    for (rate, servers, service) in [
        (0.5, 1, Shape::Exponential),
        (0.8, 1, Shape::Exponential),
        (0.8, 1, Shape::Constant),
        (2.4, 3, Shape::Exponential),
        (6.0, 8, Shape::Exponential),
    ] {
        let runs: Vec<_> = (0..RUNS).map(|seed| run(seed, rate, servers, service)).collect();
        let of = |value: &dyn Fn(&Simulation<Shop>) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
        let what = |name: &str| format!("{name}, rate {rate}, {servers} servers, {service:?}");
        // Pollaczek and Khinchine: without variance the wait of M/D/1 is half that of M/M/1.
        let half = if service == Shape::Constant { 0.5 } else { 1.0 };
        let wait = half * erlang_c(rate, servers) / (servers as f64 - rate);
        assert_mean(&what("wait"), &of(&|run| run.model().waits.mean().unwrap()), wait);
        let now = runs[0].now();
        let busy = of(&|run| run.model().station.servers.utilisation(now));
        assert_mean(&what("utilisation"), &busy, rate / servers as f64);
        let length = of(&|run| run.model().station.queue.length().mean(now));
        assert_mean(&what("queue length"), &length, rate * wait);
        assert_mean(
            &what("throughput"),
            &of(&|run| run.model().ended as f64 / LENGTH),
            rate,
        );
    }
}

#[test]
fn littles_law_holds_in_every_run() {
    for seed in 0..5 {
        let run = run(seed, 0.7, 1, Shape::Exponential);
        let shop = run.model();
        let length = shop.station.queue.length().mean(run.now());
        let waits = shop.waits.values();
        let little = waits.iter().sum::<f64>() / LENGTH;
        // The law is exact but for those who wait when the measurement begins and ends.
        assert!(
            (length - little).abs() < 0.02 * length + 0.01,
            "{length} {little}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let waits = |seed| {
        run(seed, 0.8, 1, Shape::LogNormal { sigma: 1.0 })
            .into_model()
            .waits
    };
    assert_eq!(waits(3), waits(3));
    assert_ne!(waits(3), waits(4));
}
