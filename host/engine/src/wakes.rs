//! Wakes that a task raises while it polls itself.
//!
//! The guest, and the reader of its answer, are polled by one task; each wakes it when there is something for the
//! other. But the task is being polled already and looks at both. Handed on, such a wake would make the runtime run the
//! task once more for nothing, and rouse another thread to help with it: twice per request, which costs more than many a
//! guest takes.

use futures::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls in a row before the runtime gets its thread back: what wakes itself at every poll must not hold it.
const MOST_IN_A_ROW: u32 = 4;

const WAITS: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

/// Keeps wakes that come during a poll to itself, and hands on all others.
pub(crate) struct OwnWakes {
    inner: Arc<Inner>,
    waker: Waker,
}

#[derive(Default)]
struct Inner {
    state: AtomicU8,
    task: AtomicWaker,
}

impl OwnWakes {
    pub(crate) fn new() -> Self {
        let inner = Arc::<Inner>::default();
        let waker = inner.clone().into();
        Self { inner, waker }
    }

    /// Polls again while there were wakes and nothing came out. Who gets something out of it has to come back for more:
    /// wakes of that poll are forgotten.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Inner { state, task } = &*self.inner;
        task.register(context.waker());
        for _ in 0..MOST_IN_A_ROW {
            state.store(POLLED, Ordering::SeqCst);
            let polled = step(&mut Context::from_waker(&self.waker));
            let woken = state.swap(WAITS, Ordering::SeqCst) == WOKEN;
            if polled.is_ready() || !woken {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = |state| (state != WAITS).then_some(WOKEN);
        if self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, noted)
            .is_err()
        {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_during_the_poll_stays_inside_and_a_later_one_goes_out() {
        let (count, wakes) = (Arc::new(Count::default()), OwnWakes::new());
        let outer = count.clone().into();
        let (mut polls, mut kept) = (0, None);
        let polled = wakes.poll(&Context::from_waker(&outer), |context| {
            polls += 1;
            kept = Some(context.waker().clone());
            if polls == 1 {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((polls, count.0.load(Ordering::SeqCst)), (2, 0));
        kept.unwrap().wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_wakes_itself_for_ever_gives_the_thread_back() {
        let (count, wakes) = (Arc::new(Count::default()), OwnWakes::new());
        let outer = count.clone().into();
        let polled = wakes.poll(&Context::from_waker(&outer), |context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
