//! Answers on their way. What a request holds it holds until its answer is sent. An answer of which its caller takes nothing for too long
//! is given up with all of it, so that nobody keeps places, plugins and memory by not reading.

use super::table::{Busy, Seat};
use crate::pipeline::Taken;
use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use slab::Slab;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The body of an answer, with what its request holds until it is sent or given up.
pub(crate) struct Sending {
    answer: Arc<Answer>,
    seat: Arc<Seat>,
    number: usize,
}

/// Nothing once it is given up.
type Answer = Mutex<Option<Held>>;

struct Held {
    body: Body,
    busy: Busy,
    _taken: Taken,
    /// When its caller last took something of it, or waited for something.
    moved: Instant,
}

/// The answers of one connection that are on their way.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Slab<Weak<Answer>>>);

impl Sending {
    pub(crate) fn new(body: Body, mut busy: Busy, taken: Taken) -> Self {
        let seat = busy.seat().clone();
        let moved = Instant::now();
        busy.waits_to_be_taken(true, moved);
        let answer = Arc::new(Mutex::new(Some(Held {
            body,
            busy,
            _taken: taken,
            moved,
        })));
        let number = seat.answers().0.lock().insert(Arc::downgrade(&answer));
        Self { answer, seat, number }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.seat.answers().0.lock().remove(self.number);
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut answer = self.answer.lock();
        let Some(held) = &mut *answer else {
            return Poll::Ready(Some(Err("nobody took the answer".into())));
        };
        let polled = Pin::new(&mut held.body).poll_frame(context);
        // It is asked for more once its caller has taken what there was.
        held.moved = Instant::now();
        held.busy
            .waits_to_be_taken(matches!(polled, Poll::Ready(Some(Ok(_)))), held.moved);
        polled.map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.answer.lock();
        answer.as_ref().is_some_and(|held| held.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let answer = self.answer.lock();
        answer
            .as_ref()
            .map_or_else(SizeHint::default, |held| held.body.size_hint())
    }
}

impl Answers {
    /// Gives up those of which nothing was taken for so long, although there was something.
    pub(super) fn give_up(&self, most: Duration) {
        let answers = self.0.lock();
        // One that is being polled is being taken.
        let late = answers.iter().filter_map(|(_, answer)| {
            let answer = answer.upgrade()?;
            let mut held = answer.try_lock()?;
            let is_late = |held: &mut Held| held.busy.is_untaken() && held.moved.elapsed() >= most;
            held.take_if(is_late)
        });
        let late: Vec<Held> = late.collect();
        // What they hold may come back here when it ends.
        drop(answers);
        if !late.is_empty() {
            tracing::debug!(answers = late.len(), "answers that nobody takes are given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;
    use futures::StreamExt;
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    fn streamed(chunks: impl futures::Stream<Item = &'static str> + Send + 'static) -> Body {
        Body::from_stream(chunks.map(Ok::<_, Infallible>))
    }

    #[tokio::test]
    async fn what_nobody_takes_is_given_up_and_what_is_awaited_is_not() {
        let seated = Table::new(1).sit(Instant::now()).unwrap();
        let send = |body| {
            let mut busy = Busy::new(seated.seat());
            busy.is_whole();
            Sending::new(body, busy, Taken::default())
        };
        let mut never_asked = send(Body::from("all"));
        let mut taken = send(streamed(futures::stream::iter(["a", "b"])));
        assert_eq!(taken.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        let mut awaited = send(streamed(futures::stream::pending()));
        assert!(futures::poll!(awaited.frame()).is_pending());

        seated.give_up(Duration::from_secs(3600));
        assert_eq!(seated.seat().answers().0.lock().len(), 3);
        assert!(!never_asked.is_end_stream() && seated.idle_since().is_none());
        seated.give_up(Duration::ZERO);
        assert!(never_asked.frame().await.unwrap().is_err());
        assert!(taken.frame().await.unwrap().is_err());
        assert!(futures::poll!(awaited.frame()).is_pending());
        drop((never_asked, taken));
        assert!(seated.idle_since().is_none());
        drop(awaited);
        assert!(seated.idle_since().is_some());
        assert!(seated.seat().answers().0.lock().is_empty());
    }
}
