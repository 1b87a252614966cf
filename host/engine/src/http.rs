//! Requests to `wasi:http` plugins, 0.2 and 0.3.
//!
//! The guest is polled by the task that wants its answer: first by [`Plugin::serve`] until it has a head, then by the body as
//! the connection asks for more. So a short request never changes threads, a slow client slows its guest, and a client
//! that goes away cancels it.

use crate::fair::Fair;
use crate::host::Host;
use crate::idle::Idle;
use crate::plugin::{Entered, Export, Plugin};
use crate::wakes::OwnWakes;
use bytes::Bytes;
use futures::channel::oneshot;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use karman_types::{CallContext, Manifest, TaskError};
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use wasmtime::component::InstancePre;
use wasmtime::{AsContextMut, Store};
use wasmtime_wasi_http::handler::{Prepared, Proxy, ProxyPre};
use wasmtime_wasi_http::p2::bindings::ProxyPre as Http02;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p3::bindings::ServicePre as Http03;
use wasmtime_wasi_http::{Error, WasiBody, WasiHttpView};

/// Requests that one instance of a 0.3 service, or of a warm 0.2 proxy, serves one after the other.
const MOST_USES: u32 = 128;
/// Idle instances that one plugin keeps.
const MOST_IDLE: usize = 64;

/// Instances that may serve again.
pub(crate) struct HttpInstances {
    most_uses: u32,
    idle: Idle<HttpInstance>,
}

pub(crate) struct HttpInstance {
    store: Store<Host>,
    proxy: Proxy,
    uses: u32,
}

type Head = Result<Response<WasiBody>, wasmtime::Error>;
type Drive = Fair<Result<(), TaskError>>;

impl Export {
    pub(crate) fn http(pre: InstancePre<Host>, manifest: &Manifest) -> wasmtime::Result<Self> {
        let (pre, most_uses) = match Http03::new(pre.clone()) {
            Ok(pre) => (ProxyPre::P3(pre), MOST_USES),
            Err(_) => (
                ProxyPre::P2(Http02::new(pre)?),
                if manifest.warm { MOST_USES } else { 1 },
            ),
        };
        Ok(Self::Http {
            pre,
            instances: HttpInstances {
                most_uses,
                idle: Idle::new(),
            },
        })
    }
}

pub(crate) fn wasmtime_engine(pre: &ProxyPre<Host>) -> &wasmtime::Engine {
    match pre {
        ProxyPre::P2(pre) => pre.engine(),
        ProxyPre::P3(pre) => pre.engine(),
    }
}

impl Plugin {
    /// Answers a request. The body of the response drives the plugin: dropping it cancels what is left of the call.
    ///
    /// # Errors
    /// `invalid` when the plugin serves no HTTP, `limit`, `deadline`, `failed` when it ended without an answer.
    pub async fn serve(
        self: &Arc<Self>,
        request: Request<WasiBody>,
        mut context: CallContext,
    ) -> Result<Response<GuestBody>, TaskError> {
        let Export::Http { instances, .. } = &self.export else {
            return Err(self.wrong_world("wasi:http/proxy"));
        };
        let entered = self.enter(&mut context).await?;
        let (store, used) = match instances.idle.take() {
            Some(mut instance) => {
                Host::renew(&mut instance.store, context)?;
                (instance.store, Some((instance.proxy, instance.uses)))
            }
            None => (self.store(context)?, None),
        };
        let long = store.data().long.clone();
        let (head, answer) = oneshot::channel();
        let plugin = self.clone();
        let drive = async move { plugin.drive(entered, store, used, request, head).await };
        answer_of(
            Fair::new(drive, long, self.engine.workers().clone()),
            answer,
            self,
        )
        .await
    }

    /// Keeps an instance that may serve again; gives back one that may not.
    fn keep_open(&self, instances: &HttpInstances, instance: HttpInstance) -> Option<HttpInstance> {
        if instance.uses >= instances.most_uses || instances.idle.len() >= MOST_IDLE {
            return Some(instance);
        }
        let places = self.engine.idle();
        instances.idle.put(instance, places.take());
        places.make_room();
        None
    }

    async fn drive(
        self: Arc<Self>,
        mut entered: Entered,
        mut store: Store<Host>,
        used: Option<(Proxy, u32)>,
        request: Request<WasiBody>,
        head: oneshot::Sender<Head>,
    ) -> Result<(), TaskError> {
        let Export::Http { pre, instances } = &self.export else {
            unreachable!("asked by serve")
        };
        let (patience, allowed) = (store.data().patience(), store.data().allowed);
        let ended = tokio::time::timeout(patience, async {
            let (proxy, uses) = match used {
                Some(used) => used,
                None => {
                    self.stats.instantiated();
                    (pre.instantiate_async(&mut store).await?, 0)
                }
            };
            handle(&mut store, &proxy, request, head).await?;
            wasmtime::Result::Ok((proxy, uses + 1))
        });
        match ended.await {
            Ok(Ok((proxy, uses))) => {
                entered.end(Some(&store), None);
                let retired = self.keep_open(instances, HttpInstance { store, proxy, uses });
                if retired.is_some() && (instances.most_uses > 1 || self.stats.running() == 0) {
                    // The answer goes out before the instance is taken apart. Where each call has an instance of its own, others
                    // may wait for this place: then it is taken apart at once.
                    tokio::spawn(async move { drop((retired, entered)) });
                }
                Ok(())
            }
            Ok(Err(error)) => {
                let error = store.data().explain(&error);
                entered.end(Some(&store), Some(&error));
                Err(error)
            }
            Err(_) => {
                let over = self.info.time_over(allowed);
                entered.end(Some(&store), Some(&over));
                Err(over)
            }
        }
    }
}

async fn handle(
    store: &mut Store<Host>,
    proxy: &Proxy,
    request: Request<WasiBody>,
    head: oneshot::Sender<Head>,
) -> wasmtime::Result<()> {
    match proxy {
        Proxy::P2(guest) => {
            let mut http = store.data_mut().http();
            let request = http.new_incoming_request(Scheme::Http, request)?;
            let out = http.new_response_outparam_from_callback(move |answer: Result<_, ErrorCode>| {
                // Nobody listens any more when the client has gone.
                let _ = head.send(answer.map_err(wasmtime::Error::from));
            })?;
            guest
                .wasi_http_incoming_handler()
                .call_handle(store, request, out)
                .await
        }
        Proxy::P3(_) => {
            let call = Prepared::new(store.as_context_mut(), proxy, request, Host::http, head)?;
            let run = async |accessor: &wasmtime::component::Accessor<Host>| {
                call.run(accessor, pending()).await?;
                // The body may still be written by what the guest left running.
                poll_fn(|context| accessor.poll_no_interesting_tasks(context)).await;
                wasmtime::Result::Ok(())
            };
            store.run_concurrent(run).await?
        }
    }
}

/// Drives the guest until it has answered, or has ended without.
async fn answer_of(
    mut drive: Drive,
    mut answer: oneshot::Receiver<Head>,
    plugin: &Arc<Plugin>,
) -> Result<Response<GuestBody>, TaskError> {
    let mut running = true;
    let mut outcome = Ok(());
    let wakes = OwnWakes::new();
    let mut step = |context: &mut Context<'_>| {
        if running && let Poll::Ready(ended) = Pin::new(&mut drive).poll(context) {
            running = false;
            outcome = ended;
        }
        Pin::new(&mut answer).poll(context)
    };
    let head = poll_fn(|context| wakes.poll(context, &mut step));
    match head.await {
        Ok(Ok(response)) => {
            let most = plugin.info.limits.output.0;
            let drive = running.then_some(drive);
            let broken = outcome.is_err();
            Ok(response.map(|body| GuestBody {
                body,
                drive,
                wakes,
                left: most,
                whole: false,
                broken,
            }))
        }
        Ok(Err(error)) => Err(TaskError::failed(format!(
            "`{}` answered with an error: {error}",
            plugin.info.name
        ))),
        Err(_) => Err(outcome.err().unwrap_or_else(|| {
            TaskError::failed(format!("`{}` ended without an answer", plugin.info.name))
                .with_hint("its handler must call `response-outparam.set`")
        })),
    }
}

impl HttpInstances {
    pub(crate) const fn idle(&self) -> &Idle<HttpInstance> {
        &self.idle
    }
}

/// The body of a plugin's response. Polling it runs the plugin.
pub struct GuestBody {
    body: WasiBody,
    drive: Option<Drive>,
    wakes: OwnWakes,
    left: u64,
    whole: bool,
    /// The plugin has failed since its head: what it wrote so far is no whole answer.
    broken: bool,
}

impl Body for GuestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self {
            body,
            drive,
            wakes,
            left,
            whole,
            broken,
        } = &mut *self;
        let next = wakes.poll(context, |context| {
            loop {
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
                    return Poll::Ready(frame);
                }
                // The body waits for the guest. It may have written its last; otherwise it wakes us when it writes.
                let running = drive.as_mut().map(|drive| Pin::new(drive).poll(context));
                match running {
                    Some(Poll::Ready(ended)) => {
                        *drive = None;
                        *broken = ended.is_err();
                    }
                    Some(Poll::Pending) | None => return Poll::Pending,
                }
            }
        });
        match next {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(rest) = left.checked_sub(length) else {
                    return Poll::Ready(Some(Err(Error::HttpResponseBodySize(None))));
                };
                *left = rest;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) if *broken => Poll::Ready(Some(Err(Error::HttpResponseIncomplete))),
            Poll::Ready(None) => {
                *whole = true;
                Poll::Ready(None)
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for GuestBody {
    fn drop(&mut self) {
        // The client has everything: what the guest still does after its answer may finish. Otherwise it is cancelled.
        if (self.whole || self.body.is_end_stream())
            && let Some(drive) = self.drive.take()
        {
            drive.detach();
        }
    }
}
