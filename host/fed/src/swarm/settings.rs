use super::chunk::{ChunkError, Layout};
use serde::{Deserialize, Serialize};

/// How a round without a server in the middle goes. Time is counted in slots of a length that the driver chooses; the paper's is a
/// second.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SwarmSettings {
    /// How updates are cut. Default: 206 chunks of 256 KiB.
    pub layout: Layout,
    /// The fewest neighbours of a client. Default 10.
    pub neighbours: usize,
    /// The share of its chunks that each client gives away before anything else. Default 0.2.
    pub spray: f64,
    /// A client is silent for 0 up to this many slots, less one, after the spray. Default 3.
    pub lags: u32,
    /// How many chunks a client must hold for the warm-up to end. Default: a tenth of all of the round.
    pub cover: Cover,
    /// When an owner may send chunks of its own. Default: [`Gate::Blended`].
    pub gate: Gate,
    /// How many chunks of its own an owner has on offer at a time once it may. Default 1; [`Gate::Blended`] sets it itself.
    pub on_offer: u32,
    /// Who sends what to whom. Default: [`Scheduler::GreedyFastestFirst`].
    pub scheduler: Scheduler,
    /// The slot after which the warm-up ends in any case, and its promise with it. Default 3,600.
    pub patience: u32,
    /// Slots without a delivery after which a client is taken for gone. Default 30.
    pub silence: u32,
    /// The largest weight of an update. Default 1: all count the same.
    pub most_weight: u32,
}

/// The number of chunks that hide a client's own. The paper reads it both ways; its figures are of the second.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cover {
    /// This share of the chunks of one update.
    OfUpdate(f64),
    /// This share of the chunks of all updates.
    OfSwarm(f64),
}

/// When chunks of one's own may be sent in the warm-up. What hides them are the others that could have been sent instead.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// Once the sender has a cover of others', and then a few at a time. Only sprayed chunks go round before that: a cover that is
    /// larger than the spray is never reached.
    Strict,
    /// As [`Gate::Strict`]; but where a neighbour could get nothing else from anybody, an owner's chunk is sent all the same. Such a
    /// transfer is counted: no bound applies to it.
    Fallback,
    /// As many at a time as the sender has on average of any other update, drawn as any other: what a client sends looks as if its own
    /// update were one among all. The other gates leave a hole where it should be, and a hole can be seen. Falls back as
    /// [`Gate::Fallback`] does.
    Blended,
    /// At once, a few at a time.
    Throttled,
    /// At once, all of them: no protection.
    Open,
}

/// How a slot's transfers are chosen in the warm-up.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Each client in turn, those that hold least first, gets a chunk from the fastest neighbour that has one for it; chunks of the
    /// sender's own come last.
    GreedyFastestFirst,
    /// Clients ask random neighbours; these serve their fastest askers first.
    RandomFastestFirst,
    /// Clients ask random neighbours; these serve in the order of asking.
    RandomFifo,
    /// Clients push random chunks to random neighbours.
    Flooding,
}

/// What a client's link carries.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Link {
    /// Chunks that it sends in a slot.
    pub up: u32,
    /// Chunks that it receives in a slot.
    pub down: u32,
}

/// Settings that make no round.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SwarmError {
    /// Updates cannot be cut, or a descriptor does not fit.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// Too few or too many clients, or chunks in all.
    #[error("a swarm has from 2 to {most} clients with at most 2^31 chunks together, not {clients}", most = SwarmSettings::MOST_CLIENTS)]
    Clients {
        /// How many there are.
        clients: usize,
    },
    /// A share that is none.
    #[error("the {what} is a share from 0 to 1, not {share}")]
    Share {
        /// Which.
        what: &'static str,
        /// What it is.
        share: f64,
    },
    /// A number that may not be zero.
    #[error("`{0}` is at least 1")]
    Zero(&'static str),
    /// A link that carries nothing.
    #[error("the link of client {0} carries no chunk in a slot: take smaller chunks or longer slots")]
    Link(usize),
    /// Two updates that are the same: their owner would be known.
    #[error("two descriptors are the same")]
    Repeated,
}

impl Default for SwarmSettings {
    fn default() -> Self {
        Self {
            layout: Layout {
                chunk: 256 << 10,
                chunks: 206,
            },
            neighbours: 10,
            spray: 0.2,
            lags: 3,
            cover: Cover::OfSwarm(0.1),
            gate: Gate::Blended,
            on_offer: 1,
            scheduler: Scheduler::GreedyFastestFirst,
            patience: 3_600,
            silence: 30,
            most_weight: 1,
        }
    }
}

impl SwarmSettings {
    /// The most clients of a swarm.
    pub const MOST_CLIENTS: usize = 4_096;

    /// Plain BitTorrent: no spray, no lags, no gate, no warm-up.
    pub fn unprotected() -> Self {
        Self {
            spray: 0.0,
            lags: 1,
            gate: Gate::Open,
            cover: Cover::OfUpdate(0.0),
            ..Self::default()
        }
    }

    /// Chunks that hide a client's own, among this many clients.
    pub fn cover(&self, clients: usize) -> u32 {
        let chunks = f64::from(self.layout.chunks);
        match self.cover {
            Cover::OfUpdate(share) => (share * chunks).ceil() as u32,
            Cover::OfSwarm(share) => (share * chunks * clients as f64).ceil() as u32,
        }
    }

    /// Chunks that each client gives away first.
    pub fn sprayed(&self) -> u32 {
        (self.spray * f64::from(self.layout.chunks)).floor() as u32
    }

    /// How many chunks of its own a client may have on offer that holds so many of others', among this many clients.
    pub(crate) fn on_offer(&self, others: u32, clients: usize) -> u32 {
        let hidden = others.saturating_add(self.on_offer) >= self.cover(clients);
        match self.gate {
            Gate::Strict | Gate::Fallback if hidden => self.on_offer,
            Gate::Strict | Gate::Fallback | Gate::Open => 0,
            Gate::Throttled => self.on_offer,
            Gate::Blended => others / (clients as u32 - 1).max(1),
        }
    }

    /// Whether an owner's chunk may be sent where nothing else can be had.
    pub(crate) const fn falls_back(&self) -> bool {
        matches!(self.gate, Gate::Fallback | Gate::Blended)
    }

    /// How many chunks of others a client holds at least before its own leave as freely, as a share of those of one update; however few take
    /// part. Nothing where the gate waits for none.
    pub fn protection(&self) -> f64 {
        match self.gate {
            Gate::Strict | Gate::Fallback | Gate::Blended => {
                let others = self.cover(2).saturating_sub(self.on_offer);
                f64::from(others) / f64::from(self.layout.chunks.max(1))
            }
            Gate::Throttled | Gate::Open => 0.0,
        }
    }

    /// Whether a client can agree to this, whoever the others are.
    ///
    /// # Errors
    /// No round goes so.
    pub fn check_terms(&self) -> Result<(), SwarmError> {
        self.layout.check()?;
        let (Cover::OfUpdate(cover) | Cover::OfSwarm(cover)) = self.cover;
        for (what, share) in [("spray", self.spray), ("cover", cover)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(SwarmError::Share { what, share });
            }
        }
        let counts = [
            ("neighbours", self.neighbours as u64),
            ("lags", self.lags.into()),
            ("on-offer", self.on_offer.into()),
            ("patience", self.patience.into()),
            ("silence", self.silence.into()),
            ("most-weight", self.most_weight.into()),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((what, _)) => Err(SwarmError::Zero(what)),
            None => Ok(()),
        }
    }

    pub(crate) fn check(&self, links: &[Link]) -> Result<(), SwarmError> {
        self.check_terms()?;
        let clients = links.len();
        let chunks = clients as u64 * u64::from(self.layout.chunks);
        if !(2..=Self::MOST_CLIENTS).contains(&clients) || chunks > 1 << 31 {
            return Err(SwarmError::Clients { clients });
        }
        match links.iter().position(|link| link.up == 0 || link.down == 0) {
            Some(client) => Err(SwarmError::Link(client)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_protects_by_what_it_waits_for() {
        let layout = Layout {
            chunk: 8,
            chunks: 100,
        };
        let of = |gate, cover, on_offer| {
            let settings = SwarmSettings {
                layout,
                gate,
                cover,
                on_offer,
                ..SwarmSettings::default()
            };
            assert_eq!(settings.check_terms(), Ok(()));
            settings.protection()
        };
        assert_eq!(of(Gate::Blended, Cover::OfUpdate(0.31), 1), 0.3);
        assert_eq!(of(Gate::Strict, Cover::OfSwarm(0.1), 5), 0.15);
        // A gate that is as wide as the cover hides nothing.
        assert_eq!(of(Gate::Fallback, Cover::OfUpdate(0.5), u32::MAX), 0.0);
        assert_eq!(of(Gate::Throttled, Cover::OfUpdate(1.0), 1), 0.0);
        assert_eq!(of(Gate::Open, Cover::OfUpdate(1.0), 1), 0.0);
    }

    #[test]
    fn terms_that_are_none_are_named() {
        let good = SwarmSettings::default();
        let terms = SwarmSettings {
            cover: Cover::OfSwarm(f64::INFINITY),
            ..good
        };
        assert!(matches!(
            terms.check_terms(),
            Err(SwarmError::Share { what: "cover", .. })
        ));
        let terms = SwarmSettings { on_offer: 0, ..good };
        assert_eq!(terms.check_terms(), Err(SwarmError::Zero("on-offer")));
    }
}
