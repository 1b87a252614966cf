//! Whether a coordinator kept to its word. It commits to its seed before it sees any update, and afterwards reveals the seed and what it
//! told whom; everybody can go through that again. A round that fails is to be treated as void.

use super::board::{Ground, Transfer};
use super::chunk::Chunk;
use super::coordinator::{Coordinator, overlay};
use super::inventory::Inventory;
use super::overlay::Client;
use super::settings::{Link, SwarmError, SwarmSettings};
use karman_types::Digest;

/// What a coordinator has done.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What was agreed on.
    pub settings: &'a SwarmSettings,
    /// The clients' links.
    pub links: &'a [Link],
    /// The digests of the clients' descriptors.
    pub descriptors: &'a [Digest],
    /// What it was bound to before.
    pub commitment: Digest,
    /// The seed that it reveals.
    pub seed: [u8; 32],
    /// Each slot's transfers, and those of them that arrived.
    pub slots: &'a [Slot],
}

/// One slot of a [`Record`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// What it told the clients.
    pub told: Vec<Transfer>,
    /// What the clients acknowledged.
    pub arrived: Vec<(Client, Chunk)>,
    /// Who left.
    pub left: Vec<Client>,
}

/// Where a coordinator did not keep to its word.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// There was no such round.
    #[error(transparent)]
    Settings(#[from] SwarmError),
    /// The seed is not the one it was bound to.
    #[error("the seed is not the one that was committed to")]
    Seed,
    /// A client or chunk that is not in the round.
    #[error("slot {slot}: {transfer:?} names what is not there")]
    Unknown {
        /// When.
        slot: usize,
        /// What.
        transfer: Transfer,
    },
    /// Two that are no neighbours, or a spray between two that are.
    #[error("slot {slot}: {transfer:?} goes where the overlay does not")]
    Overlay {
        /// When.
        slot: usize,
        /// What.
        transfer: Transfer,
    },
    /// A link that carries more than it can.
    #[error("slot {slot}: the link of client {client} carries more than it can")]
    Budget {
        /// When.
        slot: usize,
        /// Whose.
        client: Client,
    },
    /// A chunk that the receiver had.
    #[error("slot {slot}: {transfer:?} has arrived before")]
    Repeated {
        /// When.
        slot: usize,
        /// What.
        transfer: Transfer,
    },
    /// A chunk that the sender did not have.
    #[error("slot {slot}: {transfer:?} is of what the sender does not hold")]
    NotHeld {
        /// When.
        slot: usize,
        /// What.
        transfer: Transfer,
    },
    /// The seed leads to other transfers.
    #[error("slot {slot}: the seed leads to other transfers than those that were told")]
    Schedule {
        /// When.
        slot: usize,
    },
}

/// Goes through a round again: adjacency, budgets, holdings and repetitions of each transfer, and in the end the very schedule, which the
/// seed and the acknowledgements determine.
///
/// # Errors
///
/// The first thing that is not as it should be.
pub fn audit(record: &Record<'_>) -> Result<(), Violation> {
    if Coordinator::commitment(&record.seed) != record.commitment {
        return Err(Violation::Seed);
    }
    let mut again = Coordinator::new(*record.settings, record.links, record.descriptors, record.seed)?;
    check_transfers(record, &again)?;
    for (place, slot) in record.slots.iter().enumerate() {
        if again.next_slot() != slot.told {
            return Err(Violation::Schedule { slot: place });
        }
        slot.arrived
            .iter()
            .for_each(|(client, chunk)| again.delivered(*client, *chunk));
        slot.left.iter().for_each(|client| again.left(*client));
    }
    Ok(())
}

fn check_transfers(record: &Record<'_>, again: &Coordinator) -> Result<(), Violation> {
    let clients = record.links.len();
    let overlay = overlay(record.settings, clients, &record.seed);
    let mut held: Vec<Inventory> = (0..clients)
        .filter_map(|client| again.held(client as Client).cloned())
        .collect();
    let chunks = clients as u32 * record.settings.layout.chunks;
    for (place, slot) in record.slots.iter().enumerate() {
        let (mut up, mut down) = (vec![0; clients], vec![0; clients]);
        for transfer in &slot.told {
            let Transfer {
                from,
                to,
                chunk,
                ground,
            } = *transfer;
            let (sender, receiver) = (usize::from(from), usize::from(to));
            let (slot, transfer) = (place, *transfer);
            if sender.max(receiver) >= clients || chunk >= chunks {
                return Err(Violation::Unknown { slot, transfer });
            }
            if overlay.are_neighbours(from, to) == (ground == Ground::Spray) || from == to {
                return Err(Violation::Overlay { slot, transfer });
            }
            up[sender] += 1;
            down[receiver] += 1;
            for (client, over) in [
                (from, up[sender] > record.links[sender].up),
                (to, down[receiver] > record.links[receiver].down),
            ] {
                if over {
                    return Err(Violation::Budget { slot, client });
                }
            }
            if held[receiver].contains(chunk) {
                return Err(Violation::Repeated { slot, transfer });
            }
            if !held[sender].contains(chunk) {
                return Err(Violation::NotHeld { slot, transfer });
            }
        }
        for (client, chunk) in &slot.arrived {
            if let Some(held) = held.get_mut(usize::from(*client)) {
                held.insert(*chunk);
            }
        }
    }
    Ok(())
}
