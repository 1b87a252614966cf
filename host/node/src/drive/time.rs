//! The clock by which accepted tasks go: read, believed or not, and remembered.

use super::tasks::Inner;
use crate::runtime::Runtime;
use karman_mesh::wall_clock;
use karman_store::MOST_AHEAD;
use karman_tasks::{Event, Reading, UnixMs};
use karman_types::TaskError;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How often the wall clock is read while it is not trusted: a board gets its time some seconds after it has booted.
const DOUBTED: Duration = Duration::from_secs(5);
/// How often while it is. Each reading moves the floor on the disk.
const TRUSTED: Duration = Duration::from_secs(600);

/// The wall clock, and what is known of it. It is believed unless it shows a time before one that this node has seen.
pub(super) fn reading(runtime: &Runtime) -> Result<Reading, TaskError> {
    let wall = wall_clock();
    let store = runtime.home().store()?;
    let floor = store.mesh().time_floor(0)?;
    Ok(Reading {
        wall: UnixMs(wall.as_millis() as u64),
        trusted: wall.as_secs() >= floor,
        floor: UnixMs(floor * 1000),
    })
}

/// Reads the clock and, where that is to be remembered, remembers that it was this late.
pub(super) fn remember(runtime: &Runtime) -> Result<Reading, TaskError> {
    let reading = reading(runtime)?;
    if is_remembered(&reading) {
        let store = runtime.home().store()?;
        store.mesh().time_floor(reading.wall.0 / 1000)?;
    }
    Ok(reading)
}

/// Whether a clock is believed, and not so far ahead that only the mesh can tell whether that is so: no node lowers again what is remembered.
fn is_remembered(Reading { wall, trusted, floor }: &Reading) -> bool {
    *trusted && wall.since(*floor) <= MOST_AHEAD
}

/// Wakes the machine when it asked for it, and reads the clock for it.
pub(super) async fn keep_time(tasks: Weak<Inner>, wake: Arc<Notify>, mut trusted: bool) {
    let mut read = tokio::time::Instant::now();
    loop {
        let Some(inner) = tasks.upgrade() else { return };
        let pause = match trusted {
            true => TRUSTED,
            false => DOUBTED,
        };
        if read.elapsed() >= pause {
            read = tokio::time::Instant::now();
            match remember(&inner.runtime) {
                Ok(reading) => {
                    trusted = reading.trusted;
                    inner.feed(Event::Clock(reading));
                }
                Err(error) => tracing::warn!(%error, "the time is not remembered"),
            }
        }
        let due = inner.machine.lock().next_timeout();
        let due = due.map(|due| due.since(inner.now()));
        if due == Some(Duration::ZERO) {
            inner.feed(Event::Tick);
            continue;
        }
        drop(inner);
        let sleep = pause.saturating_sub(read.elapsed()).min(due.unwrap_or(pause));
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = wake.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_or_decades_ahead_is_not_remembered() {
        let floor = UnixMs(1_700_000_000_000);
        let shows = |wall: UnixMs| {
            is_remembered(&Reading {
                wall,
                trusted: wall >= floor,
                floor,
            })
        };
        assert!(shows(floor) && shows(floor.after(MOST_AHEAD)));
        assert!(!shows(UnixMs(0)) && !shows(floor.after(MOST_AHEAD * 50)));
    }
}
