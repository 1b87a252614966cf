use super::{EncodingPolicy, Run, RunError};
use crate::privacy::Local;
use crate::select::SelectionChoice;
use crate::strategy::{StrategyChoice, WeightPolicy};
use karman_tensor::encode::Encoding;
use serde::{Deserialize, Serialize};

/// Local differential privacy: each client clips its own update and adds noise to it before anything of it leaves its node, so that nobody
/// sees it as it was, whoever drives the run neither. It covers updates and what is made of them, not the samples, steps, losses and
/// accuracies that clients report, nor a model that a client begins.
///
/// See [`crate::privacy`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LocalPrivacy {
    /// The standard deviation of the noise over the distance that two updates can have, which is twice the norm; at least 0.01, at most 32.
    pub noise_multiplier: f64,
    /// The norm (L2) that an update is clipped to as a whole, all of its arrays together.
    pub norm: f64,
    /// δ of what is reported; at most 0.01. Default 1e-5.
    #[serde(default = "usual_delta")]
    pub delta: f64,
    /// A client that would give away more than this ε sends nothing more, and the run ends when too few are left. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_epsilon: Option<f64>,
}

const fn usual_delta() -> f64 {
    LocalPrivacy::USUAL_DELTA
}

/// How many deviations of noise a number of an honest update stays within: more comes up once in 10²² numbers.
const MOST_DEVIATIONS: f64 = 10.0;

impl LocalPrivacy {
    /// δ where nobody says so, and that of a bound which a client's operator sets: no run makes that wider by a δ of its own.
    pub const USUAL_DELTA: f64 = 1e-5;

    /// The mechanism of a client before its first update.
    ///
    /// # Errors
    /// A number outside its bounds.
    pub fn mechanism(&self) -> Result<Local, RunError> {
        let positive = |field, value, most| (field, value, f64::MIN_POSITIVE, most);
        let numbers = [
            (
                "local-privacy.noise-multiplier",
                self.noise_multiplier,
                0.01,
                Local::MOST_NOISE,
            ),
            ("local-privacy.norm", self.norm, 1e-9, 1e9),
            positive("local-privacy.delta", self.delta, 0.01),
            positive(
                "local-privacy.most-epsilon",
                self.most_epsilon.unwrap_or(1.0),
                1e6,
            ),
        ];
        let bad = |(_, value, least, most): &(_, f64, f64, f64)| !(*least..=*most).contains(value);
        match numbers.into_iter().find(bad) {
            Some(number) => Err(RunError::number(number)),
            None => Local::new(self.norm, self.noise_multiplier, self.delta).map_err(RunError::LocalPrivacy),
        }
    }

    /// Whether the rest of the description goes with it: nothing that clients say of their data without noise goes into the model, an
    /// update is all that a client gives to a round, and one with noise is not refused for its size.
    pub(super) fn check(&self, run: &Run) -> Result<(), RunError> {
        let most = self.norm + MOST_DEVIATIONS * self.mechanism()?.deviation();
        match self.needs(run).into_iter().find(|(_, holds)| !holds) {
            Some((needs, _)) => Err(RunError::NotLocal { needs }),
            None if f64::from(run.limits.magnitude) < most => {
                let magnitude = run.limits.magnitude.into();
                Err(RunError::number(("limits.magnitude", magnitude, most, 1e9)))
            }
            None => Ok(()),
        }
    }

    /// What it needs, and whether that holds.
    fn needs(&self, run: &Run) -> [(&'static str, bool); 9] {
        use SelectionChoice::{Energy, Fastest, Random};
        use StrategyChoice::{FedNova, Scaffold};
        let encoding = run.encoding;
        [
            (
                "weights = \"uniform\": samples that clients declare have no noise",
                run.weights == WeightPolicy::Uniform,
            ),
            (
                "another strategy than \"scaffold\", to which each client would give a second thing beside its update",
                !matches!(run.strategy, Scaffold(_)),
            ),
            (
                "another strategy than \"fed-nova\", which goes by steps, and those that clients declare have no noise",
                !matches!(run.strategy, FedNova(_)),
            ),
            (
                "selection.name = \"random\", \"fastest\" or \"energy\": the others go by what clients say of their data without noise",
                matches!(run.selection, Random(_) | Fastest(_) | Energy(_)),
            ),
            (
                "another encoding than `top-k`: the largest numbers of an update with noise are those with the largest noise",
                !matches!(encoding, EncodingPolicy::Fixed(Encoding::TopK(_))),
            ),
            (
                "no `[privacy]`: what clients send is private already, and more noise would only cost accuracy",
                run.privacy.is_none(),
            ),
            (
                "no `[secure-sum]`: updates with noise may be seen, and those of a sum would go into it without",
                run.secure_sum.is_none(),
            ),
            (
                "no `[swarm]`: updates that go from client to client would do so without noise",
                run.swarm.is_none(),
            ),
            (
                "no `[low-rank]`: the noise of two factors multiplies in their product",
                run.low_rank.is_none(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rest: &str, local: &str) -> Result<Run, RunError> {
        Run::from_toml(&format!(
            "name = 'x'\nrounds = 1\n{rest}\n[local-privacy]\nnorm = 0.5\n{local}"
        ))
    }

    #[test]
    fn it_goes_with_robust_rules_asynchronous_paces_and_encodings_that_keep_all_numbers() {
        for rest in [
            "",
            "[pace]\nmode = 'buffered'\nat-once = 9",
            "[pace]\nmode = 'semi-asynchronous'\nclients = 9\nenough = 5\nwait = '1 min'",
            "[strategy]\nname = 'median'",
            "[strategy]\nname = 'fed-adam'",
            "[strategy]\nname = 'plugin'\nplugin = 'mine'",
            "[selection]\nname = 'fastest'",
            "[encoding]\nfixed = 'int8'",
            "[encoding]\nby-link = 0.01",
            "[clients]\nsimulated = 9",
        ] {
            let described = run(&format!("weights = 'uniform'\n{rest}"), "noise-multiplier = 2");
            let described = described.unwrap_or_else(|error| panic!("{rest}: {error}"));
            let local = described.local_privacy.unwrap();
            assert_eq!((local.delta, local.most_epsilon), (1e-5, None));
            let written = cbor4ii::serde::to_vec(Vec::new(), &described).unwrap();
            assert_eq!(cbor4ii::serde::from_slice::<Run>(&written).unwrap(), described);
        }
    }

    #[test]
    fn a_description_that_does_not_go_with_it_says_why() {
        for (rest, local, says) in [
            (
                "",
                "noise-multiplier = 0",
                "`local-privacy.noise-multiplier` is 0",
            ),
            ("", "noise-multiplier = 33", "between 0.01 and 32"),
            ("", "noise-multiplier = nan", "`local-privacy.noise-multiplier`"),
            (
                "",
                "noise-multiplier = 1\ndelta = 0.5",
                "`local-privacy.delta` is 0.5",
            ),
            (
                "",
                "noise-multiplier = 1\nmost-epsilon = 0",
                "`local-privacy.most-epsilon` is 0",
            ),
            ("", "noise-multiplier = 1\nmost-epsilom = 1", "`most-epsilon`"),
            // Ten deviations of 1 and the norm.
            (
                "[limits]\nmagnitude = 10.25",
                "noise-multiplier = 1",
                "`limits.magnitude` is 10.25",
            ),
            (
                "[strategy]\nname = 'scaffold'",
                "noise-multiplier = 1",
                "a second thing",
            ),
            (
                "[strategy]\nname = 'fed-nova'",
                "noise-multiplier = 1",
                "\"fed-nova\"",
            ),
            (
                "[selection]\nname = 'oort'",
                "noise-multiplier = 1",
                "selection.name",
            ),
            (
                "[selection]\nname = 'bandit'",
                "noise-multiplier = 1",
                "selection.name",
            ),
            (
                "[encoding]\nfixed = { top-k = 10 }",
                "noise-multiplier = 1",
                "than `top-k`",
            ),
            (
                "[privacy]\nnoise-multiplier = 1\nclipping = { kind = 'fixed', norm = 1 }",
                "noise-multiplier = 1",
                "no `[privacy]`",
            ),
            ("[secure-sum]", "noise-multiplier = 1", "no `[secure-sum]`"),
            ("[swarm]", "noise-multiplier = 1", "no `[swarm]`"),
            (
                "[low-rank]\narrays = ['w']\nranks = [1]",
                "noise-multiplier = 1",
                "no `[low-rank]`",
            ),
        ] {
            let error = run(&format!("weights = 'uniform'\n{rest}"), local).unwrap_err();
            assert!(error.to_string().contains(says), "{rest} {local}: {error}");
        }
        let error = run("", "noise-multiplier = 1").unwrap_err();
        assert!(
            error.to_string().contains("`[local-privacy]` needs weights"),
            "{error}"
        );
        assert!(
            run(
                "weights = 'uniform'\n[limits]\nmagnitude = 10.5",
                "noise-multiplier = 1"
            )
            .is_ok()
        );
    }
}
