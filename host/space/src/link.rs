use crate::Rate;
use karman_types::{KeyError, NodeId, NodeSelector, Tier, from_toml, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How links behave that leave a node: for rehearsals on one machine, where they would otherwise be as good as perfect, and
/// for the simulator, which takes the same description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkProfile {
    links: Vec<Link>,
}

/// A link to some nodes, one way: what comes back is the other side's profile. In serialised form it is what an operator writes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Entry", into = "Entry")]
pub struct Link {
    /// To which nodes.
    pub to: NodeSelector,
    /// How long a bit is on its way.
    pub delay: Duration,
    /// How much longer it may be, each length as likely as the other.
    pub jitter: Duration,
    /// The share of packets that are lost. Each is sent again a round trip later, as reliable transports do; what their
    /// congestion control makes of losses is not modelled.
    pub loss: f64,
    /// How fast it sends; nothing: as fast as it goes.
    pub rate: Option<Rate>,
    /// When nothing passes, counted from the start of the node; by start, none over another.
    pub outages: Vec<Outage>,
    /// After which time the outages come again.
    pub repeat: Option<Duration>,
}

/// A time in which a link is gone.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Since the start of the node, or of the repetition.
    #[serde(with = "serde_duration")]
    pub start: Duration,
    /// How long.
    #[serde(with = "serde_duration")]
    pub length: Duration,
}

impl Outage {
    /// When it is over.
    pub const fn end(&self) -> Duration {
        self.start.saturating_add(self.length)
    }
}

/// A profile that does not hold together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The text is not what a profile looks like.
    #[error(transparent)]
    Text(#[from] KeyError),
    /// A text that is too long to be read.
    #[error(
        "the profile has {bytes} bytes, but at most {} are read",
        LinkProfile::MAX_TEXT
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// No share.
    #[error("link to {to}: `loss` is {loss}, but must be at least 0 and below 1")]
    Loss {
        /// Of which link.
        to: NodeSelector,
        /// What was given.
        loss: f64,
    },
    /// Nothing could be sent.
    #[error("link to {to}: `rate` must be more than 0 bit/s: for a link that is gone, write an outage")]
    Rate {
        /// Of which link.
        to: NodeSelector,
    },
    /// Longer than anything this is made for.
    #[error("link to {to}: `delay` and `jitter` must be at most {} s", LinkProfile::MAX_DELAY.as_secs())]
    Delay {
        /// Of which link.
        to: NodeSelector,
    },
    /// Outages that are none, out of order, over each other, or longer than what they repeat after.
    #[error("link to {to}: the outage that starts at {start:?} has no length, or begins before another ends")]
    Outage {
        /// Of which link.
        to: NodeSelector,
        /// Its start.
        start: Duration,
    },
}

/// The file that an operator writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    link: Vec<Entry>,
}

/// A link to some nodes, one way: what comes back is the other side's profile. Of several that lead to a node the first counts.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// To which nodes: `all`, `tier=cloud`, or the beginning of an id.
    to: NodeSelector,
    /// How long a bit is on its way. Default 0.
    #[serde(default, with = "serde_duration")]
    delay: Duration,
    /// How much longer it may be, each length as likely as the other. Default 0.
    #[serde(default, with = "serde_duration")]
    jitter: Duration,
    /// The share of packets that are lost, at least 0 and below 1; each is sent again a round trip later. Default 0.
    #[serde(default)]
    loss: f64,
    /// How fast it sends. Default: as fast as it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    /// When nothing passes; by start, none over another. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outages: Vec<Outage>,
    /// After which time the outages come again. Default: they do not.
    #[serde(default, with = "serde_duration")]
    repeat: Duration,
}

impl LinkProfile {
    /// The most bytes of a text that is read.
    pub const MAX_TEXT: usize = 1 << 20;

    /// The longest delay and the longest jitter.
    pub const MAX_DELAY: Duration = Duration::from_secs(3600);

    /// A profile of these links: of several that lead to a node the first counts.
    pub const fn new(links: Vec<Link>) -> Self {
        Self { links }
    }

    /// Reads a profile that an operator wrote: a table `[[link]]` for each with `to` (`all`, `tier=cloud`, or a node), and as
    /// needed `delay`, `jitter` (`40 ms`), `loss` (a share of packets), `rate` (`9 Mbit/s`), `outages` (each with `start` and
    /// `length`) and `repeat`. Of several that lead to a node the first counts.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] over [`Self::MAX_TEXT`] bytes; [`LinkError::Text`] with the line for what cannot be read, and the
    /// nearest known key for an unknown one; the others for what no link is like.
    pub fn from_toml(text: &str) -> Result<Self, LinkError> {
        if text.len() > Self::MAX_TEXT {
            return Err(LinkError::TooLong { bytes: text.len() });
        }
        let file: File = from_toml(text)?;
        let links = file.link.into_iter().map(Link::try_from);
        let links = links.collect::<Result<_, _>>()?;
        Ok(Self { links })
    }

    /// The link to a node; nothing where none is described.
    pub fn to(&self, node: NodeId, tier: Tier) -> Option<&Link> {
        self.links.iter().find(|link| link.to.matches(node, tier))
    }
}

impl TryFrom<Entry> for Link {
    type Error = LinkError;

    fn try_from(entry: Entry) -> Result<Self, LinkError> {
        let Entry {
            to,
            delay,
            jitter,
            loss,
            rate,
            outages,
            repeat,
        } = entry;
        if !(0.0..1.0).contains(&loss) {
            return Err(LinkError::Loss { to, loss });
        }
        if rate == Some(Rate(0)) {
            return Err(LinkError::Rate { to });
        }
        if delay.max(jitter) > LinkProfile::MAX_DELAY {
            return Err(LinkError::Delay { to });
        }
        let repeat = (repeat > Duration::ZERO).then_some(repeat);
        let mut earliest = Duration::ZERO;
        for outage in &outages {
            let fits = repeat.is_none_or(|repeat| outage.end() < repeat);
            if outage.length.is_zero() || outage.start < earliest || !fits {
                let start = outage.start;
                return Err(LinkError::Outage { to, start });
            }
            earliest = outage.end();
        }
        Ok(Self {
            to,
            delay,
            jitter,
            loss,
            rate,
            outages,
            repeat,
        })
    }
}

impl From<Link> for Entry {
    fn from(link: Link) -> Self {
        Self {
            to: link.to,
            delay: link.delay,
            jitter: link.jitter,
            loss: link.loss,
            rate: link.rate,
            outages: link.outages,
            repeat: link.repeat.unwrap_or_default(),
        }
    }
}

impl Link {
    /// The outage that it is in at this time: when that began and when it ends.
    pub fn outage(&self, now: Duration) -> Option<Outage> {
        let round = match self.repeat {
            Some(repeat) => Duration::from_nanos((now.as_nanos() % repeat.as_nanos()) as u64),
            None => now,
        };
        let base = now - round;
        let gone = self
            .outages
            .iter()
            .find(|outage| outage.start <= round && round < outage.end())?;
        Some(Outage {
            start: base + gone.start,
            length: gone.length,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn node() -> NodeId {
        NodeId::of_key(b"node")
    }

    pub(crate) fn link(text: &str) -> Link {
        let profile = LinkProfile::from_toml(&format!("[[link]]\nto = \"all\"\n{text}")).unwrap();
        profile.to(node(), Tier::Edge).unwrap().clone()
    }

    #[test]
    fn the_first_that_leads_there_counts() {
        let id = node().to_string();
        let profile = LinkProfile::from_toml(&format!(
            "[[link]]\nto = \"{}\"\ndelay = \"1ms\"\n[[link]]\nto = \"tier=cloud\"\ndelay = \"2ms\"\n",
            &id[..6]
        ))
        .unwrap();
        let other = NodeId::of_key(b"other");
        assert_eq!(profile.to(node(), Tier::Cloud).unwrap().delay, MS);
        assert_eq!(profile.to(other, Tier::Cloud).unwrap().delay, 2 * MS);
        assert_eq!(profile.to(other, Tier::Edge), None);
    }

    #[test]
    fn what_no_link_is_like_is_refused() {
        let says = |text: &str| {
            let text = format!("[[link]]\nto = \"all\"\n{text}");
            LinkProfile::from_toml(&text).unwrap_err().to_string()
        };
        assert!(says("loss = 1.0").contains("below 1"));
        assert!(says("rate = \"0 bit/s\"").contains("write an outage"));
        assert!(says("delay = \"2h\"").contains("3600 s"));
        assert!(says("lag = \"1s\"").contains("lag"));
        assert!(says("outages = [{ start = \"5s\", length = \"0s\" }]").contains("no length"));
        assert!(
            says("outages = [{ start = \"5s\", length = \"9s\" }]\nrepeat = \"10s\"")
                .contains("begins before")
        );
        assert!(LinkProfile::from_toml("[[link]]\nto = \"everywhere\"").is_err());
    }

    #[test]
    fn a_link_reads_what_it_writes() {
        #[derive(Debug, Deserialize, PartialEq, Serialize)]
        struct Links {
            link: Vec<Link>,
        }
        let written = "delay = \"40ms\"\nloss = 0.125\nrate = \"2 Mbit/s\"\noutages = [{ start = \"5s\", length = \"1s\" }]\nrepeat = \"9s\"";
        let links = Links {
            link: vec![link(written), link("")],
        };
        let text = serde_json::to_string(&links).unwrap();
        assert_eq!(serde_json::from_str::<Links>(&text).unwrap(), links);
        assert!(serde_json::from_str::<Links>(&text.replace("0.125", "1.5")).is_err());
    }

    #[test]
    fn an_outage_comes_again() {
        let gone = link("outages = [{ start = \"2s\", length = \"3s\" }]\nrepeat = \"10s\"");
        let at = |seconds| {
            gone.outage(Duration::from_secs(seconds))
                .map(|outage| outage.end().as_secs())
        };
        assert_eq!((at(1), at(2), at(4), at(5)), (None, Some(5), Some(5), None));
        assert_eq!((at(12), at(15)), (Some(15), None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = LinkProfile::from_toml(&text);
        }
    }
}
