use serde::{Deserialize, Serialize};

/// How much a client's update counts, and what it says of a version. What a client declares is not known to be true: `uniform` and `capped` bound what a lie gains.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightPolicy {
    /// All the same.
    Uniform,
    /// By samples up to so many.
    Capped(u64),
    /// By samples.
    #[default]
    Samples,
}

impl WeightPolicy {
    /// The weight of a client that declares so many samples.
    pub fn weight(self, samples: u64) -> u64 {
        match self {
            Self::Uniform => 1,
            Self::Capped(most) => samples.min(most),
            Self::Samples => samples,
        }
    }

    /// The same in 32 bits, as an update says it that goes from client to client; the largest of them where it is larger.
    pub fn in_swarm(self, samples: u64) -> u32 {
        u32::try_from(self.weight(samples)).unwrap_or(u32::MAX)
    }

    /// The largest weight when no client may declare more samples than this.
    pub fn largest(self, samples: u64) -> u64 {
        self.weight(samples)
    }
}
