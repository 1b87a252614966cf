use super::Route;

/// Finds the node that serves a request, request after request, as a workload's [`Route`] says. A study that sends real requests to real
/// nodes asks it what the simulator asks.
///
/// ```
/// use karman_sim::{Route, Router};
///
/// let mut random = fastrand::Rng::with_seed(1);
/// let mut router = Router::new(Route::LeastLoaded, 3);
/// let loads = [2.0, 0.5, 1.0];
/// assert_eq!(router.choose(&mut random, |node| loads[node as usize]), Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    route: Route,
    count: u32,
    last: u32,
}

impl Router {
    /// Among this many nodes, one at least; the first turn is the first one's.
    pub fn new(route: Route, count: u32) -> Self {
        let count = count.max(1);
        Self {
            route,
            count,
            last: count - 1,
        }
    }

    /// The place of the node that serves the next request, where each has a load that is known of it; nothing where the request
    /// stays at the node at which it came ([`Route::Here`]).
    pub fn choose(&mut self, random: &mut fastrand::Rng, load: impl Fn(u32) -> f64) -> Option<u32> {
        let (count, last) = (self.count, self.last);
        self.last = match self.route {
            Route::Here => return None,
            Route::Random => random.u32(..count),
            Route::RoundRobin => (last + 1) % count,
            Route::LeastLoaded => {
                let order = (1..=count).map(|step| (last + step) % count);
                let loads = order.map(|place| (load(place), place));
                loads
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .map_or(0, |(_, place)| place)
            }
        };
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(route: Route, loads: &[f64], requests: usize) -> Vec<Option<u32>> {
        let mut random = fastrand::Rng::with_seed(5);
        let mut router = Router::new(route, loads.len() as u32);
        let next = |_| router.choose(&mut random, |place| loads[place as usize]);
        (0..requests).map(next).collect()
    }

    #[test]
    fn each_route_finds_its_nodes() {
        let in_turn: Vec<Option<u32>> = [0, 1, 2, 0].map(Some).to_vec();
        assert_eq!(chosen(Route::RoundRobin, &[9.0, 0.0, 0.0], 4), in_turn);
        // Of several that have as little to do, the first after the one that was chosen last.
        let equal: Vec<Option<u32>> = [1, 2, 1, 2].map(Some).to_vec();
        assert_eq!(chosen(Route::LeastLoaded, &[9.0, 0.5, 0.5], 4), equal);
        let stays: Vec<Option<u32>> = vec![None; 2];
        assert_eq!(chosen(Route::Here, &[0.0], 2), stays);
        let random = chosen(Route::Random, &[0.0; 3], 300);
        for place in 0..3 {
            let times = random.iter().filter(|chosen| **chosen == Some(place)).count();
            // Four standard deviations.
            assert!(times.abs_diff(100) < 33, "{place}: {times}");
        }
    }
}
