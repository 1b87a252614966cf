use crate::{NodeId, Tier};
use std::fmt;
use std::str::FromStr;

/// Which nodes are meant, as people write it: `tier=edge`, the id of a node or its beginning (`9c01d2e7`), `all`, or several of these,
/// parted by commas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeSelector(Vec<Part>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    All,
    Tier(Tier),
    /// How the id begins, in hexadecimal digits.
    Node(String),
}

impl NodeSelector {
    /// Fewer digits may be meant for anything else.
    pub const LEAST_DIGITS: usize = 4;

    /// Whether the node, which stands at this tier, is one of those that are meant.
    pub fn matches(&self, node: NodeId, tier: Tier) -> bool {
        self.0.iter().any(|part| match part {
            Part::All => true,
            Part::Tier(of) => *of == tier,
            Part::Node(start) => node.to_string().starts_with(start.as_str()),
        })
    }

    /// Whether a node of this tier may be one of those that are meant whose id begins with these hexadecimal digits.
    pub fn may_match(&self, tier: Tier, begins: &str) -> bool {
        self.0.iter().any(|part| match part {
            Part::All => true,
            Part::Tier(of) => *of == tier,
            Part::Node(start) => start.starts_with(begins) || begins.starts_with(start.as_str()),
        })
    }
}

impl FromStr for NodeSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .map(str::parse::<Part>)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.split_once('=') {
            Some(("tier", tier)) => tier.parse().map(Self::Tier),
            None if text == "all" => Ok(Self::All),
            None if digits && text.len() >= NodeSelector::LEAST_DIGITS => {
                Ok(Self::Node(text.to_ascii_lowercase()))
            }
            _ => Err(format!(
                "`{text}` is no node, tier or `all`: write tier=cloud, the id of a node or its beginning, or all"
            )),
        }
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match part {
                Part::All => write!(f, "{comma}all")?,
                Part::Tier(tier) => write!(f, "{comma}tier={tier}")?,
                Part::Node(start) => write!(f, "{comma}{start}")?,
            }
        }
        Ok(())
    }
}

crate::serde_as_text!(NodeSelector);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_a_tier_a_node_all_or_several() {
        let node = NodeId::of_key(b"node");
        let (id, start) = (node.to_string(), node.to_string()[..6].to_owned());
        for (text, edge, cloud) in [
            ("all", true, true),
            ("tier=edge", true, false),
            (id.as_str(), true, true),
            (start.as_str(), true, true),
            (start.to_uppercase().as_str(), true, true),
            ("00000000,tier=cloud", false, true),
            ("tier=fog, tier=edge", true, false),
        ] {
            let selector: NodeSelector = text.parse().unwrap();
            let matches = [Tier::Edge, Tier::Cloud].map(|tier| selector.matches(node, tier));
            assert_eq!(matches, [edge, cloud], "{text}");
            assert_eq!(selector.to_string().parse(), Ok(selector));
        }
    }

    #[test]
    fn how_an_id_begins_says_whether_the_node_may_be_meant() {
        let meant = |text: &str, tier, begins| text.parse::<NodeSelector>().unwrap().may_match(tier, begins);
        for begins in ["", "9c", "9c01", "9c01d2"] {
            assert!(meant("9c01", Tier::Edge, begins) && meant("9C01", Tier::Cloud, begins));
        }
        assert!(!meant("9c01", Tier::Edge, "9d") && !meant("9c01", Tier::Edge, "9c02"));
        assert!(meant("tier=edge,9c01", Tier::Edge, "00") && !meant("tier=edge,9c01", Tier::Cloud, "00"));
        assert!(meant("all", Tier::Space, "00"));
    }

    #[test]
    fn what_names_no_node_is_refused() {
        for text in ["", "9c0", "everywhere", "tier=moon", "rank=1", "all,", "tier"] {
            let refused = text.parse::<NodeSelector>();
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }
}
