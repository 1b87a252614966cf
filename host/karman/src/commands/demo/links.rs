//! The nodes, and what the links between them are like. The figures are made up, each in the order of what there is: a downlink of a
//! small satellite, a local network, and a mobile network that many use at once.

use karman_types::NodeId;
use serde::Serialize;
use std::fmt;

/// The nodes of the demonstration.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Who {
    /// The satellite.
    Sat,
    /// The edge board with the dish that the satellite passes over.
    Dish,
    /// The edge board in the village.
    Siren,
    /// The machine in the county's office.
    Fog,
    /// The gateway.
    Cloud,
}

impl Who {
    /// All of them, the first one up first.
    pub(super) const ALL: [Self; 5] = [Self::Cloud, Self::Fog, Self::Dish, Self::Siren, Self::Sat];

    /// Its name in the report, and of its folder.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sat => "sat",
            Self::Dish => "dish",
            Self::Siren => "siren",
            Self::Fog => "fog",
            Self::Cloud => "cloud",
        }
    }

    /// Where it stands.
    pub(super) const fn tier(self) -> &'static str {
        match self {
            Self::Sat => "space",
            Self::Dish | Self::Siren => "edge",
            Self::Fog => "fog",
            Self::Cloud => "cloud",
        }
    }

    /// How many times slower its models run than this machine could.
    pub(super) const fn slowdown(self) -> u32 {
        match self {
            Self::Sat => 16,
            Self::Dish | Self::Siren => 50,
            Self::Fog => 40,
            Self::Cloud => 1,
        }
    }

    const fn is_edge(self) -> bool {
        matches!(self, Self::Dish | Self::Siren)
    }

    /// What a link is like while it is there: delay in milliseconds, kbit/s. Nothing where there is none.
    const fn link_to(self, to: Self) -> Option<(u32, u32)> {
        match (self, to) {
            (Self::Sat, Self::Dish) => Some((4, 8000)),
            (Self::Dish, Self::Sat) => Some((4, 2000)),
            (Self::Dish | Self::Siren, Self::Dish | Self::Siren) => Some((3, 20_000)),
            (Self::Dish | Self::Siren, Self::Fog) | (Self::Fog, Self::Dish | Self::Siren) => {
                Some((2, 40_000))
            }
            (Self::Fog, Self::Cloud) => Some((140, 500)),
            (Self::Dish | Self::Siren, Self::Cloud) => Some((150, 500)),
            (Self::Cloud, Self::Fog | Self::Dish | Self::Siren) => Some((150, 4000)),
            _ => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which links are there now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// The satellite has been launched: it is no longer beside the others.
    pub(super) launched: bool,
    /// It is over the dish.
    pub(super) passes: bool,
    /// The edge reaches the cloud and the fog.
    pub(super) uplink: bool,
}

impl Links {
    /// The link from one node to another, as a link profile has it.
    pub(super) fn describe(self, from: Who, to: Who, id: NodeId) -> String {
        let is_space = from == Who::Sat || to == Who::Sat;
        let goes_up = from.is_edge() != to.is_edge() && !is_space;
        let is_there = match from.link_to(to) {
            // Before the launch it stands beside the others.
            None => !self.launched,
            Some(_) if is_space => self.passes,
            Some(_) => self.uplink || !goes_up,
        };
        let (delay, rate) = from.link_to(to).unwrap_or((1, 100_000));
        let outage = match is_there {
            true => "",
            false => "outages = [{ start = \"0s\", length = \"1000d\" }]\n",
        };
        format!("[[link]]\nto = \"{id}\"\ndelay = \"{delay}ms\"\nrate = \"{rate} kbit/s\"\n{outage}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_space::LinkProfile;
    use karman_types::Tier;
    use std::time::Duration;

    #[test]
    fn a_link_is_there_when_it_should_be() {
        let id = NodeId::of_key(b"other");
        let links = Links {
            launched: true,
            passes: false,
            uplink: true,
        };
        let is_there = |links: Links, from, to| {
            let profile = LinkProfile::from_toml(&links.describe(from, to, id)).unwrap();
            profile
                .to(id, Tier::Edge)
                .unwrap()
                .outage(Duration::ZERO)
                .is_none()
        };
        let passes = Links {
            passes: true,
            ..links
        };
        let no_uplink = Links {
            uplink: false,
            ..passes
        };
        for (from, to, there) in [
            (Who::Sat, Who::Dish, [false, true, true]),
            (Who::Dish, Who::Sat, [false, true, true]),
            (Who::Sat, Who::Cloud, [false, false, false]),
            (Who::Dish, Who::Cloud, [true, true, false]),
            (Who::Fog, Who::Siren, [true, true, false]),
            (Who::Dish, Who::Siren, [true, true, true]),
            (Who::Fog, Who::Cloud, [true, true, true]),
        ] {
            let found = [links, passes, no_uplink].map(|links| is_there(links, from, to));
            assert_eq!(found, there, "{from} to {to}");
        }
        let on_the_ground = Links {
            launched: false,
            ..links
        };
        assert!(is_there(on_the_ground, Who::Sat, Who::Cloud));
    }
}
