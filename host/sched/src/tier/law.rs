use serde::{Deserialize, Serialize};

/// Mean latency of a request as a function of load and replicas: the service time plus a wait of Erlang's kind,
/// `service + scale * service * w / (1 - load)^power`, where `w` is by the [`Discipline`] of the queue.
///
/// With `scale` and `power` 1 it is M/M/c: exact for Poisson arrivals and exponential service. Real arrivals and services vary less
/// or more, so both are fitted ([`LoadLaw::fit`]). A function of load per replica alone does not do: at the same load, more
/// replicas behind one queue wait less.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LoadLaw {
    /// Seconds of a request that meets no other.
    pub service: f64,
    /// Of the wait, over that of M/M/c.
    pub scale: f64,
    /// How fast the wait grows towards saturation.
    pub power: f64,
    /// How requests come to replicas.
    pub discipline: Discipline,
    /// Requests a second that never meet another: those of a single client that waits for its answer. 0 for many clients.
    pub alone: f64,
}

/// The queueing discipline: how requests come to replicas.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// One queue before all of them: Erlang's C formula.
    Shared,
    /// Each has its own, and requests are dealt out: c queues of one.
    Split,
}

/// One measured point of the latency law.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Calibration {
    /// Requests a second.
    pub rate: f64,
    /// Replicas.
    pub replicas: u32,
    /// Seconds in the mean.
    pub latency: f64,
}

/// Points to which no law can be fitted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LawError {
    /// Too few.
    #[error("{points} points are too few to fit a law; it takes 3")]
    TooFew {
        /// How many there are.
        points: usize,
    },
    /// A number that is none, or not over zero.
    #[error("point {point}: `{field}` is {value}; it must be finite and over 0")]
    Value {
        /// Its place.
        point: usize,
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
    },
    /// More comes than is served: what was measured is how long the measurement was.
    #[error("point {point} is overloaded: {load:.2} of what its replicas can do")]
    Overloaded {
        /// Its place.
        point: usize,
        /// Its load.
        load: f64,
    },
}

impl LoadLaw {
    /// M/M/c with this service time in seconds.
    pub const fn erlang(service: f64) -> Self {
        Self {
            service,
            scale: 1.0,
            power: 1.0,
            discipline: Discipline::Shared,
            alone: 0.0,
        }
    }

    /// The share of what the replicas can do.
    pub fn load(&self, rate: f64, replicas: u32) -> f64 {
        rate * self.service / f64::from(replicas.max(1))
    }

    /// Seconds of a request in the mean; infinite where more comes than is served.
    pub fn latency(&self, rate: f64, replicas: u32) -> f64 {
        self.service + self.scale * self.service * self.wait(rate, replicas)
    }

    /// In service times, before it is scaled.
    fn wait(&self, rate: f64, replicas: u32) -> f64 {
        let load = self.load(rate, replicas);
        if load >= 1.0 {
            return f64::INFINITY;
        }
        let others = self.load((rate - self.alone).max(0.0), replicas);
        let waits = match self.discipline {
            Discipline::Shared => erlang_c(others, replicas) / f64::from(replicas.max(1)),
            Discipline::Split => others,
        };
        waits / (1.0 - load).powf(self.power)
    }

    /// The law with the least relative error at these points. The service time of the least loaded point sets the loads.
    ///
    /// # Errors
    /// Too few points, numbers that are none, points at or over what the replicas can do.
    pub fn fit(points: &[Calibration], discipline: Discipline, alone: f64) -> Result<Self, LawError> {
        let service = check(points)?;
        let of_power = |tenths: u32| {
            let shape = Self {
                service,
                scale: 1.0,
                power: f64::from(tenths) / 10.0,
                discipline,
                alone,
            };
            let law = shape.fit_scale(points);
            (law.squared_error(points), law)
        };
        let best = (0..=20)
            .map(of_power)
            .min_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(best.map_or_else(|| Self::erlang(service), |(_, law)| law))
    }

    /// Service time and scale by weighted least squares, the waits being those of this law's loads.
    fn fit_scale(self, points: &[Calibration]) -> Self {
        let (mut ss, mut sw, mut ww, mut sy, mut wy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for point in points {
            // Relative errors: both sides are divided by what was measured.
            let one = 1.0 / point.latency;
            let wait = self.service * self.wait(point.rate, point.replicas) * one;
            ss += one * one;
            sw += one * wait;
            ww += wait * wait;
            sy += one;
            wy += wait;
        }
        let determinant = ss * ww - sw * sw;
        let scale = (ss * wy - sw * sy) / determinant;
        if determinant <= 1e-12 * ss * ww || scale <= 0.0 {
            // No wait to be seen: latency is service.
            return Self {
                service: sy / ss,
                scale: 0.0,
                ..self
            };
        }
        let service = (sy - sw * scale) / ss;
        // The waits were those of the first service time; the scale takes up the difference.
        Self {
            service,
            scale: scale * self.service / service,
            ..self
        }
    }

    fn squared_error(&self, points: &[Calibration]) -> f64 {
        points
            .iter()
            .map(|point| (self.latency(point.rate, point.replicas) / point.latency - 1.0).powi(2))
            .sum()
    }
}

/// For every point the relative error of the law that is fitted to the others, above zero where the law says too much.
///
/// # Errors
/// Those of [`LoadLaw::fit`].
pub fn leave_one_out(
    points: &[Calibration],
    discipline: Discipline,
    alone: f64,
) -> Result<Vec<f64>, LawError> {
    let error = |left_out: usize| {
        let mut others = points.to_vec();
        let point = others.remove(left_out);
        let law = LoadLaw::fit(&others, discipline, alone)?;
        Ok(law.latency(point.rate, point.replicas) / point.latency - 1.0)
    };
    (0..points.len()).map(error).collect()
}

fn check(points: &[Calibration]) -> Result<f64, LawError> {
    if points.len() < 3 {
        return Err(LawError::TooFew { points: points.len() });
    }
    for (
        index,
        Calibration {
            rate,
            replicas,
            latency,
        },
    ) in points.iter().enumerate()
    {
        for (field, value) in [
            ("rate", *rate),
            ("replicas", f64::from(*replicas)),
            ("latency", *latency),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(LawError::Value {
                    point: index,
                    field,
                    value,
                });
            }
        }
    }
    let service = points
        .iter()
        .map(|point| point.latency)
        .fold(f64::INFINITY, f64::min);
    let loads = points
        .iter()
        .map(|point| LoadLaw::erlang(service).load(point.rate, point.replicas));
    match loads.enumerate().find(|(_, load)| *load >= 1.0) {
        Some((point, load)) => Err(LawError::Overloaded { point, load }),
        None => Ok(service),
    }
}

/// The probability that a request waits, by Erlang's C formula.
fn erlang_c(load: f64, servers: u32) -> f64 {
    // Erlang's B by its recursion, which does not overflow.
    let offered = load * f64::from(servers);
    let blocked = (1..=servers).fold(1.0, |blocked, n| {
        offered * blocked / (f64::from(n) + offered * blocked)
    });
    blocked / (1.0 - load * (1.0 - blocked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn erlang_is_erlang() {
        // Two servers at half load: 1/3 of requests wait.
        assert!((erlang_c(0.5, 2) - 1.0 / 3.0).abs() < 1e-12);
        // M/M/1: service over what is free.
        assert!((LoadLaw::erlang(0.5).latency(1.0, 1) - 1.0).abs() < 1e-12);
        assert_eq!(LoadLaw::erlang(0.5).latency(2.0, 1), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn a_law_is_found_in_its_own_points(service in 0.01f64..3.0, scale in 0.1f64..3.0, tenths in 0u32..20, split: bool) {
            let discipline = if split { Discipline::Split } else { Discipline::Shared };
            let law = LoadLaw { service, scale, power: f64::from(tenths) / 10.0, discipline, alone: 0.0 };
            let mut points = vec![];
            for replicas in [1, 2, 4] {
                for load in [1e-4, 0.3, 0.6, 0.8] {
                    let rate = load * f64::from(replicas) / service;
                    points.push(Calibration { rate, replicas, latency: law.latency(rate, replicas) });
                }
            }
            let fitted = LoadLaw::fit(&points, discipline, 0.0).unwrap();
            for point in points {
                prop_assert!((fitted.latency(point.rate, point.replicas) / point.latency - 1.0).abs() < 0.01, "{law:?} {fitted:?}");
            }
        }

        #[test]
        fn more_replicas_never_take_longer(rate in 0.0f64..20.0, replicas in 1u32..20, split: bool) {
            let discipline = if split { Discipline::Split } else { Discipline::Shared };
            let law = LoadLaw { discipline, ..LoadLaw::erlang(0.7) };
            prop_assert!(law.latency(rate, replicas + 1) <= law.latency(rate, replicas) + 1e-12);
        }
    }

    #[test]
    fn bad_points_are_named() {
        let point = |rate, latency| Calibration {
            rate,
            replicas: 1,
            latency,
        };
        let fit = |points: &[Calibration]| LoadLaw::fit(points, Discipline::Shared, 0.0);
        assert_eq!(fit(&[point(1.0, 0.5); 2]), Err(LawError::TooFew { points: 2 }));
        let nan = fit(&[point(1.0, 0.5), point(1.0, f64::NAN), point(1.0, 0.5)]);
        assert!(matches!(
            nan,
            Err(LawError::Value {
                point: 1,
                field: "latency",
                ..
            })
        ));
        let over = fit(&[point(1.0, 0.5), point(1.5, 0.9), point(2.0, 5.0)]);
        assert!(matches!(over, Err(LawError::Overloaded { point: 2, .. })));
    }
}
