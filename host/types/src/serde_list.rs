//! Lists that come from anyone. An element may take a byte on its way and a hundred in memory, so that a message within its bound fills a machine:
//! what is longer than it may be takes no more room than it may.

use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Reads a list of at most this many elements, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// There are more, or one of them does not read.
///
/// ```
/// use karman_types::serde_list;
/// use serde::{Deserialize, Deserializer};
///
/// fn three<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
///     serde_list::at_most(deserializer, 3)
/// }
///
/// #[derive(Deserialize)]
/// struct Few(#[serde(deserialize_with = "three")] Vec<u8>);
///
/// assert_eq!(serde_json::from_str::<Few>("[1, 2, 3]").unwrap().0, [1, 2, 3]);
/// let error = serde_json::from_str::<Few>("[1, 2, 3, 4]").map(|_| ()).unwrap_err();
/// assert!(error.to_string().contains("at most 3"), "{error}");
/// ```
pub fn at_most<'de, D, T>(deserializer: D, most: usize) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost {
        most,
        refuses: true,
        of: PhantomData,
    })
}

/// Reads a list, and keeps one more than this many elements: a later check sees that it is too long, and can say so in words of
/// its own. The rest is skipped.
///
/// # Errors
/// One of the elements does not read.
pub fn one_more_than<'de, D, T>(deserializer: D, most: usize) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost {
        most,
        refuses: false,
        of: PhantomData,
    })
}

struct AtMost<T> {
    most: usize,
    refuses: bool,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
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
        if self.refuses {
            return Err(A::Error::invalid_length(list.len(), &self));
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(list)
    }
}
