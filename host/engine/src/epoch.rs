//! The clock that makes guests give way: an OS thread, so that no busy runtime can delay it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Engine, EngineWeak};

/// How often a running guest gives way to its neighbours.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Advances the epoch of the engines that it was given until it is dropped.
pub(crate) struct EpochClock {
    stop: Arc<AtomicBool>,
    engines: Arc<parking_lot::Mutex<Vec<EngineWeak>>>,
    thread: Option<JoinHandle<()>>,
}

impl EpochClock {
    pub(crate) fn start() -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let engines = Arc::new(parking_lot::Mutex::new(Vec::<EngineWeak>::new()));
        let (stopped, ticking) = (Arc::downgrade(&stop), engines.clone());
        let thread = std::thread::Builder::new()
            .name("karman-epoch".into())
            .spawn(move || {
                never_preempt();
                while running(&stopped) {
                    #[expect(clippy::disallowed_methods, reason = "this thread does nothing but keep time")]
                    std::thread::sleep(EPOCH_TICK);
                    ticking
                        .lock()
                        .iter()
                        .filter_map(EngineWeak::upgrade)
                        .for_each(|engine| engine.increment_epoch());
                }
            })?;
        Ok(Self {
            stop,
            engines,
            thread: Some(thread),
        })
    }

    pub(crate) fn add(&self, engine: &Engine) {
        self.engines.lock().push(engine.weak());
    }
}

/// Tells the kernel that this thread is no interactive one: a tick then waits for the end of a time slice and does not interrupt the
/// guest that happens to run, a hundred times a second. It is a hint: where the kernel does not take it, ticks are as before.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe crate of ours reaches sched_setscheduler(2)")]
fn never_preempt() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the calling one, and the kernel only reads the parameters, which outlive the call.
    let taken = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if taken != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "the clock of the engine stays an ordinary thread");
    }
}

#[cfg(not(target_os = "linux"))]
const fn never_preempt() {}

fn running(stop: &Weak<AtomicBool>) -> bool {
    stop.upgrade().is_some_and(|stop| !stop.load(Ordering::Relaxed))
}

impl Drop for EpochClock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
