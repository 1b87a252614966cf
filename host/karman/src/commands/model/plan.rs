use super::inside::{Memory, inside, memory};
use crate::app::App;
use crate::control::{Control, escape};
use crate::slo::{Kept, kept, limited};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::Method;
use karman_node::{CutBy, SplitOrder, SplitPlan};
use karman_sched::partition::Bounded;
use karman_types::{Slo, TaskError};
use serde_json::json;

/// `karman model plan`
#[derive(Args, Debug)]
pub(super) struct Plan {
    /// The model's name
    name: String,
    /// Which nodes may take part besides this one: tier=fog, an id, all; may be given again [default: the nearest of each tier]
    #[arg(long, value_name = "SELECTOR")]
    over: Vec<String>,
    /// Weight of each millisecond of latency [default: 1 if no other weight is given]
    #[arg(long, value_name = "WEIGHT", value_parser = weight)]
    latency: Option<f64>,
    /// Weight of each millijoule that all nodes draw together
    #[arg(long, value_name = "WEIGHT", value_parser = weight)]
    energy: Option<f64>,
    /// Weight of each millisecond of the slowest stage (throughput)
    #[arg(long, value_name = "WEIGHT", value_parser = weight)]
    interval: Option<f64>,
    /// What a request is to keep, instead of weights: `p95=50ms`, `energy=0.2` (joules; with `requests=100` of so many together); or
    /// `energy=min`, `p95=min`: as little as the other limit allows; may be given again
    #[arg(long, value_name = "LIMIT", value_parser = kept, conflicts_with_all = ["latency", "energy", "interval"])]
    slo: Vec<Kept>,
    /// Largest error that a link may add to an activation, as a share of the largest value in its tensor: 0.001 allows half precision,
    /// 0.004 eight bits [default: 0, lossless]
    #[arg(long, value_name = "SHARE", value_parser = weight)]
    max_error: Option<f64>,
    /// Which planner chooses the cut
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    policy: By,
    /// How much better another cut has to be before requests move to it, as a share; more keeps a cut longer where measurements scatter
    /// [default: 0.005; with --policy neurosurgeon 0]
    #[arg(long, value_name = "SHARE", value_parser = weight, conflicts_with = "cut")]
    hysteresis: Option<f64>,
    /// A fixed cut: for each node but the last, the number of layers before the next node's first
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', conflicts_with = "policy")]
    cut: Vec<usize>,
    /// Do not time the model where it was never timed: predict it there from the models that were, if any
    #[arg(long)]
    predict: bool,
    /// Split a quantised model inside its layers over the nodes of --on, for nodes without the memory for a layer
    #[arg(long, requires = "on", conflicts_with_all = ["over", "latency", "energy", "interval", "slo", "max_error", "policy", "hysteresis", "cut", "predict", "whole"])]
    inside: bool,
    /// With --inside: the nodes that compute, this one only where it is named: tier=edge, an id, all; may be given again
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',', requires = "inside")]
    on: Vec<String>,
    /// With --inside: what a piece of a layer may take on a node besides the plugin's own memory, such as 192KiB, or on one of them:
    /// 9c01d2e7=64KiB; may be given again [default: 24MiB, which is the most]
    #[arg(long, value_name = "[SELECTOR=]SIZE", requires = "inside", value_parser = memory)]
    memory: Vec<Memory>,
    /// Run the model like that from now on; the cuts then follow the links and the load
    #[arg(long)]
    apply: bool,
    /// Run the model on this node alone again
    #[arg(long, conflicts_with_all = ["over", "latency", "energy", "interval", "slo", "max_error", "policy", "hysteresis", "cut", "predict", "apply"])]
    whole: bool,
}

/// Policies by the names that people write.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum By {
    /// An interval of layers for each node, or along branches where that is better
    #[default]
    Best,
    /// One cut between this node and one other, from the same measurements
    Neurosurgeon,
}

impl From<By> for CutBy {
    fn from(by: By) -> Self {
        match by {
            By::Best => Self::Best,
            By::Neurosurgeon => Self::Neurosurgeon,
        }
    }
}

impl Plan {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        if self.inside {
            return inside(app, &self.name, &self.on, &self.memory, self.apply);
        }
        let control = Control::new(app)?;
        let path = format!("/models/{}/plan", escape(&self.name));
        if self.whole {
            let split: bool = control.order(Method::DELETE, &path, Bytes::new())?;
            let says = if split {
                "runs here alone again"
            } else {
                "ran here alone already"
            };
            return app.output.result(
                || format!("{}   {says}", self.name),
                || json!({ "name": self.name, "was_split": split }),
            );
        }
        let order = SplitOrder {
            over: self.over.clone(),
            latency: self.latency,
            energy: self.energy,
            interval: self.interval,
            slo: self.slo()?,
            least: self.least()?,
            max_error: self.max_error,
            policy: self.policy.into(),
            hysteresis: self.hysteresis,
            cut: (!self.cut.is_empty()).then(|| self.cut.clone()),
            predict: self.predict,
            apply: self.apply,
        };
        let body = serde_json::to_vec(&order).map_err(|error| TaskError::internal(error.to_string()))?;
        let progress = app.progress("asking the nodes; each measures what it has not measured yet");
        let planned: Result<SplitPlan, TaskError> = control.order(Method::POST, &path, body.into());
        drop(progress);
        let planned = planned?;
        app.output
            .result(|| planned.explanation.trim_end().to_owned(), || json!(planned))?;
        for (node, error) in &planned.left_out {
            app.output
                .note(format!("left out: node {}: {error}", node.short()));
        }
        for node in &planned.predicted {
            app.output.note(format!(
                "predicted: node {} has not timed this model; `karman model profile {}` there does",
                node.short(),
                self.name
            ));
        }
        if planned.problem.objective().energy > 0.0 {
            for (node, power) in &planned.power {
                for (what, channel) in power.channels() {
                    app.output
                        .note(format!("node {} draws, {what}: {channel}", node.short()));
                }
            }
        }
        for broken in planned.bounds.iter().filter(|bound| !bound.is_kept()) {
            app.output.note(format!(
                "no cut was found that keeps the SLO; this one is the nearest: {broken}"
            ));
        }
        if !planned.applied {
            app.output.note("to run it like that: --apply");
        }
        Ok(())
    }

    /// What a request is to keep; energy is that of one request unless the user says of how many.
    fn slo(&self) -> Result<Option<Slo>, TaskError> {
        let limits = self.slo.iter().filter_map(|kept| match kept {
            Kept::Limit(limit) => Some(limit),
            Kept::Least(_) => None,
        });
        let mut limits = limits.peekable();
        if limits.peek().is_none() {
            return Ok(None);
        }
        let mut slo = Slo::over(1);
        limited(&mut slo, limits)?;
        Ok(Some(slo))
    }

    /// What it is to take least of.
    fn least(&self) -> Result<Option<Bounded>, TaskError> {
        let mut least = self.slo.iter().filter_map(|kept| match kept {
            Kept::Least(least) => Some(*least),
            Kept::Limit(_) => None,
        });
        match (least.next(), least.next()) {
            (_, Some(_)) => Err(TaskError::invalid("two things cannot both be `min`")
                .with_field("slo")
                .with_hint("bound one of them, such as p95=120ms; or weigh them: --latency, --energy")),
            (least, None) => Ok(least),
        }
    }
}

fn weight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(weight) if f64::is_finite(weight) && weight >= 0.0 => Ok(weight),
        _ => Err("a weight is a number from 0 up".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn what_a_plan_inside_layers_does_not_go_by_is_refused() {
        let read = |words: &str| Words::try_parse_from(words.split(' ')).map(|words| words.plan.inside);
        assert!(read("plan net --inside --on all").unwrap());
        for more in ["--slo p95=50ms", "--energy 1", "--over all", "--whole"] {
            assert!(
                read(&format!("plan net --inside --on all {more}")).is_err(),
                "{more}"
            );
        }
    }

    #[test]
    fn a_weight_is_a_number() {
        assert_eq!(weight("0.5"), Ok(0.5));
        for text in ["-1", "NaN", "inf", "much"] {
            assert!(weight(text).is_err(), "{text}");
        }
    }
}
