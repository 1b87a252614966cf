//! Where the requests of one HTTP/2 connection are answered. A connection has one thread, and so has a request that is alone on it; those
//! beside it, of a client that sends many at once, go where there is room.

use hyper::rt::Executor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;

/// Runs requests on the thread of their connection, and on the others when there are several.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    others: Handle,
    running: Arc<AtomicUsize>,
}

impl Streams {
    /// Those of one connection, with the threads that may help.
    pub(super) fn beside(others: Handle) -> Self {
        Self {
            others,
            running: Arc::default(),
        }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, request: F) {
        let is_alone = self.running.fetch_add(1, Ordering::Relaxed) == 0;
        let running = Running(self.running.clone());
        let request = async move {
            request.await;
            drop(running);
        };
        match is_alone {
            true => tokio::spawn(request),
            false => self.others.spawn(request),
        };
    }
}

/// A request that runs, until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::current;
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    #[test]
    fn a_request_that_is_alone_stays_and_others_go_where_there_is_room() {
        let others = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let own = Builder::new_current_thread().build().unwrap();
        own.block_on(async {
            let streams = Streams::beside(others.handle().clone());
            let ask = || {
                let ((end, ended), (tell, told)) = (oneshot::channel::<()>(), oneshot::channel());
                streams.execute(async move {
                    let _ = tell.send(current().id());
                    let _ = ended.await;
                });
                (end, told)
            };
            let (first, second) = (ask(), ask());
            assert_eq!(first.1.await.unwrap(), current().id());
            assert_ne!(second.1.await.unwrap(), current().id());
            drop((first.0, second.0));
            while streams.running.load(Ordering::Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(ask().1.await.unwrap(), current().id());
        });
    }
}
