//! Who sends what to whom in a slot of the warm-up.

use super::board::{Board, Ground, Transfer};
use super::overlay::Client;
use super::settings::Scheduler;

/// Parallel sends of a client, where it decides for itself.
const PARALLEL: usize = 4;

/// A slot's transfers. Everything is promised to its receiver, and paid for out of both budgets.
pub(crate) fn schedule(board: &mut Board, scheduler: Scheduler) -> Vec<Transfer> {
    match scheduler {
        Scheduler::GreedyFastestFirst => greedy(board),
        Scheduler::RandomFastestFirst => asked(board, true),
        Scheduler::RandomFifo => asked(board, false),
        Scheduler::Flooding => flooding(board),
    }
}

/// Receivers take turns, those that hold least first, until nobody can get anything more.
fn greedy(board: &mut Board) -> Vec<Transfer> {
    let mut order: Vec<Client> = (0..board.seats.len() as Client).collect();
    order.sort_by_key(|client| {
        let down = board.down[usize::from(*client)];
        (board.seat(*client).held.len(), u32::MAX - down, *client)
    });
    let mut transfers = Vec::new();
    while !order.is_empty() {
        // Whoever finds nothing now will not later: offers stay and budgets shrink.
        order.retain(|to| match next_for(board, *to) {
            Some(transfer) => {
                transfers.push(transfer);
                true
            }
            None => false,
        });
    }
    transfers
}

/// The next chunk for a client: from its fastest neighbour that has one, of others before the neighbour's own.
fn next_for(board: &mut Board, to: Client) -> Option<Transfer> {
    if board.down[usize::from(to)] == 0 {
        return None;
    }
    let mut senders: Vec<Client> = board.overlay.neighbours(to).to_vec();
    senders.retain(|from| board.up[usize::from(*from)] > 0);
    senders.sort_by_key(|from| (u32::MAX - board.up[usize::from(*from)], *from));
    for ground in [Ground::Cover, Ground::Offered, Ground::Unprotected] {
        for from in &senders {
            let found = match ground {
                Ground::Offered => board.find_offered(*from, to),
                Ground::Unprotected => board.find_unprotected(*from, to),
                _ => board.find_cover(*from, to),
            };
            if let Some((chunk, ground)) = found {
                return Some(board.assign(*from, to, chunk, ground));
            }
        }
    }
    None
}

/// Receivers spread their requests over random neighbours; each sender serves a few askers at a time, the fastest ones or those that
/// asked first.
fn asked(board: &mut Board, fastest: bool) -> Vec<Transfer> {
    let clients = board.seats.len();
    let mut queues: Vec<Vec<Client>> = vec![Vec::new(); clients];
    for to in 0..clients as Client {
        let neighbours = board.overlay.neighbours(to).to_vec();
        for _ in 0..board.down[usize::from(to)] {
            let from = neighbours[board.random.usize(..neighbours.len())];
            queues[usize::from(from)].push(to);
        }
    }
    let mut transfers = Vec::new();
    for from in 0..clients as Client {
        let queue = &mut queues[usize::from(from)];
        board.random.shuffle(queue);
        if fastest {
            queue.sort_by_key(|to| u32::MAX - board.down[usize::from(*to)]);
        }
        let mut served: Vec<Client> = Vec::new();
        for to in queue.iter() {
            let full = served.len() >= PARALLEL && !served.contains(to);
            if board.up[usize::from(from)] == 0 || board.down[usize::from(*to)] == 0 || full {
                continue;
            }
            if let Some(transfer) = between(board, from, *to) {
                transfers.push(transfer);
                if !served.contains(to) {
                    served.push(*to);
                }
            }
        }
    }
    transfers
}

/// Senders push to random neighbours until they find nobody that lacks anything.
fn flooding(board: &mut Board) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for from in 0..board.seats.len() as Client {
        let mut neighbours = board.overlay.neighbours(from).to_vec();
        while board.up[usize::from(from)] > 0 && !neighbours.is_empty() {
            let place = board.random.usize(..neighbours.len());
            let to = neighbours[place];
            let transfer = match board.down[usize::from(to)] {
                0 => None,
                _ => between(board, from, to),
            };
            match transfer {
                Some(transfer) => transfers.push(transfer),
                None => {
                    neighbours.swap_remove(place);
                }
            }
        }
    }
    transfers
}

fn between(board: &mut Board, from: Client, to: Client) -> Option<Transfer> {
    let found = board.find_cover(from, to);
    let found = found.or_else(|| board.find_offered(from, to));
    let (chunk, ground) = found.or_else(|| board.find_unprotected(from, to))?;
    Some(board.assign(from, to, chunk, ground))
}
