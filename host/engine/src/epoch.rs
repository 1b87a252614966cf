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
