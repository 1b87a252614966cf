//! What takes long is done where it holds up no other connection: each thread here has many of them.

use crate::refusal::Refusal;
use karman_types::TaskError;

/// Bytes of JSON that are read or written sooner than it takes to have that done elsewhere.
const SHORT: usize = 64 << 10;

/// Reads or writes this many bytes of JSON, on another thread where they are many.
///
/// # Errors
/// Those of the work; `internal` where it panics.
pub(super) async fn apart<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if bytes < SHORT {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(TaskError::internal(error.to_string()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn only_what_is_long_is_done_on_another_thread() {
        let here = thread::current().id();
        let on = || Ok(thread::current().id());
        assert_eq!(apart(SHORT - 1, on).await.unwrap(), here);
        assert_ne!(apart(SHORT, on).await.unwrap(), here);
        let refused = || Err::<(), _>(TaskError::invalid("no").into());
        assert!(apart(SHORT, refused).await.is_err());
    }
}
