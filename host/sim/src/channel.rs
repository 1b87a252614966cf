use crate::Instant;
use karman_space::{Contact, ContactPlan, Line, Time};
use karman_types::NodeId;
use std::time::Duration;

/// A one-way link from a node to another.
#[derive(Clone, Debug)]
pub enum Channel {
    /// Nothing is between them: the same node.
    Local,
    /// A link with its delay, jitter, loss, rate and outages.
    Line(Box<Line>),
    /// A link that exists in contacts only. Adjoining contacts of different rates make a recorded trace of bandwidth.
    Contacts(Contacts),
}

/// When something that is sent has left, and when it has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Passage {
    /// The channel is free for the next one.
    pub left: Instant,
    /// The other side has it.
    pub arrived: Instant,
    /// How long the sender was busy with it, packets that had to be sent again not counted.
    pub took: Duration,
}

impl Channel {
    /// Sends this many bytes, after what was sent before. Nothing when they do not get there: no contact is left that takes them
    /// (then nothing is sent).
    pub fn send(&mut self, now: Instant, bytes: u64) -> Option<Passage> {
        match self {
            Self::Local => Some(Passage {
                left: now,
                arrived: now,
                took: Duration::ZERO,
            }),
            Self::Line(line) => {
                let passage = line.send(now.since_start(), usize::try_from(bytes).unwrap_or(usize::MAX));
                Some(Passage {
                    left: passage.left.into(),
                    arrived: passage.arrived.into(),
                    took: line
                        .link()
                        .rate
                        .map_or(Duration::ZERO, |rate| rate.time_for(bytes)),
                })
            }
            Self::Contacts(contacts) => contacts.send(now, bytes),
        }
    }

    /// When they would be there, without sending them: what a planner that knows the channel may ask.
    pub fn arrival(&self, now: Instant, bytes: u64) -> Option<Instant> {
        self.clone().send(now, bytes).map(|passage| passage.arrived)
    }
}

/// The contacts from one node to another, in use. What does not fit into one goes on in the next.
#[derive(Clone, Debug)]
pub struct Contacts {
    windows: Vec<Window>,
    /// The window in which the next byte may leave, and when.
    current: usize,
    free: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: Instant,
    end: Instant,
    contact: Contact,
}

impl Contacts {
    /// Those of a plan between two nodes; `dawn` is the time of day at which the run begins. Contacts that end before are left
    /// out.
    pub fn new(plan: &ContactPlan, from: NodeId, to: NodeId, dawn: Time) -> Self {
        let contacts = plan.contacts_between(from, to).iter();
        let windows = contacts
            .filter(|contact| contact.end > dawn)
            .map(|&contact| Window {
                start: contact.start.since(dawn).into(),
                end: contact.end.since(dawn).into(),
                contact,
            });
        Self {
            windows: windows.collect(),
            current: 0,
            free: Instant::START,
        }
    }

    /// Whether a bit can leave at this instant.
    pub fn is_open(&self, now: Instant) -> bool {
        let next = self.windows.partition_point(|window| window.end <= now);
        self.windows.get(next).is_some_and(|window| window.start <= now)
    }

    /// When a bit can leave, from this instant on.
    pub fn opens(&self, now: Instant) -> Option<Instant> {
        let next = self.windows.partition_point(|window| window.end <= now);
        self.windows.get(next).map(|window| window.start.max(now))
    }

    fn send(&mut self, now: Instant, bytes: u64) -> Option<Passage> {
        let (mut rest, mut at, mut took) = (bytes.max(1), self.free.max(now), Duration::ZERO);
        for (index, window) in self.windows.iter().enumerate().skip(self.current) {
            at = at.max(window.start);
            let room = window.contact.rate.bytes_in(window.end.since(at));
            if rest > room {
                rest -= room;
                took += window.end.since(at);
                continue;
            }
            let last = window.contact.rate.time_for(rest);
            let left = at + last;
            (self.current, self.free) = (index, left);
            return Some(Passage {
                left,
                arrived: left + window.contact.delay,
                took: took + last,
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_space::{LinkProfile, Rate};
    use karman_types::Tier;

    const SECOND: u64 = 1_000_000_000;

    fn node(n: u8) -> NodeId {
        NodeId::of_key(&[n])
    }

    fn contacts(windows: &[(u64, u64, u64)]) -> Channel {
        let dawn = Time::from_unix_ms(1_000_000);
        let contacts = windows.iter().map(|&(start, end, rate)| Contact {
            from: node(0),
            to: node(1),
            start: dawn + Duration::from_secs(start),
            end: dawn + Duration::from_secs(end),
            rate: Rate(rate * 8),
            delay: Duration::from_secs(1),
        });
        let plan = ContactPlan::new(contacts.collect()).unwrap();
        Channel::Contacts(Contacts::new(&plan, node(0), node(1), dawn))
    }

    #[test]
    fn what_does_not_fit_goes_on_in_the_next_contact() {
        let mut channel = contacts(&[(10, 20, 100), (20, 30, 50), (100, 110, 100)]);
        let mut send = |at, bytes| {
            let passage = channel.send(Instant(at * SECOND), bytes)?;
            Some((passage.left.0 / SECOND, passage.arrived.0 / SECOND))
        };
        assert_eq!(send(0, 500), Some((15, 16)));
        // 500 bytes in the first, 250 in the second.
        assert_eq!(send(12, 750), Some((25, 26)));
        assert_eq!(send(40, 600), Some((106, 107)));
        // Too much for what is left; a smaller one still goes.
        assert_eq!(send(40, 500), None);
        assert_eq!(send(40, 400), Some((110, 111)));
        assert_eq!(send(200, 1), None);
    }

    #[test]
    fn contacts_say_when_they_open() {
        let Channel::Contacts(contacts) = contacts(&[(10, 20, 100), (30, 40, 50)]) else {
            unreachable!()
        };
        let at = |seconds: u64| Instant(seconds * SECOND);
        assert!(!contacts.is_open(at(9)) && contacts.is_open(at(10)) && !contacts.is_open(at(20)));
        assert_eq!(contacts.opens(at(15)), Some(at(15)));
        assert_eq!(contacts.opens(at(20)), Some(at(30)));
        assert_eq!(contacts.opens(at(40)), None);
    }

    #[test]
    fn a_line_is_the_one_of_the_real_node() {
        let text = "[[link]]\nto = \"all\"\ndelay = \"40ms\"\nrate = \"8 Mbit/s\"";
        let link = LinkProfile::from_toml(text)
            .unwrap()
            .to(node(1), Tier::Edge)
            .unwrap()
            .clone();
        let mut channel = Channel::Line(Box::new(Line::new(link, 1)));
        assert_eq!(channel.arrival(Instant::START, 1_000), Some(Instant(41_000_000)));
        for arrived in [41_000_000, 42_000_000] {
            assert_eq!(
                channel.send(Instant::START, 1_000).map(|passage| passage.arrived),
                Some(Instant(arrived))
            );
        }
        assert_eq!(
            Channel::Local.send(Instant(7), 1 << 40).unwrap().arrived,
            Instant(7)
        );
    }
}
