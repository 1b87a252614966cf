//! A slower processor than there is, for rehearsals.

use super::thread::Thread;
use crate::config::ComputeProfile;
use cpu_time::ThreadTime;
use karman_infer::BackendName;
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::sleep_until;

/// Lengths of inputs of which that is known: batches have a few.
const MOST_LENGTHS: usize = 64;
/// Models of which that is known.
const MOST_MODELS: usize = 256;

/// Runs models at the pace of the node's compute profile. A share of a real processor would not do: it lets short work through
/// at full speed. So each run is followed by a wait, and the next one waits for that.
#[derive(Debug)]
pub(crate) struct Pace {
    slowdown: f64,
    processor: Arc<Semaphore>,
    /// By file and back-end: loaded once more, or as a part of another, a model is as fast as it was.
    models: Mutex<HashMap<(Digest, BackendName), Arc<Undisturbed>>>,
}

/// What the runs of one model compute on this machine when nothing disturbs them: the least of all so far on inputs of the same length. Of a
/// machine that others use, too, one run in a few takes half as long again, and for minutes all of them may take twice as long; times 24, that
/// would be a slower processor such as there is none.
#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    computed: Mutex<HashMap<usize, Duration>>,
}

impl Undisturbed {
    /// The same after another run.
    fn after(&self, bytes: usize, computed: Duration) -> Duration {
        let mut all = self.computed.lock();
        if all.len() >= MOST_LENGTHS && !all.contains_key(&bytes) {
            all.clear();
        }
        let least = all.entry(bytes).or_insert(computed);
        *least = computed.min(*least);
        *least
    }
}

impl Pace {
    pub(crate) fn new(profile: &ComputeProfile) -> Self {
        Self {
            slowdown: profile.slowdown,
            processor: Arc::new(Semaphore::new(1)),
            models: Mutex::default(),
        }
    }

    /// What is known of the runs of a model, whose file this is, on this back-end.
    pub(super) fn undisturbed(&self, onnx: &[u8], backend: BackendName) -> Arc<Undisturbed> {
        if self.slowdown <= 1.0 {
            return Arc::default();
        }
        let key = (Digest::of(onnx), backend);
        let mut all = self.models.lock();
        if all.len() >= MOST_MODELS && !all.contains_key(&key) {
            all.clear();
        }
        all.entry(key).or_default().clone()
    }

    /// How many times slower than this machine.
    pub(crate) const fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Runs a blocking step on inputs of this length on this thread, and how long it took.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        thread: Thread,
        (undisturbed, bytes): (&Undisturbed, usize),
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<(T, Duration), TaskError> {
        let emulated = self.slowdown > 1.0;
        let (processor, thread) = match emulated {
            true => (self.processor.clone().acquire_owned().await.ok(), Thread::Another),
            false => (None, thread),
        };
        let timed = move || {
            // A back-end with more threads than this one uses them beside it, so an emulated node has one.
            let (started, computing) = (Instant::now(), ThreadTime::now());
            let done = step()?;
            Ok((done, computing.elapsed(), started, started.elapsed(), processor))
        };
        // It has the processor until its wait is over, and where nobody waits for it any more until it is done.
        let (done, computed, started, took, _processor) = thread.run(timed).await?;
        if !emulated {
            return Ok((done, took));
        }
        let whole = undisturbed.after(bytes, computed).mul_f64(self.slowdown);
        sleep_until((started + whole).into()).await;
        Ok((done, took.max(whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_a_run_is_not_multiplied() {
        let (runs, ms) = (Undisturbed::default(), Duration::from_millis);
        assert_eq!(runs.after(10, ms(5)), ms(5));
        assert_eq!(runs.after(10, ms(3)), ms(3));
        for _ in 0..1000 {
            assert_eq!(runs.after(10, ms(6)), ms(3), "however long the machine is slower");
        }
        assert_eq!(runs.after(80, ms(20)), ms(20), "a batch takes longer");
        for bytes in 0..1000 {
            runs.after(bytes, ms(1));
        }
        assert!(runs.computed.lock().len() <= MOST_LENGTHS);
    }

    #[test]
    fn a_model_that_is_loaded_again_is_as_fast_as_it_was() {
        let ms = Duration::from_millis;
        let pace = Pace::new(&ComputeProfile {
            slowdown: 2.0,
            ..ComputeProfile::default()
        });
        let of = |onnx: &[u8], backend| pace.undisturbed(onnx, backend);
        assert_eq!(of(b"a", BackendName::Tract).after(10, ms(3)), ms(3));
        assert_eq!(of(b"a", BackendName::Tract).after(10, ms(5)), ms(3));
        assert_eq!(of(b"a", BackendName::OnnxRuntime).after(10, ms(5)), ms(5));
        assert_eq!(of(b"b", BackendName::Tract).after(10, ms(5)), ms(5));
        for model in 0..1000u32 {
            of(&model.to_le_bytes(), BackendName::Tract);
        }
        assert!(pace.models.lock().len() <= MOST_MODELS);
    }

    #[tokio::test]
    async fn a_run_takes_some_times_as_long_as_it_computes() {
        let profile = ComputeProfile {
            slowdown: 20.0,
            ..ComputeProfile::default()
        };
        let (pace, runs) = (Pace::new(&profile), Undisturbed::default());
        let computes = || {
            let computing = ThreadTime::now();
            while computing.elapsed() < Duration::from_millis(2) {}
            Ok(())
        };
        let started = Instant::now();
        let ((), took) = pace.run(Thread::Another, (&runs, 1), computes).await.unwrap();
        assert!(took >= Duration::from_millis(40), "{took:?}");
        assert!(started.elapsed() >= took);
    }
}
