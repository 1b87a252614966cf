use serde::{Deserialize, Serialize};

/// The number of a client in its round.
pub type Client = u16;

/// Who exchanges chunks with whom: a random graph in which everybody has at least so many neighbours, and which hangs together.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Overlay(Vec<Vec<Client>>);

impl Overlay {
    /// Draws one: a ring in random order, and then each client with too few neighbours gets further ones, drawn from all. The same
    /// seed draws the same.
    pub(crate) fn draw(clients: usize, neighbours: usize, random: &mut fastrand::Rng) -> Self {
        let neighbours = neighbours.min(clients.saturating_sub(1));
        let mut all: Vec<Client> = (0..clients as Client).collect();
        random.shuffle(&mut all);
        let mut overlay = Self(vec![Vec::new(); clients]);
        for (place, client) in all.iter().enumerate() {
            overlay.connect(*client, all[(place + 1) % clients]);
        }
        for client in all.clone() {
            while overlay.0[usize::from(client)].len() < neighbours {
                // Those with few neighbours first, so that nobody ends up with many.
                let drawn = (0..4).map(|_| all[random.usize(..clients)]);
                let other = drawn.min_by_key(|other| overlay.0[usize::from(*other)].len());
                other.into_iter().for_each(|other| overlay.connect(client, other));
            }
        }
        overlay.0.iter_mut().for_each(|list| list.sort_unstable());
        overlay
    }

    fn connect(&mut self, one: Client, other: Client) {
        if one != other && !self.0[usize::from(one)].contains(&other) {
            self.0[usize::from(one)].push(other);
            self.0[usize::from(other)].push(one);
        }
    }

    /// A client's neighbours, ascending.
    pub fn neighbours(&self, of: Client) -> &[Client] {
        self.0.get(usize::from(of)).map_or(&[], Vec::as_slice)
    }

    /// Whether two are neighbours.
    pub fn are_neighbours(&self, one: Client, other: Client) -> bool {
        self.neighbours(one).binary_search(&other).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_neighbours_and_reaches_everybody() {
        for (clients, neighbours) in [(2, 1), (3, 10), (30, 5), (200, 10)] {
            let overlay = Overlay::draw(clients, neighbours, &mut fastrand::Rng::with_seed(4));
            let least = neighbours.min(clients - 1);
            let mut reached = vec![0];
            for place in 0..clients {
                let list = overlay.neighbours(place as Client);
                assert!(list.len() >= least && list.is_sorted() && !list.contains(&(place as Client)));
                assert!(
                    list.iter()
                        .all(|other| overlay.are_neighbours(*other, place as Client))
                );
                let Some(client) = reached.get(place).copied() else {
                    panic!("it falls apart")
                };
                for other in overlay.neighbours(client) {
                    if !reached.contains(other) {
                        reached.push(*other);
                    }
                }
            }
            assert_eq!(reached.len(), clients);
            let degrees = overlay.0.iter().map(Vec::len).sum::<usize>() as f64;
            let mean = degrees / clients as f64;
            assert!(mean <= least as f64 * 1.3 + 2.0, "{mean}");
        }
    }
}
