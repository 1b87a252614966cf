//! The threads that serve connections, one for each core. Each has a runtime of its own, and a connection stays with the thread that it
//! came to. Where threads share what there is to do, an idle one waits for the network on behalf of all: it wakes for each request and
//! hands it on, or takes it away from the thread that has everything about it at hand. Here nobody does. What takes long leaves these
//! threads by itself: guests after a tick, models and disks at once.

use super::awake;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Begins to serve a connection, on the thread that it is called on.
type Job = Box<dyn FnOnce() + Send>;

/// One of the threads. They stay until the process ends.
#[derive(Debug)]
struct Thread {
    jobs: UnboundedSender<Job>,
    connections: Arc<AtomicUsize>,
}

static THREADS: OnceLock<Vec<Thread>> = OnceLock::new();

/// Starts the threads, unless they are there. The first connection does, where nobody has before.
pub(super) fn start() {
    threads();
}

/// Serves a connection on the thread that has the fewest, or on this one where there is none.
pub fn attend<F>(stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let fewest = threads()
        .iter()
        .min_by_key(|thread| thread.connections.load(Ordering::Relaxed));
    let counted = fewest.map(|thread| Counted::new(&thread.connections));
    // It leaves the runtime that accepted it, and joins the one that serves it.
    let stream = stream.into_std();
    let job: Job = Box::new(move || {
        tokio::spawn(async move {
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => awake::counted(serve(stream)).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
            drop(counted);
        });
    });
    let left = match fewest {
        Some(thread) => thread.jobs.send(job).err().map(|refused| refused.0),
        None => Some(job),
    };
    if let Some(job) = left {
        job();
    }
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
        let (jobs, to_do) = unbounded_channel();
        std::thread::Builder::new()
            .name("karman-connect".into())
            .spawn(move || attend_to(to_do))?;
        Ok(Self {
            jobs,
            connections: Arc::default(),
        })
    }
}

/// What a thread does. It makes its own runtime: whoever starts it has other things to do meanwhile.
fn attend_to(mut jobs: UnboundedReceiver<Job>) {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            tokio::spawn(awake::keep());
            while let Some(begin) = jobs.recv().await {
                begin();
            }
        }),
        Err(error) => {
            tracing::warn!(%error, "a thread for connections could not begin: others have its share")
        }
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
