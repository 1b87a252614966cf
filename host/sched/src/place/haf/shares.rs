use serde::{Deserialize, Serialize};

/// Work that must be done in its time, whatever else there is: a radio's slot, a satellite's attitude control.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Must {
    /// Work that comes each time.
    pub work: f64,
    /// Seconds in which it must be done.
    pub within: f64,
}

/// A service that takes what is left.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Share {
    /// Work that waits.
    pub backlog: f64,
    /// Seconds that are left for it, in the mean.
    pub within: f64,
    /// What a second of waiting counts. `1 / within` makes urgent work count more.
    pub weight: f64,
    /// The least it gets, in work a second.
    pub least: f64,
}

/// The division of a node among its musts and services.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Shares {
    /// What each must gets: its floor.
    pub musts: Vec<f64>,
    /// What each service gets.
    pub services: Vec<f64>,
    /// The services whose work cannot be done in its time.
    pub late: Vec<usize>,
}

/// A node that cannot be divided.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// A number that is none, or out of its bounds.
    #[error("{field} is {value}, which no share can be computed from")]
    Number {
        /// Which.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// What must be done does not fit: shed services do not help, something has to move.
    #[error("what must be done needs {needed} of a capacity of {capacity}: move some of it to another node")]
    TooMuch {
        /// The sum of the floors.
        needed: f64,
        /// What there is.
        capacity: f64,
    },
}

/// Divides a node: first the floors of what must be done, then the rest so that the weighted time of all waiting work,
/// `Σ weight × backlog / share`, is least, while every service that can be done in its time is.
///
/// Without bounds the least lies at shares in proportion to `√(weight × backlog)` (by Lagrange). With bounds, a service whose
/// share would be under what it needs gets just that, and the others divide the rest in the same proportion, until all fit: the
/// solution of the bounded problem. Where not all can be in time, as many as possible are, the least demanding first, and the
/// others divide what is left. `O(n log n)` for the order, and as many passes as services that hit their bound.
///
/// # Errors
/// When a number is out of its bounds, or what must be done does not fit.
pub fn shares(capacity: f64, musts: &[Must], services: &[Share]) -> Result<Shares, ShareError> {
    check(capacity, musts, services)?;
    let floors: Vec<f64> = musts.iter().map(|must| must.work / must.within).collect();
    let needed: f64 = floors.iter().sum();
    if needed > capacity {
        return Err(ShareError::TooMuch { needed, capacity });
    }
    let rest = capacity - needed;
    let need = |service: &Share| (service.backlog / service.within).max(service.least);
    let mut order: Vec<usize> = (0..services.len()).collect();
    order.sort_by(|&a, &b| need(&services[a]).total_cmp(&need(&services[b])));

    // As many as fit are in time; the others come last.
    let mut bounds = vec![0.0; services.len()];
    let mut late = Vec::new();
    let mut left = rest;
    for &service in &order {
        let need = need(&services[service]);
        if need <= left {
            bounds[service] = need;
            left -= need;
        } else {
            late.push(service);
        }
    }
    let mut given = vec![0.0; services.len()];
    match late.is_empty() {
        true => divide(rest, services, &bounds, &mut given),
        false => {
            for &service in &order {
                given[service] = bounds[service];
            }
            let alone: Vec<Share> = late.iter().map(|&service| services[service]).collect();
            let mut parts = vec![0.0; alone.len()];
            divide(left, &alone, &vec![0.0; alone.len()], &mut parts);
            for (&service, part) in late.iter().zip(parts) {
                given[service] = part;
            }
            late.sort_unstable();
        }
    }
    Ok(Shares {
        musts: floors,
        services: given,
        late,
    })
}

/// Shares in proportion to the roots, none below its bound; the bounds fit.
fn divide(capacity: f64, services: &[Share], bounds: &[f64], given: &mut [f64]) {
    let root = |service: &Share| (service.weight * service.backlog).sqrt();
    let mut bound = vec![false; services.len()];
    loop {
        let free = || (0..services.len()).filter(|&service| !bound[service]);
        let taken: f64 = (0..services.len())
            .filter(|&service| bound[service])
            .map(|service| bounds[service])
            .sum();
        let roots: f64 = free().map(|service| root(&services[service])).sum();
        let count = free().count() as f64;
        for (service, share) in given.iter_mut().enumerate() {
            *share = match (bound[service], roots > 0.0) {
                (true, _) => bounds[service],
                (false, true) => (capacity - taken) * root(&services[service]) / roots,
                // Nothing waits: all alike.
                (false, false) => (capacity - taken) / count,
            };
        }
        let under: Vec<usize> = free()
            .filter(|&service| given[service] < bounds[service])
            .collect();
        if under.is_empty() {
            return;
        }
        under.into_iter().for_each(|service| bound[service] = true);
    }
}

fn check(capacity: f64, musts: &[Must], services: &[Share]) -> Result<(), ShareError> {
    let number = |field, value: f64, fits: bool| match fits && value.is_finite() {
        true => Ok(()),
        false => Err(ShareError::Number { field, value }),
    };
    number("capacity", capacity, capacity > 0.0)?;
    for must in musts {
        number("work of a must", must.work, must.work >= 0.0)?;
        number("time of a must", must.within, must.within > 0.0)?;
    }
    for service in services {
        number("backlog", service.backlog, service.backlog >= 0.0)?;
        number("time of a service", service.within, service.within > 0.0)?;
        number("weight", service.weight, service.weight > 0.0)?;
        number("least share", service.least, service.least >= 0.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn service(backlog: f64, within: f64) -> Share {
        Share {
            backlog,
            within,
            weight: 1.0 / within,
            least: 0.0,
        }
    }

    fn waiting(services: &[Share], given: &[f64]) -> f64 {
        let each = services.iter().zip(given);
        each.map(|(service, share)| service.weight * service.backlog / share)
            .sum()
    }

    #[test]
    fn what_must_be_done_comes_first() {
        let must = Must {
            work: 0.4,
            within: 0.1,
        };
        let error = shares(3.0, &[must], &[]).unwrap_err();
        assert_eq!(
            error,
            ShareError::TooMuch {
                needed: 4.0,
                capacity: 3.0
            }
        );
        let divided = shares(10.0, &[must], &[service(1.0, 1.0), service(4.0, 1.0)]).unwrap();
        assert_eq!(divided.musts, [4.0]);
        // Roots 1 and 2 would give 2 and 4; both are in time so.
        assert_eq!((divided.services, divided.late), (vec![2.0, 4.0], vec![]));
    }

    #[test]
    fn those_who_cannot_be_in_time_come_last() {
        let divided = shares(
            10.0,
            &[],
            &[service(30.0, 1.0), service(4.0, 1.0), service(20.0, 1.0)],
        )
        .unwrap();
        assert_eq!(divided.late, [0, 2]);
        assert_eq!(divided.services[1], 4.0);
        assert!((divided.services.iter().sum::<f64>() - 10.0).abs() < 1e-12);
        assert!(shares(f64::NAN, &[], &[]).is_err() && shares(1.0, &[], &[service(1.0, 0.0)]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The conditions of Karush, Kuhn and Tucker: where no bound binds, the marginal gain is the same; where one does, it is
        /// no more than that.
        #[test]
        fn no_share_could_be_better_used(
            services in proptest::collection::vec((0.01..50.0f64, 0.1..20.0f64), 1..8), spare in 1.0..3.0f64,
        ) {
            let services: Vec<Share> = services.into_iter().map(|(backlog, within)| service(backlog, within)).collect();
            let needs: Vec<f64> = services.iter().map(|service| service.backlog / service.within).collect();
            let capacity = needs.iter().sum::<f64>() * spare;
            let divided = shares(capacity, &[], &services).unwrap();
            prop_assert!(divided.late.is_empty());
            prop_assert!((divided.services.iter().sum::<f64>() / capacity - 1.0).abs() < 1e-9);
            let margin = |n: usize| services[n].weight * services[n].backlog / divided.services[n].powi(2);
            let free: Vec<usize> =
                (0..services.len()).filter(|&n| divided.services[n] > needs[n] * (1.0 + 1e-9)).collect();
            for (n, need) in needs.iter().enumerate() {
                prop_assert!(divided.services[n] >= need * (1.0 - 1e-9));
                if let Some(&first) = free.first() {
                    prop_assert!(margin(n) <= margin(first) * (1.0 + 1e-9));
                    if free.contains(&n) {
                        prop_assert!((margin(n) / margin(first) - 1.0).abs() < 1e-9);
                    }
                }
            }
        }

        /// No division on a grid is better.
        #[test]
        fn no_grid_finds_a_better_one(
            services in proptest::collection::vec((0.5..10.0f64, 0.5..5.0f64), 3..=3), spare in 1.02..2.0f64,
        ) {
            let services: Vec<Share> = services.into_iter().map(|(backlog, within)| service(backlog, within)).collect();
            let needs: Vec<f64> = services.iter().map(|service| service.backlog / service.within).collect();
            let capacity = needs.iter().sum::<f64>() * spare;
            let ours = waiting(&services, &shares(capacity, &[], &services).unwrap().services);
            for a in 1..60 {
                for b in 1..60 - a {
                    let parts = [a, b, 60 - a - b].map(|part| capacity * f64::from(part) / 60.0);
                    if parts.iter().zip(&needs).all(|(part, need)| part >= need) {
                        prop_assert!(ours <= waiting(&services, &parts) * (1.0 + 1e-9));
                    }
                }
            }
        }
    }
}
