use super::{SplitError, Worker};
use std::collections::VecDeque;

/// The traffic between boards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Packets, grants included.
    pub packets: u64,
    /// Their bytes, heads included.
    pub bytes: u64,
}

/// Runs all workers of one network in this process, the coordinator last, until all are done. `pick` chooses among this many things
/// that could happen next: which board goes on, or which packet arrives. Packets between two boards stay in order.
///
/// # Errors
/// The first error of a worker; [`SplitError::Stalled`] when nothing can happen any more.
pub fn run_together(
    workers: &mut [Worker],
    mut pick: impl FnMut(usize) -> usize,
) -> Result<Traffic, SplitError> {
    let count = workers.len();
    let mut wires: Vec<VecDeque<Vec<u8>>> = (0..count * count).map(|_| VecDeque::new()).collect();
    let mut traffic = Traffic::default();
    // Boards that may have something to do.
    let mut awake: Vec<bool> = vec![true; count];
    loop {
        let boards = (0..count).filter(|board| awake[*board]);
        let busy_wires = (0..wires.len()).filter(|wire| !wires[*wire].is_empty());
        let possible: Vec<usize> = boards.chain(busy_wires.map(|wire| count + wire)).collect();
        if possible.is_empty() {
            break;
        }
        let chosen = possible[pick(possible.len()) % possible.len()];
        match chosen.checked_sub(count) {
            None => match workers[chosen].poll()? {
                None => awake[chosen] = false,
                Some(packet) => {
                    traffic.packets += 1;
                    traffic.bytes += packet.bytes.len() as u64;
                    let wire = wires.get_mut(chosen * count + packet.to);
                    wire.ok_or(SplitError::Stalled { stage: 0 })?
                        .push_back(packet.bytes.to_vec());
                }
            },
            Some(wire) => {
                if let Some(packet) = wires[wire].pop_front() {
                    workers[wire % count].handle(wire / count, &packet)?;
                    awake[wire % count] = true;
                }
            }
        }
    }
    match workers.iter().all(Worker::is_done) {
        true => Ok(traffic),
        false => Err(SplitError::Stalled {
            stage: workers.iter().map(Worker::stage).min().unwrap_or(0),
        }),
    }
}
