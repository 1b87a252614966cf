//! Lists that come from anyone. An element may take a byte on its way and many in memory: of a list that is too long no more is kept than shows
//! that it is.

use super::message::Letter;
use super::settings::SwarmSettings;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// As many as a letter names chunks.
pub(super) fn of_chunks<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    read(deserializer, Letter::MOST_CHUNKS)
}

/// As many as there are clients.
pub(super) fn of_clients<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    read(deserializer, SwarmSettings::MOST_CLIENTS)
}

fn read<'de, D, T>(deserializer: D, most: usize) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List {
        most,
        of: PhantomData,
    })
}

struct List<T> {
    most: usize,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {}", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() <= self.most {
            match seq.next_element()? {
                Some(element) => list.push(element),
                None => return Ok(list),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(list)
    }
}
