//! What the gateway takes on at once. Beyond that it refuses at once, and says when to come again.

use crate::config::GatewayLimits;
use crate::refusal::Refusal;
use karman_types::{ByteSize, TaskError, format_bytes};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that run at once for each core, unless the operator says otherwise: some wait for other nodes.
const PER_CORE: usize = 32;
/// How much one request counts in the mean time of requests.
const WEIGHT: f64 = 0.05;
/// Bodies are counted in pieces of this many bytes.
pub(crate) const PIECE: u64 = 1 << 10;

/// What is there to be taken.
#[derive(Debug)]
pub(crate) struct Admission {
    running: Arc<Semaphore>,
    at_once: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
    wait: Duration,
    beside: Arc<Semaphore>,
    most_beside: usize,
    bodies: Arc<Semaphore>,
    most_bodies: ByteSize,
    mean: Mutex<Duration>,
}

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    started: Instant,
    _running: OwnedSemaphorePermit,
}

/// A request that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Admission {
    pub(crate) fn new(limits: &GatewayLimits) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let at_once = limits.at_once.unwrap_or(PER_CORE * cores);
        let at_once = at_once.min(Semaphore::MAX_PERMITS);
        let most_beside = limits.beside.min(Semaphore::MAX_PERMITS);
        let pieces = usize::try_from(limits.bodies.0 / PIECE).unwrap_or(usize::MAX);
        Arc::new(Self {
            running: Arc::new(Semaphore::new(at_once)),
            at_once,
            waiting: AtomicUsize::new(0),
            most_waiting: limits.waiting,
            wait: limits.wait.0,
            beside: Arc::new(Semaphore::new(most_beside)),
            most_beside,
            bodies: Arc::new(Semaphore::new(pieces.min(Semaphore::MAX_PERMITS))),
            most_bodies: limits.bodies,
            mean: Mutex::default(),
        })
    }

    /// Lets a request run, now or when one of those that run has ended.
    ///
    /// # Errors
    /// `unavailable`, with the time after which to try again, when too many wait or it waited too long.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Admitted, Refusal> {
        let permit = match self.running.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.queue().await?,
        };
        Ok(Admitted {
            admission: self.clone(),
            started: Instant::now(),
            _running: permit,
        })
    }

    async fn queue(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if waiting >= self.most_waiting {
            return Err(self.full());
        }
        let permit = self.running.clone().acquire_owned();
        match tokio::time::timeout(self.wait, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.full()),
        }
    }

    /// A place for what takes none among what runs. It does not wait for one: those that have one may for long.
    ///
    /// # Errors
    /// `unavailable`, with the time after which to try again, when all are taken.
    pub(crate) fn enter_beside(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = self.beside.clone().try_acquire_owned();
        place.map_err(|_| {
            let error = TaskError::unavailable(format!(
                "the gateway is full: {} requests wait for an end, or for plugins",
                self.most_beside
            ));
            Refusal::later(error.with_hint("try again later"), Duration::from_secs(1))
        })
    }

    fn full(&self) -> Refusal {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let error = TaskError::unavailable(format!(
            "the gateway is full: {} requests run and {waiting} wait",
            self.at_once
        ));
        Refusal::later(error.with_hint("try again later"), self.until_room(waiting))
    }

    /// How long those that wait take, at the pace of the last requests.
    fn until_room(&self, waiting: usize) -> Duration {
        let rounds = (waiting + 1).div_ceil(self.at_once) as u32;
        (*self.mean.lock()).saturating_mul(rounds)
    }

    /// Room for the next bytes of a body; it is given back with the permits.
    ///
    /// # Errors
    /// `unavailable` when the bodies of all requests together take up what they may.
    pub(crate) fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Refusal> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        let room = self.bodies.clone().try_acquire_many_owned(pieces);
        room.map_err(|_| {
            let error =
                TaskError::unavailable(format!("the bodies of requests take up {}", self.most_bodies));
            Refusal::later(error.with_hint("try again later"), self.until_room(self.at_once))
        })
    }

    /// Room for what a body of this length takes besides once it is read.
    ///
    /// # Errors
    /// `limit` (field `body`) when it takes more than there is for all bodies, else as [`Admission::room`].
    pub(crate) fn room_to_read(&self, takes: u64, length: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        if takes.saturating_add(length as u64) > self.most_bodies.0 {
            let (takes, most) = (format_bytes(takes), self.most_bodies);
            let error = TaskError::limit(format!(
                "the elements in the body take {takes} once they are read, and there are {most} for all bodies"
            ));
            let error = error.with_field("body");
            return Err(error
                .with_hint("send them as bytes: the binary tensor extension; `raw_input_contents` of gRPC")
                .into());
        }
        self.room(takes)
    }

    /// Requests that stand beside those that run.
    pub(crate) fn beside(&self) -> usize {
        self.most_beside - self.beside.available_permits()
    }

    /// Requests that run and wait, and bytes of bodies that are held.
    pub(crate) fn load(&self) -> (usize, usize, u64) {
        let running = self.at_once - self.running.available_permits();
        let held = self.most_bodies.0 / PIECE - self.bodies.available_permits() as u64;
        (running, self.waiting.load(Ordering::Relaxed), held * PIECE)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut mean = self.admission.mean.lock();
        let (old, this) = (mean.as_secs_f64(), self.started.elapsed().as_secs_f64());
        *mean = Duration::from_secs_f64(old + WEIGHT * (this - old));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Speaks;
    use karman_node::Time;

    fn admission(at_once: usize, waiting: usize) -> Arc<Admission> {
        Admission::new(&GatewayLimits {
            at_once: Some(at_once),
            waiting,
            wait: Time(Duration::from_secs(3600)),
            bodies: ByteSize::kib(4),
            ..GatewayLimits::default()
        })
    }

    #[tokio::test]
    async fn one_too_many_is_refused_at_once() {
        let admission = admission(2, 1);
        let (first, _second) = (admission.enter().await.unwrap(), admission.enter().await.unwrap());
        let third = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter().await.map(drop) }
        });
        while admission.load().1 == 0 {
            tokio::task::yield_now().await;
        }
        let refused = admission.enter().await.unwrap_err();
        assert!(refused.error.message.contains("2 requests run"), "{refused:?}");
        assert!(
            refused
                .response(Speaks::Plain)
                .headers()
                .contains_key("retry-after")
        );
        drop(first);
        third.await.unwrap().unwrap();
        assert_eq!(admission.load(), (1, 0, 0));
    }

    #[test]
    fn who_waits_for_an_end_takes_a_place_beside_those_that_run() {
        let admission = Admission::new(&GatewayLimits {
            beside: 1,
            ..GatewayLimits::default()
        });
        let place = admission.enter_beside().unwrap();
        let refused = admission.enter_beside().unwrap_err().response(Speaks::Plain);
        assert_eq!(refused.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(
            (admission.load().0, admission.beside()),
            (0, 1),
            "it does not run"
        );
        drop(place);
        assert_eq!(admission.beside(), 0);
        assert!(admission.enter_beside().is_ok());
    }

    #[test]
    fn bodies_are_counted_in_pieces() {
        let admission = admission(1, 1);
        let _held = (admission.room(1).unwrap(), admission.room(3 << 10).unwrap());
        assert_eq!(admission.load().2, 4 << 10);
        let refused = admission.room(1).unwrap_err();
        assert!(refused.error.message.contains("4 KiB"), "{refused:?}");
        assert!(admission.room_to_read(0, 4096).is_ok() && admission.room_to_read(1, 1).is_err());
        // What there will never be room for is told from what has to wait.
        let never = admission.room_to_read(4096, 1).unwrap_err();
        assert_eq!(
            never.response(Speaks::Plain).status(),
            http::StatusCode::PAYLOAD_TOO_LARGE
        );
    }
}
