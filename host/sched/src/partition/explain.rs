//! A plan in words, as `karman model plan` prints it.

use super::{Lost, Optimality, Plan, Prediction, Problem, RunnerUp, Term};
use std::fmt;

/// A [`Plan`] with the problem that gives its numbers names. Made by [`Plan::explain`].
pub struct Explanation<'a> {
    plan: &'a Plan,
    problem: &'a Problem,
}

impl Plan {
    /// The plan in words: the cut, what it takes in total, on each tier and each link, and why the runners-up lost.
    pub const fn explain<'a>(&'a self, problem: &'a Problem) -> Explanation<'a> {
        Explanation { plan: self, problem }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, problem } = self;
        let used = &plan.prediction;
        writeln!(f, "{}: {}", plan.policy, self.cut(&plan.assignment))?;
        writeln!(f, "  {}; {}", self.totals(used), self.optimality())?;
        for tier in used.tiers.iter().filter(|tier| tier.layers > 0) {
            writeln!(
                f,
                "  {}: {} layers, {:.3} ms, {} bytes of memory{}",
                tier.name,
                tier.layers,
                tier.compute_ms,
                tier.memory_bytes,
                self.energy(tier.energy_mj)
            )?;
        }
        for link in &used.links {
            let (from, to) = (self.name(link.from), self.name(link.to));
            let (messages, bytes, ms) = (link.messages, link.bytes, link.ms);
            writeln!(
                f,
                "  {from} to {to}: {messages} tensors, {bytes} bytes, {ms:.3} ms"
            )?;
        }
        if used.shipping.bytes > 0 {
            let (bytes, ms) = (used.shipping.bytes, used.shipping.ms);
            writeln!(f, "  weights to be sent first: {bytes} bytes, {ms:.0} ms")?;
        }
        for other in &plan.runners_up {
            writeln!(f, "  not {}: {}", self.cut(&other.assignment), self.lost(other))?;
        }
        debug_assert_eq!(plan.assignment.len(), problem.graph().layers().len());
        Ok(())
    }
}

impl Explanation<'_> {
    fn name(&self, tier: usize) -> &str {
        &self.problem.tiers()[tier].name
    }

    /// The fragments: `edge conv1..pool2 (4), cloud conv3..fc3 (7)`.
    fn cut(&self, assignment: &[usize]) -> String {
        let layers = self.problem.graph().layers();
        let mut parts = Vec::new();
        for tier in 0..self.problem.tiers().len() {
            let order = self.problem.graph().order().iter();
            let of_tier: Vec<usize> = order
                .copied()
                .filter(|layer| assignment[*layer] == tier)
                .collect();
            if let (Some(first), Some(last)) = (of_tier.first(), of_tier.last()) {
                let (first, last) = (&layers[*first].name, &layers[*last].name);
                parts.push(format!("{} {first}..{last} ({})", self.name(tier), of_tier.len()));
            }
        }
        parts.join(", ")
    }

    fn optimality(&self) -> String {
        match self.plan.optimality {
            Optimality::Proven => "no cut is better".into(),
            Optimality::Within(gap) => format!("at most {gap:.3} from the best cut"),
            Optimality::Unknown => "a better cut may exist".into(),
        }
    }

    fn lost(&self, other: &RunnerUp) -> String {
        let (by, mostly, more) = match &other.lost {
            Lost::Infeasible(why) => return why.to_string(),
            Lost::Costlier { by, mostly, more } => (by, mostly, more),
        };
        let mostly = match mostly {
            Term::Compute(tier) => format!("computing on {}", self.name(*tier)),
            Term::Transfer { from, to } => format!("sending from {} to {}", self.name(*from), self.name(*to)),
            Term::Interval => "the slowest stage".into(),
            Term::Shipping => "sending weights".into(),
        };
        let totals = other.prediction.as_ref().map(|used| self.totals(used));
        let totals = totals.unwrap_or_default();
        // A cut that is given keeps its place before a better one.
        let than = if *by < 0.0 { "cheaper" } else { "costlier" };
        format!(
            "{:.1} % {than}, most of it ({more:+.3}) for {mostly}; {totals}",
            by.abs() * 100.0
        )
    }

    /// A sum over tiers of which one does not say what it draws would be no sum.
    fn energy(&self, energy_mj: f64) -> String {
        match self.problem.tiers().iter().all(|tier| tier.power.busy_w > 0.0) {
            true => format!(", {energy_mj:.3} mJ"),
            false => String::new(),
        }
    }

    fn totals(&self, used: &Prediction) -> String {
        let Prediction {
            latency_ms,
            energy_mj,
            interval_ms,
            ..
        } = used;
        let energy = self.energy(*energy_mj);
        format!("{latency_ms:.3} ms{energy}, a result each {interval_ms:.3} ms when saturated")
    }
}

#[cfg(test)]
mod tests {
    use crate::partition::*;

    #[test]
    fn a_better_cut_than_the_given_one_is_told_as_cheaper() {
        let layer = |name| Layer::measured(name, &[10.0, 1.0], 0, 0);
        let graph = LayerGraph::chain(vec![layer("a"), layer("b")], 1000, &[1000, 1000]).unwrap();
        let link = |from, to| Link {
            from,
            to,
            rate_mbit_s: 1000.0,
            latency_ms: 0.1,
            message_ms: 0.0,
        };
        let tiers = ["edge", "cloud"].map(Tier::new).to_vec();
        let links = vec![link(0, 1), link(1, 0)];
        let problem = Problem::new(graph, tiers, links, Objective::LATENCY, Weights::Everywhere).unwrap();
        let plan = Pinned { ends: vec![1] }.plan(&problem).unwrap();
        let words = plan.explain(&problem).to_string();
        assert!(
            words.contains("% cheaper, most of it (-10.000) for computing on edge"),
            "{words}"
        );
        assert!(
            words.contains("% costlier, most of it (+10.000) for computing on edge"),
            "{words}"
        );
    }
}
