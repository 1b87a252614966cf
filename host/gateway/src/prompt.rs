//! A bound on the time of what is mostly done at once.

use futures::poll;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::error::Elapsed;

/// Gives a future so long. One that is done when it is first asked needs neither clock nor timer.
///
/// # Errors
/// When it takes longer.
pub(crate) async fn within<F: Future>(most: Duration, mut future: Pin<&mut F>) -> Result<F::Output, Elapsed> {
    match poll!(future.as_mut()) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => tokio::time::timeout(most, future).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::pin;
    use tokio::time::sleep;

    #[tokio::test]
    async fn what_is_done_in_time_is_taken_and_the_rest_is_not_waited_for() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(600));
        assert_eq!(within(Duration::ZERO, pin!(ready(1))).await.ok(), Some(1));
        assert!(within(long, pin!(sleep(short))).await.is_ok());
        assert!(within(short, pin!(pending::<()>())).await.is_err());
    }
}
