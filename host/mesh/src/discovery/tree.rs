//! All nodes of a tier, in any size of mesh: a tree of keys of the DHT (a prefix hash tree, after Ramabhadran et al., 2004).
//!
//! No key can name them all: those next to it remember 64 nodes, and an answer has room for eight. So a branch with many nodes has four
//! below it, by the next two bits of the nodes' ids. A node announces itself on every branch from the root of its tier down to
//! the first that has [few](CROWD) others, and whoever lists nodes goes down from each branch of which a search has seen
//! [a part only](Seen::is_part). Nobody has to know or guess how large the mesh is, and nodes that none can dial count as well as others.
//!
//! **What it costs.** Of a tier of `n` nodes each announces about `log₄(n/6) + 2` keys, one key more each time the tier grows fourfold: two
//! of 20 nodes, seven of 10,000. How much a node sends to announce them is the same in any size, for it announces one key every half hour
//! ([`Turns`](crate::swarm)); once an hour or less it looks how full its own branches are, which is two searches. A list of the tier takes
//! about `n/6` searches, of some ten questions each: four in a mesh of a few nodes, 1,500 for 10,000.
//!
//! **What it finds.** Branches end with seven nodes at most when all have looked; a search misses 0.4 % of 16, and nothing of seven. A tier
//! that has grown since its nodes looked is named in part by the branches that were full then, and wholly again within the hour.

use crate::swarm::Seen;
use futures::stream::{FuturesUnordered, StreamExt};
use karman_types::{NodeId, Tier};
use libp2p::{Multiaddr, PeerId};
use std::collections::{HashMap, VecDeque};
use std::fmt;

/// Other nodes on a branch from which on a node announces itself below it, too. That is less than [`Seen::is_part`] takes to look there: who lists
/// goes by what it sees now, and nodes by what they saw a while ago.
pub(crate) const CROWD: usize = 6;
/// How deep the tree is at most: a million branches.
const DEEPEST: usize = 10;
/// Branches that are searched at once: each search asks some ten nodes.
const AT_ONCE: usize = 8;
/// Branches that one list searches: enough for 25,000 nodes. Nobody keeps a list going by announcing itself everywhere, and as the branches
/// nearest to the roots are searched first, those whom somebody invents are in the way of few that are there.
const MOST: usize = 4096;
/// Nodes that one list has.
const MOST_FOUND: usize = 32_768;

/// The nodes of a tier whose ids begin with the same bits.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Branch {
    tier: Tier,
    /// Two bits a digit.
    path: String,
}

impl Branch {
    /// All nodes of the tier.
    pub(crate) const fn root(tier: Tier) -> Self {
        let path = String::new();
        Self { tier, path }
    }

    /// The branch of this depth that the node is on; the deepest one if there is none so deep.
    pub(crate) fn of(tier: Tier, node: NodeId, depth: usize) -> Self {
        let id = node.to_string();
        let bits = id.chars().filter_map(|digit| digit.to_digit(16));
        let pairs = bits.flat_map(|four| [four / 4, four % 4]);
        let path = pairs.filter_map(|two| char::from_digit(two, 4));
        let path = path.take(depth.min(DEEPEST)).collect();
        Self { tier, path }
    }

    /// The tier of its nodes.
    pub(crate) const fn tier(&self) -> Tier {
        self.tier
    }

    /// How the ids of its nodes begin, as far as that is whole hexadecimal digits.
    pub(crate) fn begins(&self) -> String {
        let pairs = self.path.as_bytes().chunks_exact(2);
        let fours = pairs.map(|two| 4 * u32::from(two[0] - b'0') + u32::from(two[1] - b'0'));
        fours.filter_map(|four| char::from_digit(four, 16)).collect()
    }

    /// The branches below it.
    fn below(&self) -> Vec<Self> {
        if self.path.len() >= DEEPEST {
            return Vec::new();
        }
        let tier = self.tier;
        let paths = (0..4).map(|two| format!("{}{two}", self.path));
        paths.map(|path| Self { tier, path }).collect()
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tier, self.path)
    }
}

/// How deep a node announces itself that has done so down to `depth`, where `others` says how many others are on its branch of a depth; nothing
/// where nobody answers. It goes down as far as there is a crowd, and up one step at a time: that nobody is named may be chance.
pub(crate) async fn depth<O: Future<Output = Option<usize>>>(
    depth: usize,
    others: impl Fn(usize) -> O,
) -> usize {
    if let Some(above) = depth.checked_sub(1)
        && others(above).await.is_some_and(|others| others < CROWD)
    {
        return above;
    }
    for depth in depth..DEEPEST {
        if others(depth).await.is_none_or(|others| others < CROWD) {
            return depth;
        }
    }
    DEEPEST
}

/// Who is on these branches and on all below them that may lead to somebody who is wanted, and where they are.
pub(crate) async fn list<S: Future<Output = Seen>>(
    roots: impl IntoIterator<Item = Branch>,
    leads: impl Fn(&Branch) -> bool,
    search: impl Fn(Branch) -> S,
) -> HashMap<PeerId, Vec<Multiaddr>> {
    let mut found: HashMap<PeerId, Vec<Multiaddr>> = HashMap::new();
    let mut under_way = FuturesUnordered::new();
    let mut searched = 0;
    let mut branches: VecDeque<Branch> = roots.into_iter().filter(&leads).collect();
    loop {
        while under_way.len() < AT_ONCE
            && searched < MOST
            && let Some(branch) = branches.pop_front()
        {
            searched += 1;
            let seen = search(branch.clone());
            under_way.push(async move { (branch, seen.await) });
        }
        let Some((branch, seen)) = under_way.next().await else {
            if !branches.is_empty() {
                tracing::warn!(searched, left = branches.len(), "a list of nodes is cut short");
            }
            return found;
        };
        if seen.is_part() {
            branches.extend(branch.below().into_iter().filter(&leads));
        }
        for (node, at) in seen.nodes {
            if found.len() >= MOST_FOUND && !found.contains_key(&node) {
                continue;
            }
            let known = found.entry(node).or_default();
            if known.is_empty() {
                *known = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calling::node_of;
    use fastrand::Rng;
    use futures::executor::block_on;
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;
    use std::future::ready;

    /// What those next to a key remember of it, as `Records` does.
    const REMEMBERED: usize = 64;
    /// What one answer has room for.
    const ANSWER: usize = 8;

    /// The keys of a mesh, each kept by so many nodes.
    struct Mesh {
        kept_by: usize,
        keys: RefCell<HashMap<Branch, VecDeque<PeerId>>>,
        searches: Cell<usize>,
        luck: RefCell<Rng>,
    }

    impl Mesh {
        fn kept_by(kept_by: usize) -> Self {
            Self {
                kept_by,
                keys: RefCell::default(),
                searches: Cell::new(0),
                luck: RefCell::new(Rng::with_seed(7)),
            }
        }

        /// Nodes of any keys, the same ones in each run.
        fn nodes(&self, count: usize) -> Vec<PeerId> {
            let mut luck = self.luck.borrow_mut();
            let mut key = || {
                let mut seed = [0; 32];
                luck.fill(&mut seed);
                let key = libp2p::identity::Keypair::ed25519_from_bytes(seed).unwrap();
                key.public().to_peer_id()
            };
            (0..count).map(|_| key()).collect()
        }

        fn announce(&self, node: PeerId, depth: usize) {
            for depth in 0..=depth {
                let mut keys = self.keys.borrow_mut();
                let known = keys
                    .entry(Branch::of(Tier::Edge, node_of(&node), depth))
                    .or_default();
                known.retain(|known| *known != node);
                known.push_back(node);
                if known.len() > REMEMBERED {
                    known.pop_front();
                }
            }
        }

        fn search(&self, branch: &Branch) -> Seen {
            self.searches.set(self.searches.get() + 1);
            let keys = self.keys.borrow();
            let Some(known) = keys.get(branch) else {
                return Seen::default();
            };
            let mut luck = self.luck.borrow_mut();
            let mut nodes = HashMap::new();
            for _ in 0..self.kept_by {
                let answer = luck.choose_multiple(known, ANSWER);
                nodes.extend(answer.into_iter().map(|node| (*node, Vec::new())));
            }
            let answers = self.kept_by;
            Seen { nodes, answers }
        }

        /// How deep the node stands, once it has looked.
        fn looks(&self, node: PeerId, before: usize) -> usize {
            let others = |depth| {
                let mut seen = self.search(&Branch::of(Tier::Edge, node_of(&node), depth));
                seen.nodes.remove(&node);
                ready((seen.answers > 0).then_some(seen.nodes.len()))
            };
            block_on(depth(before, others))
        }

        /// These come one after the other, and each looks once and, when all are there, once more.
        fn fill(&self, nodes: &[PeerId]) -> usize {
            let first: Vec<usize> = nodes
                .iter()
                .map(|node| {
                    let depth = self.looks(*node, 0);
                    self.announce(*node, depth);
                    depth
                })
                .collect();
            let looked = nodes.iter().zip(first).map(|(node, before)| {
                let depth = self.looks(*node, before);
                self.announce(*node, depth);
                depth
            });
            looked.max().unwrap()
        }

        fn list(&self) -> (HashSet<PeerId>, usize) {
            self.searches.set(0);
            let search = |branch| ready(self.search(&branch));
            let found = block_on(list([Branch::root(Tier::Edge)], |_| true, search));
            (found.into_keys().collect(), self.searches.get())
        }
    }

    #[test]
    fn a_tier_of_any_size_is_listed_nearly_whole_by_searches_that_grow_with_it() {
        // Nodes, those that keep a key, keys of a node at most, searches at most.
        for (count, kept_by, keys, searches) in [
            (1, 1, 1, 1),
            (7, 3, 2, 1),
            (30, 8, 5, 30),
            (500, 8, 7, 300),
            (1000, 8, 7, 600),
            (1000, 2, 7, 1000),
            (10_000, 8, 9, 2000),
        ] {
            let mesh = Mesh::kept_by(kept_by);
            let nodes = mesh.nodes(count);
            let deepest = mesh.fill(&nodes);
            let (found, searched) = mesh.list();
            let all: HashSet<PeerId> = nodes.into_iter().collect();
            assert!(found.is_subset(&all));
            let share = found.len() as f64 / count as f64;
            let shows = format!("{count} nodes: {share} by {searched} searches, {deepest} deep");
            assert!(share > 0.995 && deepest < keys && searched <= searches, "{shows}");
        }
    }

    #[test]
    fn a_tier_that_has_shrunk_is_listed_by_few_searches_again() {
        let mesh = Mesh::kept_by(8);
        let nodes = mesh.nodes(1000);
        mesh.fill(&nodes);
        mesh.keys.borrow_mut().clear();
        let mut stay: Vec<(PeerId, usize)> = nodes.into_iter().take(5).map(|node| (node, 5)).collect();
        for _ in 0..5 {
            for (node, depth) in &mut stay {
                mesh.announce(*node, *depth);
                *depth = mesh.looks(*node, *depth);
            }
        }
        assert!(stay.iter().all(|(_, depth)| *depth == 0), "{stay:?}");
        let (found, searched) = mesh.list();
        assert_eq!((found.len(), searched), (5, 1));
    }

    #[test]
    fn where_nobody_answers_a_node_stays_where_it_is() {
        let nobody = |_| ready(None);
        assert_eq!([0, 3].map(|before| block_on(depth(before, nobody))), [0, 3]);
    }

    #[test]
    fn who_invents_nodes_everywhere_ends_a_list_and_hides_nobody_near_the_roots() {
        let mesh = Mesh::kept_by(8);
        let nodes = mesh.nodes(500);
        mesh.fill(&nodes);
        mesh.searches.set(0);
        // A liar next to every key of both tiers, who names others each time.
        let lies = |branch: Branch| {
            let mut seen = mesh.search(&branch);
            let invented = (0..2 * REMEMBERED).map(|_| (PeerId::random(), Vec::new()));
            seen.nodes.extend(invented);
            seen.answers += 1;
            ready(seen)
        };
        let roots = [Tier::Edge, Tier::Space].map(Branch::root);
        let found = block_on(list(roots, |_| true, lies));
        assert_eq!((mesh.searches.get(), found.len()), (MOST, MOST_FOUND));
        let named = nodes.iter().filter(|node| found.contains_key(node)).count();
        assert!(named > 490, "{named} of 500");
    }

    #[test]
    fn a_node_is_on_the_branches_that_its_id_begins_with() {
        let node: NodeId = "9c01d2e700000000".parse().unwrap();
        let at = |depth| Branch::of(Tier::Fog, node, depth);
        assert_eq!(at(0), Branch::root(Tier::Fog));
        assert_eq!(at(4).to_string(), "fog/2130");
        assert_eq!([1, 2, 3, 4].map(|depth| at(depth).begins()), ["", "9", "9", "9c"]);
        assert_eq!(at(3).below()[0], at(4));
        assert_eq!(at(64).below(), []);
    }
}
