//! Has the nodes asked first that answer fast: those with a core free, and of these the one with the least time on the way and at work.

use exports::karman::policy::router::{Guest, Order, Provider};

wit_bindgen::generate!({ path: "wit", generate_all });

/// Of a node that was not measured: it is tried where the others take longer.
const UNKNOWN: u64 = 20_000_000;

struct Policy;

impl Guest for Policy {
    fn route(_task: String, providers: Vec<Provider>) -> Result<Order, String> {
        let mut places: Vec<usize> = (0..providers.len()).collect();
        places.sort_by_key(|place| rank(&providers[*place]));
        let first = places.first().ok_or("there is nobody to ask")?;
        let (_, _, time) = rank(&providers[*first]);
        Ok(Order {
            because: format!("it should answer within {} ms", time / 1_000_000),
            places: places.into_iter().map(|place| place as u32).collect(),
        })
    }
}

/// The least is asked first: who did not answer lately, and who has no core free, come later; then the time in nanoseconds.
fn rank(provider: &Provider) -> (bool, bool, u64) {
    let way = provider.round_trip.unwrap_or(UNKNOWN);
    let work = provider.takes.or(provider.outlasted).unwrap_or(UNKNOWN);
    (
        provider.failed.is_some(),
        provider.busy >= provider.cores,
        way.saturating_add(work),
    )
}

export!(Policy);
