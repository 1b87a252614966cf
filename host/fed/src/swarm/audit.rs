//! Whether the clients of a round kept to its rules, by what each has seen of the others.
//!
//! The coordinator is not gone through like that. What it tells a client, the client looks at before a chunk leaves it ([`super::Peer::told`],
//! [`super::Peer::check_end`]). All else would take its seed and what it told the others, and those show everybody whose update is whose: a
//! sprayed chunk is its sender's own.

use super::overlay::Client;
use std::collections::{BTreeMap, BTreeSet};

/// The clients that gave others bytes that are not the chunk they were said to be, ascending. `neighbours` are those of all clients by their
/// numbers; `altered` is whom each client says that of ([`super::Peer::altered`]).
///
/// What one says is its word. At least two of a client's neighbours have to say it, and more than half of them: who says nothing counts
/// among them, or a few could say what they like while the others are kept from saying anything.
pub fn audit(neighbours: &[Vec<Client>], altered: &BTreeMap<Client, BTreeSet<Client>>) -> Vec<Client> {
    let is_found_out = |client: &Client, around: &[Client]| {
        let says = |other: &&Client| altered.get(*other).is_some_and(|named| named.contains(client));
        let words = around.iter().filter(says).count();
        words >= 2 && 2 * words > around.len()
    };
    (0..)
        .zip(neighbours)
        .filter(|(client, around)| is_found_out(client, around))
        .map(|(client, _)| client)
        .collect()
}
