//! The ways between two tiers.

use super::{Link, Objective, Tier};

/// For each pair of tiers the ways that are cheapest for some size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Passages {
    tiers: usize,
    paths: Vec<Vec<Path>>,
}

/// One way: links one after the other, each of which takes the whole message before it hands it on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// Indices of links, from the first.
    pub(crate) links: Vec<usize>,
    fixed_cost: f64,
    cost_per_byte: f64,
    fixed_ms: f64,
    ms_per_byte: f64,
}

impl Passages {
    /// Ways lead steadily to later or steadily to earlier tiers, over tiers that are available.
    pub(crate) fn new(tiers: &[Tier], links: &[Link], objective: &Objective) -> Self {
        let mut paths = vec![Vec::new(); tiers.len() * tiers.len()];
        for from in (0..tiers.len()).filter(|from| tiers[*from].available) {
            let mut open = vec![(from, Path::empty())];
            while let Some((at, path)) = open.pop() {
                for (index, link) in links.iter().enumerate().filter(|(_, link)| link.from == at) {
                    let steady = (link.to > link.from) == (at > from) || at == from;
                    if steady && tiers[link.to].available {
                        let price = objective.transfer_price(tiers, link);
                        let longer = path.over(index, link, price);
                        paths[from * tiers.len() + link.to].push(longer.clone());
                        open.push((link.to, longer));
                    }
                }
            }
        }
        for paths in &mut paths {
            let all = std::mem::take(paths);
            let beaten = |path: &Path| all.iter().any(|other| other.beats(path));
            *paths = all.iter().filter(|path| !beaten(path)).cloned().collect();
        }
        Self {
            tiers: tiers.len(),
            paths,
        }
    }

    /// The cheapest for this many bytes; of equally cheap ones the fastest.
    pub(crate) fn best(&self, from: usize, to: usize, bytes: u64) -> Option<&Path> {
        let paths = &self.paths[from * self.tiers + to];
        paths.iter().min_by(|a, b| {
            let by_cost = a.cost(bytes).total_cmp(&b.cost(bytes));
            by_cost.then(a.ms(bytes).total_cmp(&b.ms(bytes)))
        })
    }
}

impl Path {
    const fn empty() -> Self {
        Self {
            links: Vec::new(),
            fixed_cost: 0.0,
            cost_per_byte: 0.0,
            fixed_ms: 0.0,
            ms_per_byte: 0.0,
        }
    }

    fn over(&self, index: usize, link: &Link, price: f64) -> Self {
        let fixed_ms = link.latency_ms + link.message_ms;
        Self {
            links: self.links.iter().copied().chain([index]).collect(),
            fixed_cost: self.fixed_cost + fixed_ms * price,
            cost_per_byte: self.cost_per_byte + link.ms_per_byte() * price,
            fixed_ms: self.fixed_ms + fixed_ms,
            ms_per_byte: self.ms_per_byte + link.ms_per_byte(),
        }
    }

    /// What a message of this size costs by the objective.
    pub(crate) fn cost(&self, bytes: u64) -> f64 {
        self.fixed_cost + bytes as f64 * self.cost_per_byte
    }

    /// How long it takes.
    pub(crate) fn ms(&self, bytes: u64) -> f64 {
        self.fixed_ms + bytes as f64 * self.ms_per_byte
    }

    /// Whether it is better at every size.
    fn beats(&self, other: &Self) -> bool {
        let ours = [
            self.fixed_cost,
            self.cost_per_byte,
            self.fixed_ms,
            self.ms_per_byte,
        ];
        let theirs = [
            other.fixed_cost,
            other.cost_per_byte,
            other.fixed_ms,
            other.ms_per_byte,
        ];
        ours.iter().zip(&theirs).all(|(ours, theirs)| ours <= theirs) && ours != theirs
    }
}
