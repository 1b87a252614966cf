use super::{EncodingPolicy, Run, RunError};
use crate::select::SelectionChoice;
use crate::strategy::{FedAvg, StrategyChoice};
use crate::{ClientId, Pace, Profile};
use serde::{Deserialize, Serialize};

/// Clients train low-rank adapters (LoRA) of some matrices, each of a rank that its node can train, and leave the rest of the model as it
/// is. Their updates are the factors alone; what comes of a round is a whole model, with the adapters merged into it.
///
/// See [`crate::lora`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LowRank {
    /// The matrices that get adapters: names of arrays of the model with two dimensions.
    pub arrays: Vec<String>,
    /// The ranks there are, growing, as in `[2, 4]`; none above the smaller side of a matrix. A client gets the largest of them that is
    /// not above `adapter-rank` under `[federated]` in its `node.toml`, and the largest of all where that says nothing; clients that
    /// one process plays get them in turn.
    pub ranks: Vec<u32>,
    /// How adapters of unequal ranks become one. Default `florist`.
    #[serde(default)]
    pub rule: LowRankRule,
    /// With `florist`, the share of the squares of all singular values that is kept, above 0 and at most 1. Default 0.99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// How adapters of unequal ranks become one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LowRankRule {
    /// The stack of all factors, whose product is the exact mean, brought down to the singular values that matter and added to the
    /// matrix; each round begins with new adapters.
    #[default]
    Florist,
    /// Nested ranks: each segment is the mean over the clients that have it, and the same adapters are trained on in the next round.
    Prelort,
}

impl LowRankRule {
    /// Its name, as the description writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Florist => "florist",
            Self::Prelort => "prelort",
        }
    }
}

/// What the client plugin is told of it: which rule, and which ranks there are.
const RULE: &str = "low-rank.rule";
const RANKS: &str = "low-rank.ranks";

/// The most matrices that get adapters.
const MOST_ARRAYS: usize = 1024;
/// The most ranks there are to choose from, and the largest.
const MOST_LEVELS: usize = 16;
const MOST_RANK: u32 = 256;
/// The ranks of a round's clients together: the decomposition of so many columns takes seconds.
const MOST_STACKED: u32 = 1024;
/// What is kept where the description does not say.
const USUAL_THRESHOLD: f64 = 0.99;

impl LowRank {
    /// The share of the squares that is kept.
    pub fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(USUAL_THRESHOLD)
    }

    /// The largest rank.
    pub(crate) fn largest(&self) -> u32 {
        self.ranks.iter().copied().max().unwrap_or(1)
    }

    /// The least rank.
    pub(crate) fn least(&self) -> u32 {
        self.ranks.iter().copied().min().unwrap_or(1)
    }

    /// The rank of a client by what it says of itself; nothing where that is below the least.
    pub(crate) fn rank_of(&self, client: ClientId, profile: &Profile, simulated: bool) -> Option<u32> {
        match profile.adapter_rank {
            Some(most) => self.ranks.iter().copied().filter(|rank| *rank <= most).max(),
            None if simulated => {
                let turn = client.0 % self.ranks.len().max(1) as u64;
                self.ranks.get(turn as usize).copied()
            }
            None => self.ranks.last().copied(),
        }
    }

    /// What the client plugin is told, by name.
    fn properties(&self) -> [(String, String); 2] {
        let ranks: Vec<String> = self.ranks.iter().map(u32::to_string).collect();
        [
            (RULE.to_owned(), self.rule.name().to_owned()),
            (RANKS.to_owned(), ranks.join(",")),
        ]
    }

    /// Whether its numbers can be, and the rest of the description goes with it: one version of the model, whose single updates are
    /// factors of unequal shapes.
    pub(super) fn check(&self, run: &Run) -> Result<(), RunError> {
        let largest = self.largest();
        let mut numbers = vec![
            (
                "low-rank.arrays",
                self.arrays.len() as f64,
                1.0,
                MOST_ARRAYS as f64,
            ),
            ("low-rank.ranks", self.ranks.len() as f64, 1.0, MOST_LEVELS as f64),
            ("low-rank.threshold", self.threshold(), f64::MIN_POSITIVE, 1.0),
        ];
        let rank = |rank: &u32| ("low-rank.ranks", f64::from(*rank), 1.0, f64::from(MOST_RANK));
        numbers.extend(self.ranks.iter().map(rank));
        let most_clients = f64::from(MOST_STACKED / largest.max(1));
        numbers.push(("pace.clients", run.pace.cohort() as f64, 1.0, most_clients));
        let bad = |(_, value, least, most): &(_, f64, f64, f64)| !(*least..=*most).contains(value);
        if let Some(number) = numbers.into_iter().find(bad) {
            return Err(RunError::number(number));
        }
        match self.needs(run).into_iter().find(|(_, holds)| !holds) {
            None => Ok(()),
            Some((needs, _)) => Err(RunError::NotLowRank { needs }),
        }
    }

    /// What it needs, and whether that holds.
    fn needs(&self, run: &Run) -> [(&'static str, bool); 11] {
        let once = |name: &String| self.arrays.iter().filter(|other| *other == name).count() == 1;
        let told = |name: &str| run.clients.properties.contains_key(name);
        [
            (
                "`ranks` that grow, like [2, 4]",
                self.ranks.is_sorted_by(|one, next| one < next),
            ),
            ("each name of `arrays` once", self.arrays.iter().all(once)),
            (
                "rule = \"florist\" beside `threshold`: \"prelort\" drops nothing",
                self.threshold.is_none() || self.rule == LowRankRule::Florist,
            ),
            (
                "pace.mode = \"synchronous\": the adapters of one version are stacked together",
                matches!(run.pace, Pace::Synchronous { .. }),
            ),
            (
                "strategy.name = \"fed-avg\" with `rate = 1`: its own rule makes the step, and others compare or scale updates of one shape",
                run.strategy == StrategyChoice::FedAvg(FedAvg::default()),
            ),
            (
                "another selection than \"bandit\", which compares updates of one shape",
                !matches!(run.selection, SelectionChoice::Bandit(_)),
            ),
            (
                "updates as they are, without `[encoding]`: what is lost of one round's factors cannot be sent with those of the next",
                run.encoding == EncodingPolicy::Exact,
            ),
            (
                "no `[secure-sum]`: factors of unequal ranks have no common sum, and a sum of factors is no sum of their products",
                run.secure_sum.is_none(),
            ),
            (
                "no `[swarm]`: clients take the mean of updates of one shape",
                run.swarm.is_none(),
            ),
            (
                "no `[privacy]`: to clip factors does not bound their product",
                run.privacy.is_none(),
            ),
            (
                "no `low-rank.rule` or `low-rank.ranks` among `[clients.properties]`: it tells the plugin these itself",
                !told(RULE) && !told(RANKS),
            ),
        ]
    }
}

impl Run {
    /// What the client plugin is told besides, by name: what the description says, and what `[low-rank]` has it know.
    pub fn properties(&self) -> Vec<(String, String)> {
        let said = self.clients.properties.clone().into_iter();
        let low_rank = self.low_rank.iter().flat_map(LowRank::properties);
        said.chain(low_rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = 'x'\nrounds = 1\n[low-rank]\narrays = ['w']\n";

    fn run(rest: &str) -> Result<Run, RunError> {
        Run::from_toml(&format!("{LEAST}{rest}"))
    }

    #[test]
    fn a_client_gets_the_largest_rank_that_it_can_train() {
        let run = run("ranks = [2, 4, 8]\n").unwrap();
        let settings = run.low_rank.unwrap();
        let says = |adapter_rank| Profile {
            adapter_rank,
            ..Profile::default()
        };
        let rank = |client, most, simulated| settings.rank_of(ClientId(client), &says(most), simulated);
        for (most, gets) in [
            (0, None),
            (1, None),
            (2, Some(2)),
            (7, Some(4)),
            (8, Some(8)),
            (u32::MAX, Some(8)),
        ] {
            assert_eq!(rank(5, Some(most), false), gets, "{most}");
        }
        assert_eq!(rank(0, None, false), Some(8));
        let in_turn: Vec<_> = (0..4).map(|client| rank(client, None, true)).collect();
        assert_eq!(in_turn, [Some(2), Some(4), Some(8), Some(2)]);
    }

    #[test]
    fn plugins_are_told_the_rule_and_the_ranks() {
        let run = run("ranks = [2, 4]\nrule = 'prelort'\n[clients.properties]\nmodel = 'small'\n").unwrap();
        let told = run.properties();
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(name, is)| (name.as_str(), is.as_str()))
            .collect();
        assert_eq!(told, [("model", "small"), (RULE, "prelort"), (RANKS, "2,4")]);
        let written = cbor4ii::serde::to_vec(Vec::new(), &run).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<Run>(&written).unwrap(), run);
    }

    #[test]
    fn a_description_that_does_not_go_with_it_says_why() {
        for (rest, says) in [
            ("ranks = []", "`low-rank.ranks` is 0"),
            ("ranks = [0, 4]", "`low-rank.ranks` is 0"),
            ("ranks = [300]", "between 1 and 256"),
            ("ranks = [4, 2]", "`ranks` that grow"),
            ("ranks = [2, 2]", "`ranks` that grow"),
            ("ranks = [2]\nthreshold = 0.0", "`low-rank.threshold` is 0"),
            ("ranks = [2]\nthreshold = 1.1", "`low-rank.threshold` is 1.1"),
            ("ranks = [2]\nthreshold = nan", "`low-rank.threshold` is NaN"),
            (
                "ranks = [2]\nthreshold = 0.9\nrule = 'prelort'",
                "beside `threshold`",
            ),
            ("ranks = [2]\nrule = 'fedit'", "florist"),
            ("ranks = [2]\nrank = 3", "did you mean `ranks`"),
            (
                "ranks = [256]\n[pace]\nmode = 'synchronous'\nclients = 5",
                "`pace.clients` is 5: it must lie between 1 and 4",
            ),
            (
                "ranks = [2]\n[pace]\nmode = 'buffered'\nat-once = 9",
                "synchronous",
            ),
            ("ranks = [2]\n[strategy]\nname = 'median'", "fed-avg"),
            ("ranks = [2]\n[strategy]\nname = 'krum'", "fed-avg"),
            ("ranks = [2]\n[strategy]\nname = 'scaffold'", "fed-avg"),
            (
                "ranks = [2]\n[strategy]\nname = 'fed-avg'\nrate = 0.5",
                "`rate = 1`",
            ),
            ("ranks = [2]\n[selection]\nname = 'bandit'", "another selection"),
            ("ranks = [2]\n[encoding]\nfixed = 'int8'", "`[encoding]`"),
            ("ranks = [2]\n[secure-sum]", "no `[secure-sum]`"),
            ("ranks = [2]\n[swarm]", "no `[swarm]`"),
            (
                "ranks = [2]\n[clients.properties]\n'low-rank.ranks' = '1'",
                "[clients.properties]",
            ),
        ] {
            let error = run(rest).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        }
        let private = format!(
            "weights = 'uniform'\n{LEAST}ranks = [2]\n[privacy]\nnoise-multiplier = 1\nclipping = {{ kind = 'fixed', norm = 1 }}\n"
        );
        let error = Run::from_toml(&private).unwrap_err().to_string();
        assert!(error.contains("no `[privacy]`"), "{error}");
        for arrays in ["[]", "['w', 'w']"] {
            let text = format!("name = 'x'\nrounds = 1\n[low-rank]\narrays = {arrays}\nranks = [2]\n");
            let error = Run::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains("arrays"), "{error}");
        }
    }
}
