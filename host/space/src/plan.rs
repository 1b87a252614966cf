use crate::{Rate, Time};
use karman_types::{KeyError, NodeId, from_toml, serde_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A window of time in which one node can send to another: from `start` on, and before `end`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Contact {
    /// The node that sends.
    pub from: NodeId,
    /// The node that receives.
    pub to: NodeId,
    /// The first instant at which a bit can leave.
    pub start: Time,
    /// The last bit has left by then.
    pub end: Time,
    /// How fast it sends.
    pub rate: Rate,
    /// How long a bit is on its way.
    pub delay: Duration,
}

impl Contact {
    /// Whether something can be sent at this instant.
    pub fn is_open(&self, at: Time) -> bool {
        self.start <= at && at < self.end
    }

    /// How many whole bytes fit into it.
    pub fn capacity(&self) -> u64 {
        self.rate.bytes_in(self.end.since(self.start))
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from, to, start, end, ..
        } = self;
        write!(f, "contact {from} -> {to}, {start} to {end}")
    }
}

/// All contacts that are known, at most one at a time between two nodes in one direction (the contact plan of
/// CCSDS 734.3-B-1, without ranges as entries of their own: each contact carries its delay).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ContactPlan {
    /// By sender, receiver and start; no two of a pair overlap, so they are by end as well.
    contacts: Vec<Contact>,
}

/// A contact plan that does not hold together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The text is not what a plan looks like.
    #[error(transparent)]
    Text(#[from] KeyError),
    /// A text that is too long to be read.
    #[error(
        "the plan has {bytes} bytes, but at most {} are read: split it by time",
        ContactPlan::MAX_TEXT
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// More contacts than a plan may have.
    #[error(
        "the plan has {count} contacts, but at most {} are possible: leave out what is past or far off",
        ContactPlan::MAX_CONTACTS
    )]
    TooMany {
        /// Both directions counted.
        count: usize,
    },
    /// A node would send to itself.
    #[error("{contact}: `from` and `to` are the same node: name the other one")]
    Loop {
        /// The one in question.
        contact: Contact,
    },
    /// No time lies between start and end.
    #[error("{contact}: `end` must be later than `start`: exchange or correct them")]
    Empty {
        /// The one in question.
        contact: Contact,
    },
    /// Nothing could be sent.
    #[error("{contact}: `rate` must be more than 0 bit/s: correct it, or leave the contact out")]
    Rate {
        /// The one in question.
        contact: Contact,
    },
    /// Farther away than anything this is made for.
    #[error("{contact}: `delay` must be at most {} s: correct it", ContactPlan::MAX_DELAY.as_secs())]
    Delay {
        /// The one in question.
        contact: Contact,
    },
    /// Two contacts of the same pair, in the same direction, at the same time.
    #[error("{contact}: the one before it ends only at {end}: shorten one of them, or make them one")]
    Overlap {
        /// The later of the two.
        contact: Contact,
        /// The `end` of the earlier.
        end: Time,
    },
}

/// The file that an operator writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    contact: Vec<Entry>,
}

/// A window of time in which one node can send to another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    /// The node that sends.
    from: NodeId,
    /// The node that receives.
    to: NodeId,
    /// The first instant at which a bit can leave.
    start: Time,
    /// The last bit has left by then.
    end: Time,
    /// How fast it sends.
    rate: Rate,
    /// How long a bit is on its way. Default 0.
    #[serde(default, with = "serde_duration")]
    delay: Duration,
    /// Whether the other one sends as well. Default false.
    #[serde(default)]
    both_ways: bool,
}

impl ContactPlan {
    /// The most contacts of one plan, 56 bytes each.
    pub const MAX_CONTACTS: usize = 1_000_000;

    /// The most bytes of a text that is read.
    pub const MAX_TEXT: usize = 16 << 20;

    /// The longest delay of a contact: light takes a quarter of it to Pluto.
    pub const MAX_DELAY: Duration = Duration::from_secs(86_400);

    /// A plan of these contacts, in whatever order they come.
    ///
    /// # Errors
    /// When there are more than [`Self::MAX_CONTACTS`], when a contact cannot be one, or when two of the same pair in
    /// the same direction overlap.
    pub fn new(mut contacts: Vec<Contact>) -> Result<Self, PlanError> {
        if contacts.len() > Self::MAX_CONTACTS {
            return Err(PlanError::TooMany {
                count: contacts.len(),
            });
        }
        for &contact in &contacts {
            if contact.from == contact.to {
                return Err(PlanError::Loop { contact });
            }
            if contact.end <= contact.start {
                return Err(PlanError::Empty { contact });
            }
            if contact.rate == Rate(0) {
                return Err(PlanError::Rate { contact });
            }
            if contact.delay > Self::MAX_DELAY {
                return Err(PlanError::Delay { contact });
            }
        }
        contacts.sort_unstable_by_key(|c| (c.from, c.to, c.start));
        for pair in contacts.windows(2) {
            let (before, contact) = (pair[0], pair[1]);
            if (before.from, before.to) == (contact.from, contact.to) && contact.start < before.end {
                let end = before.end;
                return Err(PlanError::Overlap { contact, end });
            }
        }
        Ok(Self { contacts })
    }

    /// Reads a plan that an operator wrote: a table `[[contact]]` for each with `from`, `to` (ids of nodes), `start`,
    /// `end` (RFC 3339), `rate` (`2 Mbit/s`), and as needed `delay` (one-way, `12 ms`; default 0) and `both-ways`
    /// (default false).
    ///
    /// # Errors
    /// [`PlanError::TooLong`] over [`Self::MAX_TEXT`] bytes; [`PlanError::Text`] with the line for what cannot be
    /// read, and the nearest known key for an unknown one; the others as [`Self::new`].
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        if text.len() > Self::MAX_TEXT {
            return Err(PlanError::TooLong { bytes: text.len() });
        }
        let file: File = from_toml(text)?;
        let mut contacts = Vec::with_capacity(file.contact.len());
        for entry in file.contact {
            let contact = Contact {
                from: entry.from,
                to: entry.to,
                start: entry.start,
                end: entry.end,
                rate: entry.rate,
                delay: entry.delay,
            };
            contacts.push(contact);
            if entry.both_ways {
                contacts.push(Contact {
                    from: entry.to,
                    to: entry.from,
                    ..contact
                });
            }
        }
        Self::new(contacts)
    }

    /// Every contact, by sender, receiver and start.
    pub fn contacts(&self) -> &[Contact] {
        &self.contacts
    }

    /// The contacts in which this node sends, by receiver and start.
    pub fn contacts_from(&self, node: NodeId) -> &[Contact] {
        let first = self.contacts.partition_point(|c| c.from < node);
        let count = self.contacts[first..].partition_point(|c| c.from == node);
        &self.contacts[first..first + count]
    }

    /// The contacts in which one node sends to another, by start.
    pub fn contacts_between(&self, from: NodeId, to: NodeId) -> &[Contact] {
        let all = self.contacts_from(from);
        let first = all.partition_point(|c| c.to < to);
        let count = all[first..].partition_point(|c| c.to == to);
        &all[first..first + count]
    }

    /// The contacts in which this node sends or receives, by sender, receiver and start. Looks at every contact.
    pub fn contacts_of(&self, node: NodeId) -> impl Iterator<Item = &Contact> {
        self.contacts
            .iter()
            .filter(move |c| c.from == node || c.to == node)
    }

    /// The contact in which one node can send to another at this instant.
    pub fn open(&self, from: NodeId, to: NodeId, at: Time) -> Option<&Contact> {
        let all = self.contacts_between(from, to);
        let contact = all.get(all.partition_point(|c| c.end <= at))?;
        contact.is_open(at).then_some(contact)
    }

    /// The first contact from one node to another that starts later than this instant.
    pub fn next(&self, from: NodeId, to: NodeId, after: Time) -> Option<&Contact> {
        let all = self.contacts_between(from, to);
        all.get(all.partition_point(|c| c.start <= after))
    }
}

#[cfg(test)]
mod tests;
