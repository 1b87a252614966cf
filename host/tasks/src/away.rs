//! What travels for an attempt at a node that is out of reach, and what its task has asked for on the way. All of it comes from
//! other nodes, so all of it is bounded.

use crate::{Answer, Call};
use bytes::Bytes;
use karman_types::TaskError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A bucket and a key of it.
pub type Place = (Arc<str>, Arc<str>);

/// An attempt that goes to a node out of reach.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AwayCall {
    /// What shall run.
    pub call: Call,
    /// What its task has asked for of the buckets of its home.
    pub values: Vec<AwayValue>,
}

/// The value of a key in a bucket.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AwayValue {
    /// The bucket.
    pub bucket: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// 0 where there is nothing.
    pub version: u64,
    /// The value.
    pub value: Option<Bytes>,
}

/// The result of an attempt that went by bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum AwayReply {
    /// It has answered. What it would write is applied at the home, once.
    Done(Box<Answer>),
    /// It has not.
    Failed(TaskError),
    /// It has read these keys of these buckets, which were not sent along.
    Needs(Vec<Place>),
}

impl AwayCall {
    /// Reads what another node has sent.
    ///
    /// # Errors
    /// `invalid` when it is no attempt.
    pub fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        read("attempt", bytes)
    }
}

impl AwayReply {
    /// Reads what another node has answered.
    ///
    /// # Errors
    /// `invalid` when it is no answer.
    pub fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        read("answer", bytes)
    }
}

fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, TaskError> {
    cbor4ii::serde::from_slice(bytes)
        .map_err(|error| TaskError::invalid(format!("{what}: {error}")).with_field(what))
}

/// The keys that a task has asked for from where it ran, out of reach of their buckets. They stay known until the task has ended, so
/// that it is sent with all of them each time.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Needs {
    places: BTreeSet<Place>,
    rounds: u32,
}

impl Needs {
    /// Keys that one task may ask for.
    pub const MOST: usize = 1_000;
    /// Bytes of their names together.
    pub const MOST_NAMES: usize = 1 << 20;
    /// Bytes of their values together.
    pub const MOST_BYTES: usize = 16 << 20;
    /// How often one attempt is sent again because it asks for more.
    pub const MOST_ROUNDS: u32 = 8;

    /// Takes in what an attempt asks for, each key once however often it is named.
    ///
    /// # Errors
    /// `limit` when the task asks for too much or too often; nothing is taken in then.
    pub fn add(&mut self, asked: impl IntoIterator<Item = Place>) -> Result<(), TaskError> {
        let limit = |what: String| Err(TaskError::limit(what).with_field("buckets"));
        if self.rounds >= Self::MOST_ROUNDS {
            return limit(format!(
                "the task read other keys of buckets at each of {} tries, out of reach of them",
                Self::MOST_ROUNDS
            ));
        }
        let mut places = self.places.clone();
        places.extend(asked);
        let names: usize = places.iter().map(|(bucket, key)| bucket.len() + key.len()).sum();
        if places.len() > Self::MOST || names > Self::MOST_NAMES {
            return limit(format!(
                "the task asks for {} keys of buckets, {names} bytes of names, out of reach of them; {} and {} are the most",
                places.len(),
                Self::MOST,
                Self::MOST_NAMES
            ));
        }
        (self.places, self.rounds) = (places, self.rounds + 1);
        Ok(())
    }

    /// An attempt has answered: if another follows, because what it has read has changed, that may ask anew.
    pub fn met(&mut self) {
        self.rounds = 0;
    }

    /// The keys.
    pub const fn places(&self) -> &BTreeSet<Place> {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    fn place(key: impl ToString) -> Place {
        ("tally".into(), key.to_string().into())
    }

    #[test]
    fn a_key_counts_once_however_often_it_is_asked_for() {
        let mut needs = Needs::default();
        needs.add((0..100_000).map(|_| place("bridge"))).unwrap();
        needs.add([place("road"), place("bridge")]).unwrap();
        assert_eq!(needs.places().len(), 2);
    }

    #[test]
    fn who_asks_for_too_much_or_too_often_is_refused() {
        let refused = |error: TaskError| assert_eq!((error.kind, error.field.as_deref()), LIMIT);
        const LIMIT: (ErrorKind, Option<&str>) = (ErrorKind::Limit, Some("buckets"));
        let mut needs = Needs::default();
        refused(needs.add((0..=Needs::MOST).map(place)).unwrap_err());
        refused(needs.add([place("k".repeat(Needs::MOST_NAMES))]).unwrap_err());
        needs.add((0..Needs::MOST).map(place)).unwrap();
        for _ in 1..Needs::MOST_ROUNDS {
            needs.add([place(0)]).unwrap();
        }
        refused(needs.add([place(0)]).unwrap_err());
        needs.met();
        needs.add([place(1)]).unwrap();
        refused(needs.add([place("one more")]).unwrap_err());
        assert_eq!(needs.places().len(), Needs::MOST);
    }

    #[test]
    fn garbage_is_neither_a_call_nor_a_reply() {
        for garbage in [&b""[..], b"\xff\xff", &[0x81; 4096]] {
            assert_eq!(AwayCall::read(garbage).unwrap_err().kind, ErrorKind::Invalid);
            assert_eq!(AwayReply::read(garbage).unwrap_err().kind, ErrorKind::Invalid);
        }
    }
}
