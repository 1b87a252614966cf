use super::{
    Bulyan, FedAdagrad, FedAdam, FedAvg, FedAvgM, FedNova, FedProx, FedYogi, Krum, Median, Plugin, Scaffold,
    Strategy, TrimmedMean,
};
use serde::{Deserialize, Serialize};

/// The strategy of a run: `[strategy]` with its `name` and its own keys.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is the struct of its name")]
pub enum StrategyChoice {
    FedAvg(FedAvg),
    FedProx(FedProx),
    FedAvgM(FedAvgM),
    FedAdam(FedAdam),
    FedYogi(FedYogi),
    FedAdagrad(FedAdagrad),
    Scaffold(Scaffold),
    FedNova(FedNova),
    /// Multi-Krum where `keep` is more than 1.
    Krum(Krum),
    Bulyan(Bulyan),
    TrimmedMean(TrimmedMean),
    Median(Median),
    /// A plugin, which whoever drives the run loads.
    Plugin(Plugin),
}

impl Default for StrategyChoice {
    fn default() -> Self {
        Self::FedAvg(FedAvg::default())
    }
}

impl StrategyChoice {
    /// The strategy, before its first round; nothing where it is a plugin: then it is a [`super::Brought`].
    pub fn build(&self) -> Option<Box<dyn Strategy>> {
        Some(match self {
            Self::FedAvg(it) => Box::new(it.clone()),
            Self::FedProx(it) => Box::new(it.clone()),
            Self::FedAvgM(it) => Box::new(it.clone()),
            Self::FedAdam(it) => Box::new(it.clone()),
            Self::FedYogi(it) => Box::new(it.clone()),
            Self::FedAdagrad(it) => Box::new(it.clone()),
            Self::Scaffold(it) => Box::new(it.clone()),
            Self::FedNova(it) => Box::new(it.clone()),
            Self::Krum(it) => Box::new(it.clone()),
            Self::Bulyan(it) => Box::new(it.clone()),
            Self::TrimmedMean(it) => Box::new(it.clone()),
            Self::Median(it) => Box::new(*it),
            Self::Plugin(_) => return None,
        })
    }

    /// Whether a mean of the updates is all that it needs to know of them, so that nobody has to see a single one.
    pub const fn steps_by_a_mean(&self) -> bool {
        match self {
            Self::FedAvg(_)
            | Self::FedProx(_)
            | Self::FedAvgM(_)
            | Self::FedAdam(_)
            | Self::FedYogi(_)
            | Self::FedAdagrad(_) => true,
            Self::Scaffold(_)
            | Self::FedNova(_)
            | Self::Krum(_)
            | Self::Bulyan(_)
            | Self::TrimmedMean(_)
            | Self::Median(_)
            | Self::Plugin(_) => false,
        }
    }

    /// The plugin that brings it, if one does.
    pub const fn plugin(&self) -> Option<&Plugin> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// The first of its numbers that cannot be, with its bounds.
    pub(crate) fn check(&self) -> Result<(), (&'static str, f64, f64, f64)> {
        let rate = |rate: f64| ("strategy.rate", rate, f64::MIN_POSITIVE, 1e6);
        let share = |name, value: f64| (name, value, 0.0, 0.999_999);
        let tau = |tau: f64| ("strategy.tau", tau, f64::MIN_POSITIVE, 1e6);
        let numbers = match self {
            Self::FedAvg(it) => vec![rate(it.rate)],
            Self::FedProx(it) => vec![rate(it.rate), ("strategy.mu", it.mu.into(), 0.0, 1e6)],
            Self::FedAvgM(it) => vec![rate(it.rate), share("strategy.momentum", it.momentum)],
            Self::FedAdam(it) => vec![
                rate(it.rate),
                share("strategy.beta-1", it.beta_1),
                share("strategy.beta-2", it.beta_2),
                tau(it.tau),
            ],
            Self::FedYogi(it) => vec![
                rate(it.rate),
                share("strategy.beta-1", it.beta_1),
                share("strategy.beta-2", it.beta_2),
                tau(it.tau),
            ],
            Self::FedAdagrad(it) => vec![rate(it.rate), share("strategy.beta-1", it.beta_1), tau(it.tau)],
            Self::Scaffold(it) => vec![rate(it.rate)],
            Self::FedNova(it) => vec![rate(it.rate)],
            Self::Krum(it) => vec![("strategy.keep", it.keep as f64, 1.0, 1e6)],
            Self::TrimmedMean(it) => vec![("strategy.share", it.share, 0.0, 0.499_999)],
            Self::Bulyan(_) | Self::Median(_) | Self::Plugin(_) => Vec::new(),
        };
        let bad = |(_, value, least, most): &(_, f64, f64, f64)| !(*least..=*most).contains(value);
        numbers.into_iter().find(bad).map_or(Ok(()), Err)
    }
}
