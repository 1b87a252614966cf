use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a node gives to federated runs in which its own client is: to rounds in which updates go from client to client, and to what is kept.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FederatedConfig {
    /// Bytes on the disk for the updates of one round, all clients' together, as long as that goes on. Default 8 GiB.
    pub round_disk: ByteSize,
    /// The same for all rounds that go on. Default 16 GiB.
    pub disk: ByteSize,
    /// Bytes in memory for the node's own updates in rounds that go on, and for the means of those that are over, which are kept for ten
    /// minutes. Default 512 MiB.
    pub memory: ByteSize,
    /// Bytes on the disk for what its clients keep of runs between two orders, whatever the kind of round: the last answer, what a plugin wants to
    /// have again, how far it is. What was begun first is forgotten first. Default 4 GiB.
    pub kept: ByteSize,
    /// How long whoever leads a round in which updates go from client to client may leave a client of this node without a word, or without a piece
    /// while it needs more of them: then the client leaves the round. Default 5 min.
    #[serde(with = "serde_duration")]
    pub neglect: Duration,
    /// The largest rank of low-rank adapters (`[low-rank]` of a run) that its clients train. Default: whatever a run asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_rank: Option<u32>,
    /// The largest ε, at a δ of 1e-5, that its client gives away in one run with `[local-privacy]`. Default: whatever a run lets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_epsilon: Option<f64>,
    /// Whether updates leave it with noise only: its client then refuses what a run without `[local-privacy]` asks for. Default false.
    pub require_local_privacy: bool,
}

impl Default for FederatedConfig {
    fn default() -> Self {
        Self {
            round_disk: ByteSize::gib(8),
            disk: ByteSize::gib(16),
            memory: ByteSize::mib(512),
            kept: ByteSize::gib(4),
            neglect: Duration::from_secs(300),
            adapter_rank: None,
            most_epsilon: None,
            require_local_privacy: false,
        }
    }
}
