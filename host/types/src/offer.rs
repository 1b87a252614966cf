use crate::{Digest, NodeId, Tier};
use semver::Version;
use serde::{Deserialize, Serialize};

/// The tasks and resources that a node offers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Offer {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub tier: Tier,
    /// Processor cores.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Tasks that it runs, one for each plugin that serves.
    pub tasks: Vec<OfferedTask>,
    /// Models that it holds, by name.
    pub models: Vec<String>,
}

/// One task of an offer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct OfferedTask {
    /// By which it is called; `/` parts a capability from what is above it: `vision/segmentation`.
    pub name: String,
    /// The plugin's version.
    pub version: Version,
    /// The plugin's file.
    pub id: Digest,
}

impl Offer {
    /// Whether it runs this task, or one below it in the tree of capabilities.
    pub fn runs(&self, name: &str) -> Option<&OfferedTask> {
        let exact = self.tasks.iter().find(|task| task.name == name);
        exact.or_else(|| {
            self.tasks.iter().find(|task| {
                task.name
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('/'))
            })
        })
    }
}

/// A capability and those above it: `vision/segmentation`, `vision`.
pub fn capability_levels(name: &str) -> impl Iterator<Item = &str> {
    let above = name.rmatch_indices('/').map(|(at, _)| &name[..at]);
    std::iter::once(name).chain(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_found_under_every_level() {
        let levels: Vec<_> = capability_levels("vision/segmentation/roads").collect();
        assert_eq!(
            levels,
            ["vision/segmentation/roads", "vision/segmentation", "vision"]
        );
        let offer = Offer {
            node: NodeId::of_key(b"a"),
            tier: Tier::Edge,
            cores: 4,
            memory: 1 << 30,
            tasks: vec![OfferedTask {
                name: levels[0].into(),
                version: Version::new(0, 1, 0),
                id: Digest::of(b"a"),
            }],
            models: Vec::new(),
        };
        for level in levels {
            assert!(offer.runs(level).is_some());
        }
        assert!(offer.runs("vis").is_none());
    }
}
