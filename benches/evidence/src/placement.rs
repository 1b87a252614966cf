//! What the studies of placement share: a world in which a policy places the tasks of jobs on nodes.

pub(crate) mod world;

use std::sync::atomic::{AtomicUsize, Ordering};

/// Each item's result, in order, on all cores of the machine.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: Vec<T>, of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            match items.get(place) {
                Some(item) => done.push((place, of(item))),
                None => return done,
            }
        }
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a case does not panic"));
        joined.collect()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, result)| result).collect()
}

pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value.ln()));
    (sum / f64::max(count, 1.0)).exp()
}
