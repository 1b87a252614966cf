use crate::device::{Device, DeviceInfo, Done, Work};
use crate::error::GpuError;
use crate::kernel::Words;
use crate::share::Share;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A device that several tenants use at once, by [turns](Share): one thread hands their work over.
///
/// A clone is the same queue. The thread ends, and the device with it, when the last is gone.
#[derive(Clone)]
pub struct Queue(Arc<Inner>);

struct Inner {
    info: DeviceInfo,
    share: Mutex<Share<(Job, Instant)>>,
    more: Condvar,
    since: Instant,
    done: AtomicU64,
    busy_us: AtomicU64,
}

/// How much a device was used since its queue began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceUse {
    /// How long ago the queue began.
    pub since: Duration,
    /// How long the device has worked.
    pub busy: Duration,
    /// Pieces of work that it has ended, well or not.
    pub done: u64,
    /// Pieces of work that wait for their turn.
    pub waiting: usize,
}

/// A piece of work, and the receiver of its result.
pub struct Job {
    /// What to do.
    pub work: Work,
    /// On what.
    pub inputs: Arc<[Words]>,
    /// How long its outcome is of use: what has waited longer is not begun.
    pub within: Duration,
    /// How long it may keep the device, from its turn on.
    pub on_device: Duration,
    /// The receiver of the result.
    pub answer: Box<dyn Answer>,
}

/// The receiver of a result.
pub trait Answer: Send {
    /// Whether the result is still awaited; work whose result is not is left out.
    fn is_awaited(&self) -> bool;

    /// Takes the result.
    fn answer(self: Box<Self>, done: Result<Done, GpuError>);
}

/// How often the thread looks whether its queue is still there.
const LOOK: Duration = Duration::from_secs(1);

impl Queue {
    /// Puts a queue before a device; each tenant may have this many pieces of work waiting.
    ///
    /// # Errors
    /// [`GpuError::Absent`] when the system has no thread for it.
    pub fn start(mut device: Box<dyn Device>, most_waiting: usize) -> Result<Self, GpuError> {
        let queue = Self(Arc::new(Inner {
            info: device.info().clone(),
            share: Mutex::new(Share::new(most_waiting)),
            more: Condvar::new(),
            since: Instant::now(),
            done: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
        }));
        let inner = Arc::downgrade(&queue.0);
        let serve = move || {
            while let Some(inner) = inner.upgrade() {
                inner.serve(&mut *device);
            }
        };
        let spawned = std::thread::Builder::new().name("karman-gpu".into()).spawn(serve);
        spawned.map_err(|error| GpuError::Absent(format!("no thread for {}: {error}", queue.0.info.id)))?;
        Ok(queue)
    }

    /// The device.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// How much the device was used so far. Work counts once it has ended.
    pub fn used(&self) -> DeviceUse {
        let Inner {
            since, done, busy_us, ..
        } = &*self.0;
        DeviceUse {
            since: since.elapsed(),
            busy: Duration::from_micros(busy_us.load(Ordering::Relaxed)),
            done: done.load(Ordering::Relaxed),
            waiting: self.0.share().waiting(),
        }
    }

    /// Puts work behind that of the same tenant.
    ///
    /// # Errors
    /// [`GpuError::Limit`] when as much of it is waiting as may.
    pub fn push(&self, tenant: &str, job: Job) -> Result<(), GpuError> {
        let mut share = self.0.share();
        let most = share.most_waiting() as u64;
        let too_many = || GpuError::Limit {
            what: "pieces of work at once".into(),
            asked: most + 1,
            most,
        };
        if let Err(job) = share.push(tenant, (job, Instant::now())) {
            // What nobody waits for any more keeps nobody out.
            share.retain(tenant, |(job, _)| job.answer.is_awaited());
            share.push(tenant, job).map_err(|_| too_many())?;
        }
        self.0.more.notify_one();
        Ok(())
    }
}

impl Inner {
    fn share(&self) -> MutexGuard<'_, Share<(Job, Instant)>> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does one piece of work, or waits a while for one.
    fn serve(&self, device: &mut dyn Device) {
        let mut share = self.share();
        let Some(turn) = share.next_turn() else {
            // Woken for work or not, the caller looks again.
            drop(self.more.wait_timeout(share, LOOK));
            return;
        };
        drop(share);
        let (job, asked) = turn.work;
        let start = Instant::now();
        let left = job.within.saturating_sub(start - asked);
        let done = match (job.answer.is_awaited(), left.is_zero()) {
            (false, _) => None,
            (true, true) => Some(Err(GpuError::Deadline(job.within))),
            (true, false) => {
                let inputs: Vec<&[u32]> = job.inputs.iter().map(Vec::as_slice).collect();
                device.set_tenant(&turn.tenant);
                let done = device.run(&job.work, &inputs, job.on_device);
                self.done.fetch_add(1, Ordering::Relaxed);
                let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.busy_us.fetch_add(took, Ordering::Relaxed);
                Some(done)
            }
        };
        if let Some(done) = done {
            let failed = matches!(done, Err(GpuError::Lost(_) | GpuError::Deadline(_)));
            job.answer.answer(done);
            // Whose work took the device down pays for getting it back.
            if failed {
                device.recover();
            }
        }
        self.share().done(&turn.tenant, start.elapsed());
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("info", &self.0.info)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;
    use crate::kernel::{Kernel, Map, Step, f32_words, floats};
    use std::sync::mpsc::{Receiver, Sender, channel};

    struct Told(Sender<Result<Done, GpuError>>, bool);

    impl Answer for Told {
        fn is_awaited(&self) -> bool {
            self.1
        }

        fn answer(self: Box<Self>, done: Result<Done, GpuError>) {
            self.0.send(done).unwrap();
        }
    }

    /// Keeps the thread of the queue once its turn has come.
    struct Holds {
        began: Sender<()>,
        until: Receiver<()>,
    }

    impl Answer for Holds {
        fn is_awaited(&self) -> bool {
            let _ = self.began.send(());
            true
        }

        fn answer(self: Box<Self>, _: Result<Done, GpuError>) {
            let _ = self.until.recv();
        }
    }

    #[test]
    fn who_left_keeps_nobody_out() {
        let queue = Queue::start(Box::new(Cpu::new(1)), 2).unwrap();
        let push = |answer: Box<dyn Answer>| {
            let job = Job {
                work: Work::Kernel(Kernel::Map(Map {
                    length: 2,
                    steps: vec![Step::Scale(2.0)],
                })),
                inputs: [f32_words(&[1.0, 2.0])].into(),
                within: Duration::from_secs(60),
                on_device: Duration::from_secs(60),
                answer,
            };
            queue.push("one", job)
        };
        let ((began, begins), (release, until)) = (channel(), channel());
        push(Box::new(Holds { began, until })).unwrap();
        begins.recv().unwrap();
        let (sender, answers) = channel();
        for awaited in [false, false, true, true] {
            push(Box::new(Told(sender.clone(), awaited))).unwrap();
        }
        let full = push(Box::new(Told(sender.clone(), true)));
        assert!(matches!(full, Err(GpuError::Limit { most: 2, .. })), "{full:?}");
        drop(release);
        for _ in 0..2 {
            assert_eq!(floats(&answers.recv().unwrap().unwrap().outputs[0]), [2.0, 4.0]);
        }
    }

    #[test]
    fn everybody_gets_an_answer_but_who_left_or_came_too_late() {
        let queue = Queue::start(Box::new(Cpu::new(1)), 4).unwrap();
        let (sender, answers) = channel();
        let job = |within, awaited| Job {
            work: Work::Kernel(Kernel::Map(Map {
                length: 2,
                steps: vec![Step::Scale(2.0)],
            })),
            inputs: [f32_words(&[1.0, 2.0])].into(),
            within,
            on_device: Duration::from_secs(60),
            answer: Box::new(Told(sender.clone(), awaited)),
        };
        queue.push("gone", job(Duration::from_secs(60), false)).unwrap();
        queue.push("late", job(Duration::ZERO, true)).unwrap();
        assert_eq!(answers.recv().unwrap(), Err(GpuError::Deadline(Duration::ZERO)));
        queue.push("one", job(Duration::from_secs(60), true)).unwrap();
        assert_eq!(floats(&answers.recv().unwrap().unwrap().outputs[0]), [2.0, 4.0]);
        // What nobody waited for, or too long, was no use of the device.
        let used = queue.used();
        assert_eq!((used.done, used.waiting), (1, 0));
        assert!(used.busy <= used.since, "{used:?}");
    }
}
