//! What a ring withstands, in figures.
//!
//! On the complete graph the sum is safe as long as fewer than a third of the clients work for a coordinator that lies, or two
//! thirds for one that only listens. On a ring each client trusts its few neighbours, which are drawn at random: there is a
//! chance that the draw is bad. Three things can go wrong (Bell et al., CCS 2020, section 4), and each is bounded here by a union
//! bound over exact hypergeometric tails:
//!
//! - **A secret leaks**: so many of somebody's holders work for the coordinator that it learns both of its secrets.
//! - **The ring breaks**: on two sides of some clients everybody within reach is corrupt or gone, so that their sum comes out
//!   apart from the others'. A coordinator that lies can take vectors for lost that arrived; but a client leaves when fewer than
//!   two thirds of its holders are said to be left, so the rest of the run has to be corrupt.
//! - **The round is stuck**: so many of somebody's holders are gone that a secret that is needed cannot be put together.
//!
//! The bounds hold if the ring's order is drawn after the corrupt clients are. A coordinator that tries a million seeds before
//! it announces one is 20 bits closer to its aim: the bounds then have to have 20 bits to spare, or the round has to
//! use the complete graph.

use super::graph::threshold;

/// The chance of each thing that can go wrong in one round, at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// A secret leaks to a coordinator that follows the protocol and listens.
    pub leaks_passively: f64,
    /// A secret leaks to a coordinator that tells different clients different things.
    pub leaks_actively: f64,
    /// A part of the clients is summed apart although the coordinator follows the protocol.
    pub breaks_passively: f64,
    /// A part of the clients is summed apart by a coordinator that says of some clients that they are gone.
    pub breaks_actively: f64,
    /// The round ends without a sum.
    pub sticks: f64,
}

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// How many clients there are.
    pub clients: usize,
    /// The share of them that works for the coordinator, 0 to 1.
    pub corrupt: f64,
    /// The share of them that is gone before the end, 0 to 1.
    pub gone: f64,
}

/// A question that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum MarginError {
    /// A share that is none.
    #[error("the share of {what} clients is {share}, not between 0 and 1")]
    Share {
        /// Of which.
        what: &'static str,
        /// What was given.
        share: f64,
    },
    /// Too few to speak of.
    #[error("there are from 3 to {most} clients, not {0}", most = super::Roster::MOST)]
    Clients(usize),
}

/// What a ring on which everybody has `degree` neighbours withstands.
///
/// # Errors
///
/// The situation is impossible.
pub fn margin(situation: Situation, degree: usize) -> Result<Margin, MarginError> {
    let Situation {
        clients,
        corrupt,
        gone,
    } = situation;
    if !(3..=super::Roster::MOST).contains(&clients) {
        return Err(MarginError::Clients(clients));
    }
    for (what, share) in [("corrupt", corrupt), ("lost", gone)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(MarginError::Share { what, share });
        }
    }
    let degree = degree.min(clients - 1);
    let (holders, needed) = (degree + 1, threshold(degree + 1));
    let part = |share: f64| ((share * clients as f64).ceil() as usize).min(clients - 1);
    let (corrupt, gone) = (part(corrupt), part(gone));
    // A client's own share is its own; the neighbours are drawn from the others.
    let corrupt_among = |least: usize| clients as f64 * tail(clients - 1, corrupt, degree, least);
    let union = |chance: f64| chance.min(1.0);
    Ok(Margin {
        leaks_passively: union(corrupt_among(needed)),
        leaks_actively: union(corrupt_among(2 * needed - holders)),
        breaks_passively: union(breaks(clients, corrupt + gone, degree, 0)),
        breaks_actively: union(breaks(clients, corrupt, degree, holders - needed)),
        sticks: union(clients as f64 * tail(clients - 1, gone, degree, degree + 1 - needed)),
    })
}

/// The smallest even degree at which nothing leaks, even to a coordinator that lies, and nothing breaks, but with a chance of
/// `2^-privacy`, and the round sticks with a chance of at most `2^-success`; `None` if even the complete graph is not enough.
///
/// # Errors
///
/// The situation is impossible.
pub fn least_degree(situation: Situation, privacy: u32, success: u32) -> Result<Option<usize>, MarginError> {
    let (privacy, success) = (0.5_f64.powi(privacy as i32), 0.5_f64.powi(success as i32));
    let all = situation.clients.saturating_sub(1);
    for degree in (2..all).step_by(2).chain([all]) {
        let margin = margin(situation, degree)?;
        let breaks = margin.breaks_actively + margin.breaks_passively;
        if margin.leaks_actively + breaks <= privacy && margin.sticks <= success {
            return Ok(Some(degree));
        }
    }
    Ok(None)
}

/// Two runs of half the degree at any two places of the ring, in each of which all but `spared` are bad.
fn breaks(clients: usize, bad: usize, degree: usize, spared: usize) -> f64 {
    if degree + 1 >= clients {
        return 0.0;
    }
    let run = degree / 2;
    let places = clients as f64 * (clients as f64 - 1.0) / 2.0;
    places * tail(clients, bad, 2 * run, 2 * run.saturating_sub(spared))
}

/// The chance that among `drawn` of `all`, of which `marked` are marked, at least `least` are.
fn tail(all: usize, marked: usize, drawn: usize, least: usize) -> f64 {
    let marked = marked.min(all);
    let choose = |n: usize, k: usize| {
        let factorial = |n: usize| libm::lgamma(n as f64 + 1.0);
        factorial(n) - factorial(k) - factorial(n - k)
    };
    let possible = least.max((drawn + marked).saturating_sub(all))..=drawn.min(marked);
    let ways = choose(all, drawn);
    possible
        .map(|hit| (choose(marked, hit) + choose(all - marked, drawn - hit) - ways).exp())
        .sum::<f64>()
        .min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::graph::{Degree, Graph};
    use crate::secure::roster::Members;
    use karman_types::Digest;

    fn situation(clients: usize, corrupt: f64, gone: f64) -> Situation {
        Situation {
            clients,
            corrupt,
            gone,
        }
    }

    #[test]
    fn tails_are_those_of_a_small_urn() {
        // Four marked among ten, three drawn: 1 - C(6,3)/C(10,3) and C(4,3)/C(10,3).
        assert!((tail(10, 4, 3, 1) - (1.0 - 20.0 / 120.0)).abs() < 1e-12);
        assert!((tail(10, 4, 3, 3) - 4.0 / 120.0).abs() < 1e-12);
        assert!((tail(10, 9, 3, 0) - 1.0).abs() < 1e-12);
        assert_eq!(tail(10, 2, 3, 3), 0.0);
    }

    #[test]
    fn the_complete_graph_is_safe_below_a_third() {
        let safe = margin(situation(100, 0.33, 0.0), 99).unwrap();
        assert_eq!(
            (safe.leaks_actively, safe.breaks_actively, safe.sticks),
            (0.0, 0.0, 0.0)
        );
        let lost = margin(situation(100, 0.40, 0.0), 99).unwrap();
        assert_eq!(lost.leaks_actively, 1.0);
        assert_eq!(lost.leaks_passively, 0.0);
    }

    #[test]
    fn more_neighbours_withstand_more() {
        let margins: Vec<_> = (10..100)
            .step_by(10)
            .map(|degree| margin(situation(500, 0.05, 0.05), degree).unwrap())
            .collect();
        assert!(
            margins
                .windows(2)
                .all(|pair| pair[1].breaks_actively <= pair[0].breaks_actively)
        );
        assert!(margins.last().unwrap().leaks_actively < 1e-12);
        let degree = least_degree(situation(500, 0.05, 0.05), 40, 20).unwrap().unwrap();
        assert!(
            degree.is_multiple_of(2) && (28..100).contains(&degree),
            "{degree}"
        );
        assert_eq!(least_degree(situation(500, 0.5, 0.0), 40, 20), Ok(None));
    }

    #[test]
    fn impossible_situations_are_refused() {
        assert!(matches!(
            margin(situation(2, 0.0, 0.0), 2),
            Err(MarginError::Clients(2))
        ));
        let share = margin(situation(10, f64::NAN, 0.0), 2);
        assert!(matches!(share, Err(MarginError::Share { what: "corrupt", .. })));
    }

    /// The bound on leaks against drawn rings.
    #[test]
    fn rings_that_are_drawn_keep_to_the_bound() {
        let (clients, corrupt, degree) = (40, 12, 6);
        let graph = Graph::Ring(Degree::Of(degree));
        let members = Members::of(clients, 0..clients as u16);
        let needed = threshold(usize::from(degree) + 1);
        let leaks = |seed: u32| {
            let all = graph.all_holders(&Digest::of(&seed.to_le_bytes()), &members);
            all.iter().any(|(member, holders)| {
                let bad = holders
                    .iter()
                    .filter(|holder| usize::from(**holder) < corrupt)
                    .count();
                usize::from(*member) >= corrupt && bad >= needed
            })
        };
        let seen = (0..300).filter(|seed| leaks(*seed)).count() as f64 / 300.0;
        let share = corrupt as f64 / clients as f64;
        let bound = margin(situation(clients, share, 0.0), usize::from(degree))
            .unwrap()
            .leaks_passively;
        assert!(seen <= bound && seen > 0.0, "{seen} against {bound}");
    }
}
