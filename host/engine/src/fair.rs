//! Short calls run where they arrive; a call that is still there at an epoch tick moves to the workers.
//!
//! A hand-over between threads costs more than most calls take, so a call is first polled in place. The ticks are those of a
//! clock, whichever call runs: where calls follow each other closely, nearly every tick meets one that has just come, and that one
//! stays. One that has been there for a while has held the thread: the rest of its future goes to the engine's own threads,
//! where long calls share the cores among themselves and leave those that serve the network free.

use crate::workers::Workers;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// A future that moves away from the polling task once `long` is set, and counts as a run of a guest while it is polled, here and
/// there. Dropping it cancels the work wherever it is.
pub(crate) struct Fair<T> {
    state: State<T>,
    long: Arc<AtomicBool>,
    workers: Arc<Workers>,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum State<T> {
    Here(Boxed<T>),
    Moved(JoinHandle<T>),
    Done,
}

impl<T: Send + 'static> Fair<T> {
    pub(crate) fn new(
        future: impl Future<Output = T> + Send + 'static,
        long: Arc<AtomicBool>,
        workers: Arc<Workers>,
    ) -> Self {
        Self {
            state: State::Here(Box::pin(future)),
            long,
            workers,
        }
    }

    /// Lets the rest of the work finish on the workers.
    pub(crate) fn detach(mut self) {
        if let State::Here(future) = std::mem::replace(&mut self.state, State::Done) {
            moved(&self.workers, future);
        }
    }
}

/// Goes on with this on the workers, where the clock sees it as well.
fn moved<T: Send + 'static>(workers: &Workers, future: Boxed<T>) -> JoinHandle<T> {
    workers.spawn(workers.runs().counted(future))
}

impl<T: Send + 'static> Future for Fair<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if let State::Here(future) = &mut this.state {
            let running = this.workers.runs().begin();
            let polled = future.as_mut().poll(context);
            drop(running);
            if let Poll::Ready(output) = polled {
                this.state = State::Done;
                return Poll::Ready(output);
            }
            if !this.long.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            if let State::Here(future) = std::mem::replace(&mut this.state, State::Done) {
                this.state = State::Moved(moved(&this.workers, future));
            }
        }
        match &mut this.state {
            State::Moved(handle) => match Pin::new(handle).poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(output)) => Poll::Ready(output),
                Poll::Ready(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Only a runtime that shuts down cancels: nobody is left to tell.
                Poll::Ready(Err(_)) => Poll::Pending,
            },
            State::Here(_) | State::Done => Poll::Pending,
        }
    }
}

impl<T> Drop for Fair<T> {
    fn drop(&mut self) {
        if let State::Moved(handle) = &self.state {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Runs;
    use std::future::poll_fn;

    #[tokio::test]
    async fn a_long_future_moves_and_still_answers() {
        let long = Arc::new(AtomicBool::new(false));
        let mark = long.clone();
        let home = std::thread::current().id();
        let future = async move {
            let first = std::thread::current().id();
            mark.store(true, Ordering::Relaxed);
            tokio::task::yield_now().await;
            (first, std::thread::current().id())
        };
        let workers = Arc::new(Workers::new(Some(1), Arc::default()));
        let (first, second) = Fair::new(future, long, workers).await;
        assert_eq!(first, home);
        assert_ne!(second, home);
    }

    #[tokio::test]
    async fn a_future_counts_as_running_wherever_it_is_polled() {
        let (long, runs) = (Arc::new(AtomicBool::new(false)), Arc::<Runs>::default());
        let (mark, seen) = (long.clone(), runs.clone());
        let future = async move {
            let here = seen.all_ended();
            mark.store(true, Ordering::Relaxed);
            tokio::task::yield_now().await;
            (here, seen.all_ended())
        };
        let workers = Arc::new(Workers::new(Some(1), runs.clone()));
        assert_eq!(Fair::new(future, long, workers).await, (None, None));
        assert_eq!(runs.all_ended(), Some(2));
    }

    #[tokio::test]
    async fn dropping_a_moved_future_cancels_it() {
        struct Flag(Arc<AtomicBool>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Flag(dropped.clone());
        let future = async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        };
        let mut fair = Fair::new(
            future,
            Arc::new(AtomicBool::new(true)),
            Arc::new(Workers::new(Some(1), Arc::default())),
        );
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut fair).poll(context))).await;
        assert!(polled.is_pending());
        drop(fair);
        while !dropped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }
}
