//! Lists that come from anyone. An element may take a byte on its way and many in memory: of a list that is too long no more is kept than shows
//! that it is.

use super::message::Letter;
use super::settings::SwarmSettings;
use karman_types::serde_list;
use serde::{Deserialize, Deserializer};

/// As many as a letter names chunks.
pub(super) fn of_chunks<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    serde_list::one_more_than(deserializer, Letter::MOST_CHUNKS)
}

/// As many as there are clients.
pub(super) fn of_clients<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    serde_list::one_more_than(deserializer, SwarmSettings::MOST_CLIENTS)
}
