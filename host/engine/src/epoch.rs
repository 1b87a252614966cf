//! The clock that makes guests give way: an OS thread, so that no busy runtime can delay it. It rests while there are none.

mod runs;

pub(crate) use runs::Runs;

use parking_lot::Mutex;
use runs::Quiet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Engine, EngineWeak};

/// How often a running guest gives way to its neighbours.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Ticks without a guest after which the clock rests: a second. The next guest wakes it, which costs one system call.
const REST_AFTER: u32 = 100;

/// Advances the epoch of the engines that it was given until it is dropped.
pub(crate) struct EpochClock {
    stop: Arc<AtomicBool>,
    engines: Arc<Mutex<Vec<EngineWeak>>>,
    runs: Arc<Runs>,
    thread: Option<JoinHandle<()>>,
}

impl EpochClock {
    pub(crate) fn start() -> std::io::Result<Self> {
        Self::resting_after(REST_AFTER)
    }

    fn resting_after(quiet_ticks: u32) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let engines = Arc::new(Mutex::new(Vec::<EngineWeak>::new()));
        let runs = Arc::<Runs>::default();
        let (stopped, ticking, seen) = (Arc::downgrade(&stop), engines.clone(), runs.clone());
        let thread = std::thread::Builder::new()
            .name("karman-epoch".into())
            .spawn(move || {
                never_preempt();
                tick(&stopped, &ticking, &seen, quiet_ticks);
            })?;
        Ok(Self {
            stop,
            engines,
            runs,
            thread: Some(thread),
        })
    }

    pub(crate) fn add(&self, engine: &Engine) {
        self.engines.lock().push(engine.weak());
    }

    /// Where guests are counted that this clock must not overlook.
    pub(crate) const fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }
}

fn tick(stopped: &Weak<AtomicBool>, engines: &Mutex<Vec<EngineWeak>>, runs: &Runs, quiet_ticks: u32) {
    let mut quiet = Quiet::default();
    while running(stopped) {
        #[expect(clippy::disallowed_methods, reason = "this thread does nothing but keep time")]
        std::thread::sleep(EPOCH_TICK);
        engines
            .lock()
            .iter()
            .filter_map(EngineWeak::upgrade)
            .for_each(|engine| engine.increment_epoch());
        let all_ended = runs.all_ended();
        let ticks = quiet.tick(all_ended);
        if let Some(begun) = all_ended
            && ticks >= quiet_ticks
        {
            runs.rest(begun);
        }
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
        self.runs.never_rest();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::{Config, Error, Instance, Module, Store, UpdateDeadline};

    /// A clock that has come to rest, and an engine whose guests it interrupts.
    fn at_rest() -> (EpochClock, Engine) {
        let engine = Engine::new(Config::new().epoch_interruption(true)).unwrap();
        let clock = EpochClock::resting_after(1).unwrap();
        clock.add(&engine);
        until_it_rests(&clock);
        (clock, engine)
    }

    fn until_it_rests(clock: &EpochClock) {
        while !clock.runs.clock_rests() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn it_rests_without_guests_and_whoever_comes_wakes_it() {
        let (clock, _engine) = at_rest();
        let running = clock.runs.begin();
        assert!(!clock.runs.clock_rests());
        drop(running);
        // It rests again, and is woken once more to be dropped.
        until_it_rests(&clock);
    }

    #[test]
    fn a_guest_that_spins_after_a_rest_meets_tick_after_tick() {
        let (clock, engine) = at_rest();
        let spin = wat::parse_str(r#"(module (func (export "spin") (loop $on (br $on))))"#).unwrap();
        let module = Module::new(&engine, &spin).unwrap();
        let mut store = Store::new(&engine, 0_u32);
        store.epoch_deadline_callback(|mut store| {
            *store.data_mut() += 1;
            match *store.data() {
                5 => Err(Error::msg("its time is over")),
                _ => Ok(UpdateDeadline::Continue(1)),
            }
        });
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let spin = instance.get_typed_func::<(), ()>(&mut store, "spin").unwrap();
        let running = clock.runs.begin();
        // Spins for ever if the clock goes on resting, or comes to rest while this runs.
        assert!(spin.call(&mut store, ()).is_err());
        drop(running);
        assert_eq!(*store.data(), 5);
    }
}
