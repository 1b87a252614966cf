//! The threads that serve connections, one for each core. Each has a runtime of its own, and a connection stays with the thread that it
//! came to. Where threads share what there is to do, an idle one waits for the network on behalf of all: it wakes for each request and
//! hands it on, or takes it away from the thread that has everything about it at hand. Here nobody does. What takes long leaves these
//! threads by itself: guests after a tick, models and disks at once.

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};

/// One of the threads. They stay until the process ends.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

static THREADS: OnceLock<Vec<Thread>> = OnceLock::new();

/// Starts the threads, unless they are there. The first connection does, where nobody has before.
pub(super) fn start() {
    threads();
}

/// Serves a connection on the thread that has the fewest.
pub fn attend<F>(stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let fewest = threads()
        .iter()
        .min_by_key(|thread| thread.connections.load(Ordering::Relaxed));
    let Some(thread) = fewest else {
        tokio::spawn(async move { serve(stream).await });
        return;
    };
    let counted = Counted::new(&thread.connections);
    // It leaves the runtime that accepted it, and joins the one that serves it.
    let stream = stream.into_std();
    thread.runtime.spawn(async move {
        match stream.and_then(TcpStream::from_std) {
            Ok(stream) => serve(stream).await,
            Err(error) => tracing::warn!(%error, "a connection could not be served"),
        }
        drop(counted);
    });
}

fn threads() -> &'static [Thread] {
    THREADS.get_or_init(|| {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let started = (0..cores).map(|_| Thread::start()).collect::<Result<_, _>>();
        started.unwrap_or_else(|error: std::io::Error| {
            tracing::warn!(%error, "no threads for connections: they share those of the node");
            Vec::new()
        })
    })
}

impl Thread {
    fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("karman-connect".into())
            .spawn(move || runtime.block_on(pending::<()>()))?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
        })
    }
}

/// A connection that a thread has, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_connection_is_served_by_one_thread_of_its_own_runtime() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (tell, told) = oneshot::channel();
        attend(accepted.unwrap().0, |stream| async move {
            let began = std::thread::current().id();
            // Another task of this thread goes on meanwhile.
            let beside = tokio::spawn(async { std::thread::current().id() }).await.unwrap();
            stream.readable().await.unwrap();
            let now = std::thread::current();
            let _ = tell.send((began, beside, now.id(), now.name().map(str::to_owned)));
        });
        connected.unwrap().try_write(b"asks").unwrap();
        let (began, beside, now, name) = told.await.unwrap();
        assert_eq!((began, beside), (now, now));
        assert_eq!(name.as_deref(), Some("karman-connect"));
    }

    #[test]
    fn who_is_counted_is_counted_until_it_goes() {
        let connections = Arc::default();
        let (first, second) = (Counted::new(&connections), Counted::new(&connections));
        drop(first);
        assert_eq!(connections.load(Ordering::Relaxed), 1);
        drop(second);
        assert_eq!(connections.load(Ordering::Relaxed), 0);
    }
}
