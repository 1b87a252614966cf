use super::ClusterLessSettings;
use crate::place::Fleet;

/// Which cluster coordinates the others (algorithm 1): the current one as long as it is alive and not too busy, else the one with
/// the least load of those that are.
#[derive(Clone, Debug, Default)]
pub(super) struct SuperMaster {
    /// When each cluster was last heard of, with its load then.
    heard: Vec<Option<(f64, f64)>>,
    current: Option<usize>,
}

impl SuperMaster {
    pub(super) const fn cluster(&self) -> Option<usize> {
        self.current
    }

    /// Takes in the loads of the clusters that have a node which can be reached.
    pub(super) fn hear(&mut self, now: f64, fleet: &Fleet) {
        let clusters = fleet.nodes.iter().map(|node| node.cluster + 1).max().unwrap_or(0);
        self.heard.resize(clusters.max(self.heard.len()), None);
        let mut sums = vec![(0.0, 0.0, false); clusters];
        for node in &fleet.nodes {
            let (load, count, reached) = &mut sums[node.cluster];
            *load += node.load(now);
            *count += 1.0;
            *reached |= node.windows.is_empty()
                || node
                    .windows
                    .iter()
                    .any(|window| window.from <= now && now < window.until);
        }
        for (cluster, (load, count, reached)) in sums.into_iter().enumerate() {
            if reached {
                self.heard[cluster] = Some((now, load / count));
            }
        }
    }

    pub(super) fn elect(&mut self, now: f64, settings: &ClusterLessSettings) {
        let fit = |cluster: usize| {
            let (at, load) = self.heard[cluster]?;
            (now - at <= settings.heartbeat && load <= settings.most_load).then_some(load)
        };
        if self.current.and_then(fit).is_some() {
            return;
        }
        let fits = (0..self.heard.len()).filter_map(|cluster| Some((fit(cluster)?, cluster)));
        self.current = fits
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, cluster)| cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Node, Window};
    use karman_types::NodeId;

    #[test]
    fn the_least_busy_of_the_living_coordinates() {
        let node = |cluster: usize| Node::new(NodeId::of_key(&[cluster as u8]), cluster, 1.0, 1.0, 0, 4);
        let mut fleet = Fleet {
            nodes: (0..3).map(node).collect(),
            components: Vec::new(),
            latency: [0.0; 2],
        };
        let busy = |fleet: &mut Fleet, node: usize, slots: usize, until: f64| {
            fleet.nodes[node].slots[..slots]
                .iter_mut()
                .for_each(|slot| slot.free_at = until);
        };
        busy(&mut fleet, 0, 2, 100.0);
        busy(&mut fleet, 2, 1, 100.0);
        let settings = ClusterLessSettings::default();
        let mut master = SuperMaster::default();
        let mut elect = |now: f64, fleet: &Fleet| {
            master.hear(now, fleet);
            master.elect(now, &settings);
            master.cluster()
        };
        assert_eq!(elect(0.0, &fleet), Some(1));
        // It stays while it may, though another one is less busy now.
        busy(&mut fleet, 1, 3, 100.0);
        assert_eq!(elect(1.0, &fleet), Some(1));
        busy(&mut fleet, 1, 4, 100.0);
        assert_eq!(elect(2.0, &fleet), Some(2));
        // It is not heard of any more, and given up five seconds later.
        fleet.nodes[2].windows = vec![Window {
            from: 0.0,
            until: 2.5,
        }];
        assert_eq!(elect(7.0, &fleet), Some(2));
        assert_eq!(elect(8.0, &fleet), Some(0));
        busy(&mut fleet, 0, 4, 100.0);
        assert_eq!(elect(9.0, &fleet), None);
    }
}
