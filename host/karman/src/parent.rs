//! What this program starts of itself ends with it, however it ended: a process that was killed ends nobody.

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use std::time::Duration;

/// How often a process looks whether its parent is there.
const LOOK: Duration = Duration::from_secs(1);

/// Ends this process once its parent is no longer this one. A thread of its own looks: the others may be held within a driver.
pub(crate) fn end_with(parent: Option<Pid>) {
    std::thread::spawn(move || {
        while getppid() == parent {
            std::thread::park_timeout(LOOK);
        }
        let _ = kill_process(getpid(), Signal::KILL);
    });
}
