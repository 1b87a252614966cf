//! The memory of requests under way. What a request needs until it is answered is some kilobytes; taken from the allocator for each of them, whole
//! pages of it would come and go. The memory of the last request that a thread has answered is that of the next.

use crate::pipeline::Answer;
use futures::FutureExt;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::sync::ReusableBoxFuture;

type Memory = ReusableBoxFuture<'static, Answer>;

thread_local! {
    static LAST: Cell<Option<Memory>> = const { Cell::new(None) };
}

/// A request on its way to its answer; empty once that is there.
pub(crate) struct Reused(Option<Memory>);

impl Reused {
    pub(crate) fn new(request: impl Future<Output = Answer> + Send + 'static) -> Self {
        // Fused, it drops what it holds, a span say, when it ends and not when the next one comes.
        let request = request.fuse();
        Self(Some(match LAST.take() {
            Some(mut memory) => {
                memory.set(request);
                memory
            }
            None => Memory::new(request),
        }))
    }
}

impl Future for Reused {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let Some(memory) = &mut self.0 else {
            return Poll::Pending;
        };
        let answer = ready!(memory.poll(context));
        LAST.set(self.0.take());
        Poll::Ready(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Busy, Table};
    use super::*;
    use crate::connections::Sending;
    use crate::pipeline::Taken;
    use axum::body::Body;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Instant;

    fn answer() -> Answer {
        let seated = Table::new(1).sit(Instant::now()).unwrap();
        let busy = Busy::new(seated.seat());
        http::Response::new(Sending::new(Body::empty(), busy, Taken::default()))
    }

    #[test]
    fn the_memory_of_one_request_is_that_of_the_next_and_keeps_nothing_of_it() {
        let held = Arc::new(());
        for _ in 0..3 {
            let (holds, mut turns) = (held.clone(), 0);
            let request = poll_fn(move |_| {
                let _held = &holds;
                turns += 1;
                match turns {
                    1 => Poll::Pending,
                    _ => Poll::Ready(answer()),
                }
            });
            let mut request = Reused::new(request);
            assert!((&mut request).now_or_never().is_none());
            assert_eq!(Arc::strong_count(&held), 2);
            assert!(request.now_or_never().is_some());
            assert_eq!(Arc::strong_count(&held), 1);
            let kept = LAST.take();
            assert!(kept.is_some());
            LAST.set(kept);
        }
        // One that is given up gives its memory back.
        let holds = held.clone();
        let given_up = Reused::new(async move {
            std::future::pending::<()>().await;
            drop(holds);
            answer()
        });
        drop(given_up);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(LAST.take().is_none());
    }
}
