//! Calls of `karman:task/stream-handler`: bodies that need not fit in memory.

use crate::capability::bindings::host::karman::task::types;
use crate::capability::bindings::stream::TaskStream;
use crate::capability::keyvalue::Buckets;
use crate::convert;
use crate::fair::Fair;
use crate::host::Host;
use crate::plugin::{CallReport, Export, Plugin};
use bytes::BytesMut;
use futures::channel::oneshot;
use karman_types::{CallContext, Metadata, TaskError, TaskRequest, TaskResponse};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wasmtime::component::{
    Accessor, Destination, FutureConsumer, Lift, Source, StreamConsumer, StreamProducer, StreamReader,
    StreamResult,
};
use wasmtime::{Store, StoreContextMut};

/// Bytes that one read from the caller may bring.
const CHUNK: usize = 64 << 10;

/// A request whose body is read as the plugin asks for it.
pub struct StreamRequest {
    /// Media type of the body.
    pub content_type: String,
    /// Free-form header.
    pub metadata: Metadata,
    /// The input.
    pub body: Pin<Box<dyn AsyncRead + Send>>,
}

impl From<TaskRequest> for StreamRequest {
    fn from(request: TaskRequest) -> Self {
        Self {
            content_type: request.content_type,
            metadata: request.metadata,
            body: Box::pin(io::Cursor::new(request.body)),
        }
    }
}

/// The head of a streamed response.
#[derive(Clone, Debug, Default)]
pub struct StreamHead {
    /// Media type of the body.
    pub content_type: String,
    /// Free-form header.
    pub metadata: Metadata,
}

/// Takes the head of a response, and says where its body goes.
pub type Begin = Box<dyn FnOnce(StreamHead) -> Pin<Box<dyn AsyncWrite + Send>> + Send>;

impl Plugin {
    /// Runs the plugin's stream handler: reads the request's body as the plugin asks for it, tells `begin` the head of the
    /// response and writes its body as it comes. It has ended well when all is written and the plugin has said that it is
    /// whole.
    ///
    /// # Errors
    /// What the plugin answers, and `invalid`, `limit`, `deadline`, `failed` as for [`Plugin::call`].
    pub async fn call_stream(
        self: &Arc<Self>,
        request: StreamRequest,
        begin: Begin,
        context: CallContext,
    ) -> Result<CallReport, TaskError> {
        self.stream_over(request, begin, context, None).await
    }

    /// The same with the response in memory, at most `limits.output` of it: for callers that need it whole.
    ///
    /// # Errors
    /// Those of [`Plugin::call_stream`], and `limit` for a longer response.
    pub async fn call_gathered(
        self: &Arc<Self>,
        request: StreamRequest,
        context: CallContext,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        self.gathered_over(request, context, None).await
    }

    pub(crate) async fn gathered_over(
        self: &Arc<Self>,
        request: StreamRequest,
        context: CallContext,
        buckets: Option<Arc<dyn Buckets>>,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        let kept = Arc::new(Mutex::new((StreamHead::default(), Vec::new())));
        let gathered = Gathered {
            kept: kept.clone(),
            plugin: self.clone(),
        };
        let begin = Box::new(move |head| {
            gathered.kept.lock().0 = head;
            Box::pin(gathered) as Pin<Box<dyn AsyncWrite + Send>>
        });
        let report = self.stream_over(request, begin, context, buckets).await?;
        let (head, body) = std::mem::take(&mut *kept.lock());
        let response = TaskResponse {
            content_type: head.content_type,
            metadata: head.metadata,
            body: body.into(),
        };
        Ok((response, report))
    }

    async fn stream_over(
        self: &Arc<Self>,
        request: StreamRequest,
        begin: Begin,
        mut context: CallContext,
        buckets: Option<Arc<dyn Buckets>>,
    ) -> Result<CallReport, TaskError> {
        let Export::Stream(pre) = &self.export else {
            return Err(self.wrong_world("karman:task/task-stream"));
        };
        let pre = pre.clone();
        let mut entered = self.enter(&mut context).await?;
        let mut store = self.store(context)?;
        if buckets.is_some() {
            store.data_mut().services.buckets = buckets;
        }
        self.stats.instantiated();
        let long = store.data().long.clone();
        let run = async move {
            let patience = store.data().patience();
            let call = async {
                let guest = pre.instantiate_async(&mut store).await?;
                run(&guest, &mut store, request, begin).await
            };
            let ended = match tokio::time::timeout(patience, call).await {
                Ok(Ok(answer)) => answer.map_err(|error| store.data().told(convert::error_from_guest(error))),
                Ok(Err(error)) => Err(store.data().explain(&error)),
                Err(_) => Err(store.data().time_over()),
            };
            let report = entered.end(Some(&store), ended.as_ref().err());
            ended.map(|()| report)
        };
        Fair::new(run, long, self.engine.workers().clone()).await
    }
}

async fn run(
    guest: &TaskStream,
    store: &mut Store<Host>,
    request: StreamRequest,
    begin: Begin,
) -> wasmtime::Result<Result<(), types::Error>> {
    let StreamRequest {
        content_type,
        metadata,
        body,
    } = request;
    let body = StreamReader::new(&mut *store, Input(body))?;
    let (written, all_written) = oneshot::channel();
    let (told, verdict) = oneshot::channel();
    let call = async move |accessor: &Accessor<Host>| {
        let handler = guest.karman_task_stream_handler();
        let (head, body, whole) = match handler
            .call_handle(accessor, content_type, metadata, body)
            .await?
        {
            Ok(answer) => answer,
            Err(error) => return wasmtime::Result::Ok(Err(error)),
        };
        let to = begin(StreamHead {
            content_type: head.content_type,
            metadata: head.metadata,
        });
        accessor.with(|mut store| {
            body.pipe(
                &mut store,
                Output {
                    to,
                    written: Some(written),
                },
            )?;
            whole.pipe(&mut store, Verdict(Some(told)))
        })?;
        // The sender is dropped when the guest closes the stream; what was refused before that is an error.
        if let Ok(error) = all_written.await {
            return Err(error);
        }
        let unsaid = || types::Error::Failed("the plugin did not say whether its response is whole".into());
        Ok(verdict.await.unwrap_or_else(|_| Err(unsaid())))
    };
    store.run_concurrent(call).await?
}

/// The caller's body, read when the guest reads.
struct Input(Pin<Box<dyn AsyncRead + Send>>);

impl<D> StreamProducer<D> for Input {
    type Item = u8;
    type Buffer = BytesMut;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        destination: Destination<'a, u8, BytesMut>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        // A guest that asks for nothing only wants to know whether it may read.
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let mut destination = destination.as_direct(store, CHUNK);
        let mut buffer = ReadBuf::new(destination.remaining());
        match self.0.as_mut().poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) => {
                let read = buffer.filled().len();
                if read == 0 {
                    return Poll::Ready(Ok(StreamResult::Dropped));
                }
                destination.mark_written(read);
                Poll::Ready(Ok(StreamResult::Completed))
            }
            Poll::Ready(Err(error)) => {
                let error = TaskError::unavailable(format!("the request's body cannot be read: {error}"));
                Poll::Ready(Err(wasmtime::Error::new(error)))
            }
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Where the response's body goes.
struct Output {
    to: Pin<Box<dyn AsyncWrite + Send>>,
    /// Dropped when all is written; used when the caller stops taking.
    written: Option<oneshot::Sender<wasmtime::Error>>,
}

impl<D> StreamConsumer<D> for Output {
    type Item = u8;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        store: StoreContextMut<'_, D>,
        source: Source<'_, u8>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let mut source = source.as_direct(store);
        if source.remaining().is_empty() {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let error = match self.to.as_mut().poll_write(context, source.remaining()) {
            Poll::Ready(Ok(count)) if count > 0 => {
                source.mark_read(count);
                return Poll::Ready(Ok(StreamResult::Completed));
            }
            Poll::Ready(Ok(_)) => io::ErrorKind::WriteZero.into(),
            Poll::Ready(Err(error)) => error,
            Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => return Poll::Pending,
        };
        if let Some(written) = self.written.take() {
            let error = error.downcast::<TaskError>().unwrap_or_else(|error| {
                TaskError::cancelled(format!("the response's body cannot be written: {error}"))
            });
            let _ = written.send(wasmtime::Error::new(error));
        }
        Poll::Ready(Ok(StreamResult::Dropped))
    }
}

/// What the guest says at the end.
struct Verdict(Option<oneshot::Sender<Result<(), types::Error>>>);

impl<D: 'static> FutureConsumer<D> for Verdict
where
    Result<(), types::Error>: Lift,
{
    type Item = Result<(), types::Error>;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        store: StoreContextMut<'_, D>,
        mut source: Source<'_, Self::Item>,
        _finish: bool,
    ) -> Poll<wasmtime::Result<()>> {
        let mut said = None;
        source.read(store, &mut said)?;
        if let (Some(told), Some(said)) = (self.0.take(), said) {
            let _ = told.send(said);
        }
        Poll::Ready(Ok(()))
    }
}

/// A response that is kept in memory, up to its plugin's limit.
struct Gathered {
    kept: Arc<Mutex<(StreamHead, Vec<u8>)>>,
    plugin: Arc<Plugin>,
}

impl AsyncWrite for Gathered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut kept = self.kept.lock();
        let length = (kept.1.len() + bytes.len()) as u64;
        Poll::Ready(match self.plugin.check_length(length) {
            Ok(()) => {
                kept.1.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Err(error) => Err(io::Error::other(error)),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
