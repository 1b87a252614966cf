//! Neurosurgeon (Kang et al., ASPLOS 2017): one cut between the device and one server.

use super::chain::{pairs, source};
use super::{Optimality, Partitioner, Plan, PlanError, Prediction, Problem};

/// A comparator. Its rule: the layer border with the least latency, or with the least energy *of the device*; of all servers
/// it takes the one for which that is least.
///
/// It plans from the same measured times and links as the others. It knows no price for shipping weights and no weighing of
/// goals: where energy counts more than latency by the objective, it goes by energy, else by latency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neurosurgeon;

impl Partitioner for Neurosurgeon {
    fn name(&self) -> &'static str {
        "neurosurgeon"
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let source = source(problem, self.name())?;
        let objective = problem.objective();
        let rule = |prediction: &Prediction| match objective.energy > objective.latency {
            true => device_energy_mj(problem, source, prediction),
            false => prediction.latency_ms,
        };
        let cuts = pairs(problem, source);
        let mut last = None;
        let mut best: Option<(f64, usize)> = None;
        for (index, cut) in cuts.iter().enumerate() {
            match problem.predict(cut).map(|prediction| rule(&prediction)) {
                Ok(value) if best.is_none_or(|(least, _)| value < least) => best = Some((value, index)),
                Ok(_) => {}
                Err(why) => last = Some(why),
            }
        }
        match (best, last) {
            (Some((_, index)), _) => {
                let chosen = cuts[index].clone();
                Ok(Plan::new(
                    problem,
                    self.name(),
                    chosen,
                    cuts,
                    Optimality::Unknown,
                )?)
            }
            (None, Some(why)) => Err(why.into()),
            (None, None) => Err(PlanError::NotForThis {
                policy: self.name(),
                why: "a cut",
            }),
        }
    }
}

/// What the device draws to compute its part and to send the rest: it takes waiting for free.
fn device_energy_mj(problem: &Problem, device: usize, prediction: &Prediction) -> f64 {
    let power = &problem.tiers()[device].power;
    let sends = prediction.links.iter().filter(|link| link.from == device);
    power.busy_w * prediction.tiers[device].compute_ms
        + power.transmit_w * sends.map(|link| link.ms).sum::<f64>()
}
