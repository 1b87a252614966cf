use super::{Must, Share, shares};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node that services live on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Host {
    /// Work that it does in a second.
    pub capacity: f64,
    /// Bytes that it receives in a second.
    pub rate: f64,
    /// What must be done there.
    pub musts: Vec<Must>,
}

/// A service that answers requests, and could live elsewhere.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Service {
    /// The host, by its place.
    pub host: usize,
    /// Requests in a second, as expected.
    pub demand: f64,
    /// Work of one.
    pub work: f64,
    /// Seconds in which one must be answered.
    pub within: f64,
    /// Bytes that move with it.
    pub state: u64,
    /// Seconds that it takes to start.
    pub startup: f64,
}

/// The predicted effect of a move.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Forecast {
    /// Requests over the horizon that are answered in time only because of it, over all services on both hosts.
    pub gain: f64,
    /// Requests that are lost while it moves.
    pub loss: f64,
}

/// A move that was proposed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Move {
    /// The service, by its place.
    pub service: usize,
    /// From where.
    pub from: usize,
    /// To where.
    pub to: usize,
    /// What it is expected to bring, to be held against what it brings.
    pub forecast: Forecast,
    /// The second best host, with the same.
    pub runner_up: Option<(usize, Forecast)>,
    /// Whether it is made.
    pub accepted: bool,
    /// Why, or why not.
    pub reason: MoveReason,
}

/// Why a move is made, or not.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum MoveReason {
    /// It gains more than it loses, by the margin that is asked for.
    Worth,
    /// It loses more than it gains, or not enough less.
    CostsMore,
    /// The service has moved a short time ago.
    MovedLately,
}

/// Refuses moves that cost more than they gain.
#[derive(Clone, Debug, Default)]
pub struct Critic {
    settings: CriticSettings,
    /// When each service moved last.
    moved: BTreeMap<usize, f64>,
}

/// The constants of [`Critic`] and [`Haf`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct CriticSettings {
    /// Seconds over which a gain counts. Default 60.
    pub horizon: f64,
    /// How many times its loss a move has to gain. Default 1.2.
    pub margin: f64,
    /// Seconds in which a service moves at most once. Default 60.
    pub rest: f64,
    /// The share of requests that are kept while a service moves. Default 0.
    pub buffer: f64,
    /// Seconds between two looks. Default 10.
    pub period: f64,
}

impl Default for CriticSettings {
    fn default() -> Self {
        Self {
            horizon: 60.0,
            margin: 1.2,
            rest: 60.0,
            buffer: 0.0,
            period: 10.0,
        }
    }
}

impl Critic {
    /// With these constants.
    pub const fn new(settings: CriticSettings) -> Self {
        Self {
            settings,
            moved: BTreeMap::new(),
        }
    }

    /// What a move would bring: both hosts are divided as they are and as they would be.
    pub fn forecast(&self, hosts: &[Host], services: &[Service], service: usize, to: usize) -> Forecast {
        let from = services[service].host;
        let mut after = services.to_vec();
        after[service].host = to;
        let in_time = |services: &[Service]| -> f64 {
            [from, to]
                .into_iter()
                .map(|host| answered(hosts, services, host))
                .sum()
        };
        let interruption =
            services[service].state as f64 / hosts[to].rate.min(hosts[from].rate) + services[service].startup;
        Forecast {
            gain: (in_time(&after) - in_time(services)) * self.settings.horizon,
            loss: services[service].demand * interruption * (1.0 - self.settings.buffer),
        }
    }

    /// Judges a proposed move.
    pub fn judge(&mut self, now: f64, proposed: Move) -> Move {
        let lately = self
            .moved
            .get(&proposed.service)
            .is_some_and(|at| now - at < self.settings.rest);
        let Forecast { gain, loss } = proposed.forecast;
        let reason = match gain > self.settings.margin * loss && gain > 0.0 {
            _ if lately => MoveReason::MovedLately,
            true => MoveReason::Worth,
            false => MoveReason::CostsMore,
        };
        let accepted = reason == MoveReason::Worth;
        if accepted {
            self.moved.insert(proposed.service, now);
        }
        Move {
            accepted,
            reason,
            ..proposed
        }
    }
}

/// Requests a second that are answered in time on a host, as its division says: each service as a queue of its own with its
/// share for a server.
fn answered(hosts: &[Host], services: &[Service], host: usize) -> f64 {
    let here: Vec<&Service> = services.iter().filter(|service| service.host == host).collect();
    let wanted: Vec<Share> = here.iter().map(|service| service.share()).collect();
    let Ok(divided) = shares(hosts[host].capacity, &hosts[host].musts, &wanted) else {
        return 0.0;
    };
    let each = here.iter().zip(&divided.services);
    each.map(|(service, share)| service.demand * service.in_time(*share))
        .sum()
}

impl Service {
    /// What it asks of a host: the work that comes in the time of one request.
    fn share(&self) -> Share {
        Share {
            backlog: self.demand * self.work * self.within,
            within: self.within,
            weight: 1.0 / self.within,
            least: 0.0,
        }
    }

    /// The share of its requests that are answered in time, if it does so much work a second (the sojourn time of M/M/1).
    fn in_time(&self, share: f64) -> f64 {
        let spare = share / self.work - self.demand;
        match spare > 0.0 {
            true => 1.0 - (-spare * self.within).exp(),
            false => 0.0,
        }
    }
}

/// Moves services between hosts, slowly: every period the service that misses most goes to the host with the most free, if the
/// [`Critic`] lets it, and the next one where it does not.
#[derive(Clone, Debug, Default)]
pub struct Haf {
    critic: Critic,
}

impl Haf {
    /// With these constants.
    pub const fn new(settings: CriticSettings) -> Self {
        Self {
            critic: Critic::new(settings),
        }
    }

    /// Seconds between two looks.
    pub const fn period(&self) -> f64 {
        self.critic.settings.period
    }

    /// What is proposed and decided now: the first move that is made, else the first that is refused; nothing where every service is in time
    /// or there is nowhere to go.
    pub fn look(&mut self, now: f64, hosts: &[Host], services: &[Service]) -> Option<Move> {
        let (missed, free) = (missed(hosts, services), free(hosts, services));
        let mut worst: Vec<usize> = (0..services.len())
            .filter(|&service| missed[service] > 0.0)
            .collect();
        worst.sort_by(|&a, &b| missed[b].total_cmp(&missed[a]).then(b.cmp(&a)));
        let mut refused = None;
        for service in worst {
            let proposed = self.proposed(hosts, services, &free, service)?;
            let judged = self.critic.judge(now, proposed);
            if judged.accepted {
                return Some(judged);
            }
            refused.get_or_insert(judged);
        }
        refused
    }

    /// That a service goes to the host with the most free; nothing where it is on the only one.
    fn proposed(&self, hosts: &[Host], services: &[Service], free: &[f64], service: usize) -> Option<Move> {
        let from = services[service].host;
        let mut others: Vec<usize> = (0..hosts.len()).filter(|&host| host != from).collect();
        others.sort_by(|&a, &b| free[b].total_cmp(&free[a]).then(a.cmp(&b)));
        let mut forecasts = others.iter().take(2).map(|&to| {
            let forecast = self.critic.forecast(hosts, services, service, to);
            (to, forecast)
        });
        let (to, forecast) = forecasts.next()?;
        Some(Move {
            service,
            from,
            to,
            forecast,
            runner_up: forecasts.next(),
            accepted: false,
            reason: MoveReason::CostsMore,
        })
    }
}

/// Work a second that each host could do besides.
fn free(hosts: &[Host], services: &[Service]) -> Vec<f64> {
    let musts = |host: &Host| host.musts.iter().map(|must| must.work / must.within).sum::<f64>();
    let mut free: Vec<f64> = hosts.iter().map(|host| host.capacity - musts(host)).collect();
    for service in services {
        free[service.host] -= service.demand * service.work;
    }
    free
}

/// Requests a second that each service misses.
fn missed(hosts: &[Host], services: &[Service]) -> Vec<f64> {
    let mut missed = vec![0.0; services.len()];
    for (place, host) in hosts.iter().enumerate() {
        let here: Vec<usize> = (0..services.len())
            .filter(|&service| services[service].host == place)
            .collect();
        let wanted: Vec<Share> = here.iter().map(|&service| services[service].share()).collect();
        let divided = shares(host.capacity, &host.musts, &wanted);
        for (n, &service) in here.iter().enumerate() {
            let share = divided.as_ref().map_or(0.0, |divided| divided.services[n]);
            missed[service] = services[service].demand * (1.0 - services[service].in_time(share));
        }
    }
    // A miss in a thousand is no reason to move.
    missed
        .into_iter()
        .zip(services)
        .map(|(missed, service)| {
            if missed < 1e-3 * service.demand {
                0.0
            } else {
                missed
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(capacity: f64) -> Host {
        Host {
            capacity,
            rate: 1e6,
            musts: vec![Must {
                work: 0.1,
                within: 0.1,
            }],
        }
    }

    fn service(host: usize, demand: f64, state: u64) -> Service {
        Service {
            host,
            demand,
            work: 1.0,
            within: 0.5,
            state,
            startup: 1.0,
        }
    }

    #[test]
    fn a_service_leaves_a_host_that_is_too_full_once() {
        let hosts = [host(10.0), host(20.0), host(12.0)];
        let mut services = [service(0, 6.0, 1_000_000), service(0, 7.0, 1_000_000)];
        let mut haf = Haf::default();
        let made = haf.look(0.0, &hosts, &services).unwrap();
        assert_eq!(
            (made.to, made.accepted, made.reason),
            (1, true, MoveReason::Worth)
        );
        assert_eq!(made.runner_up.map(|(host, _)| host), Some(2));
        assert!(
            made.forecast.gain > 60.0 && made.forecast.loss < 20.0,
            "{:?}",
            made.forecast
        );
        services[made.service].host = 1;
        assert_eq!(
            haf.look(10.0, &hosts, &services).filter(|again| again.accepted),
            None
        );
    }

    #[test]
    fn a_move_that_costs_more_than_it_gains_is_refused() {
        let hosts = [host(10.0), host(20.0)];
        // Two hundred seconds on the way.
        let heavy = [service(0, 6.0, 200_000_000), service(0, 7.0, 200_000_000)];
        let refused = Haf::default().look(0.0, &hosts, &heavy).unwrap();
        assert_eq!((refused.accepted, refused.reason), (false, MoveReason::CostsMore));
        // A service that has just moved stays, however full its new host is.
        let mut haf = Haf::default();
        let services = [service(0, 6.0, 0), service(0, 7.0, 0)];
        let moved = haf.look(0.0, &hosts, &services).unwrap();
        let mut back = services;
        back[1 - moved.service].host = 1;
        back[moved.service] = service(1, 25.0, 0);
        let mut alone = back;
        alone[1 - moved.service] = service(0, 1.0, 0);
        let again = haf.look(30.0, &hosts, &alone).unwrap();
        assert_eq!(
            (again.service, again.reason),
            (moved.service, MoveReason::MovedLately)
        );
        // It keeps nobody else there.
        let other = haf.look(30.0, &hosts, &back).unwrap();
        assert_eq!(
            (other.service, other.reason),
            (1 - moved.service, MoveReason::Worth)
        );
        assert!(haf.look(60.0, &hosts, &back).unwrap().reason != MoveReason::MovedLately);
    }

    #[test]
    fn nobody_moves_while_all_are_in_time() {
        let hosts = [host(50.0), host(50.0)];
        assert_eq!(Haf::default().look(0.0, &hosts, &[service(0, 2.0, 0)]), None);
    }
}
