use crate::{Rate, Time};
use karman_types::{KeyError, NodeId, from_toml, serde_duration};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// A window of time in which one node can send to another: from `start` on, and before `end`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(n: u8) -> NodeId {
        NodeId::of_key(&[n])
    }

    fn contact(from: u8, to: u8, start: i64, end: i64) -> Contact {
        Contact {
            from: node(from),
            to: node(to),
            start: Time::from_unix_ms(start),
            end: Time::from_unix_ms(end),
            rate: Rate(8_000),
            delay: Duration::from_millis(1),
        }
    }

    fn entry(more: &str) -> String {
        let (from, to) = (node(0), node(1));
        format!(
            "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"2026-11-21T10:00:00Z\"\n\
             end = \"2026-11-21T10:05:00Z\"\nrate = \"2 Mbit/s\"\n{more}\n"
        )
    }

    #[test]
    fn an_operators_file_is_read() {
        let plan = ContactPlan::from_toml(&entry("delay = \"12 ms\"\nboth-ways = true")).unwrap();
        assert_eq!(plan.contacts().len(), 2);
        let back = plan.contacts_between(node(1), node(0))[0];
        assert_eq!(
            (back.rate, back.delay),
            (Rate(2_000_000), Duration::from_millis(12))
        );
        assert_eq!(back.capacity(), 75_000_000);

        let plan = ContactPlan::from_toml(&entry("")).unwrap();
        assert_eq!(plan.contacts()[0].delay, Duration::ZERO);
        assert_eq!(ContactPlan::from_toml("").unwrap(), ContactPlan::default());
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let error = |text: &str| ContactPlan::from_toml(text).unwrap_err().to_string();
        assert_eq!(
            error(&entry("both-way = true")),
            "unknown key `both-way` at line 7; did you mean `both-ways`?"
        );
        let rate = error(&entry("").replace("2 Mbit/s", "2 MB/s"));
        assert!(
            rate.starts_with("line 6: `2 MB/s` is not a rate such as `2 Mbit/s`"),
            "{rate}"
        );
        let time = error(&entry("").replace("10:05:00Z", "10:05"));
        assert!(
            time.starts_with("line 5: `2026-11-21T10:05` is not a time"),
            "{time}"
        );
        let id = error(&entry("").replace(&node(1).to_string(), "gateway"));
        assert!(id.starts_with("line 3: `gateway` is not an id of 16"), "{id}");
        let end = error(&entry("").replace("10:05:00Z", "09:05:00Z"));
        assert!(end.contains("`end` must be later than `start`"), "{end}");
        let bytes = ContactPlan::MAX_TEXT + 1;
        let long = ContactPlan::from_toml(&" ".repeat(bytes));
        assert_eq!(long, Err(PlanError::TooLong { bytes }));
    }

    #[test]
    fn what_cannot_be_a_contact_is_refused() {
        let good = contact(0, 1, 0, 10);
        let refused = |contact| ContactPlan::new(vec![contact]).unwrap_err();
        let same = Contact {
            to: good.from,
            ..good
        };
        assert_eq!(refused(same), PlanError::Loop { contact: same });
        let empty = Contact {
            end: good.start,
            ..good
        };
        assert_eq!(refused(empty), PlanError::Empty { contact: empty });
        let silent = Contact {
            rate: Rate(0),
            ..good
        };
        assert_eq!(refused(silent), PlanError::Rate { contact: silent });
        let far = Contact {
            delay: ContactPlan::MAX_DELAY + Duration::from_micros(1),
            ..good
        };
        assert_eq!(refused(far), PlanError::Delay { contact: far });
        assert!(
            refused(far)
                .to_string()
                .contains("`delay` must be at most 86400 s")
        );
        let late = contact(0, 1, 9, 20);
        assert_eq!(
            ContactPlan::new(vec![late, good]),
            Err(PlanError::Overlap {
                contact: late,
                end: good.end
            })
        );
        assert!(ContactPlan::new(vec![contact(0, 1, 10, 20), good, contact(1, 0, 5, 15)]).is_ok());
        let count = ContactPlan::MAX_CONTACTS + 1;
        assert_eq!(
            ContactPlan::new(vec![good; count]),
            Err(PlanError::TooMany { count })
        );
    }

    proptest! {
        /// Every query says what a look at each contact says.
        #[test]
        fn queries_agree_with_the_list(
            gaps in proptest::collection::vec((0u8..3, 0u8..3, 0i64..4, 1i64..4), 0..40),
            (from, to, at) in (0u8..3, 0u8..3, -1i64..80),
        ) {
            let mut clock = [[0i64; 3]; 3];
            let mut contacts = Vec::new();
            for (a, b, gap, length) in gaps.into_iter().filter(|(a, b, ..)| a != b) {
                let start = clock[usize::from(a)][usize::from(b)] + gap;
                clock[usize::from(a)][usize::from(b)] = start + length;
                contacts.push(contact(a, b, start, start + length));
            }
            let plan = ContactPlan::new(contacts.clone()).unwrap();
            let (from, to, at) = (node(from), node(to), Time::from_unix_ms(at));
            let pair = |c: &&Contact| c.from == from && c.to == to;
            prop_assert_eq!(plan.open(from, to, at), contacts.iter().filter(pair).find(|c| c.is_open(at)));
            prop_assert_eq!(
                plan.next(from, to, at),
                contacts.iter().filter(pair).filter(|c| c.start > at).min_by_key(|c| c.start)
            );
            prop_assert_eq!(plan.contacts_from(from).len(), contacts.iter().filter(|c| c.from == from).count());
            prop_assert_eq!(
                plan.contacts_of(from).count(),
                contacts.iter().filter(|c| c.from == from || c.to == from).count()
            );
        }
    }
}
