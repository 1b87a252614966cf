//! The place of a plugin on a node, where a new version takes over from the old while calls go on.

use crate::capability::bindings::lifecycle::LifecycleIndices;
use crate::error::LoadError;
use crate::host::Host;
use crate::plugin::{CallReport, Export, Plugin};
use crate::warm::TaskInstance;
use karman_types::{CallContext, TaskError, TaskRequest, TaskResponse};
use parking_lot::RwLock;
use std::pin::pin;
use std::sync::Arc;
use wasmtime::Store;

/// Holds the version that serves. The next call takes the newest; calls in flight finish on the one they began with.
pub struct Slot {
    current: RwLock<Arc<Plugin>>,
    upgrading: tokio::sync::Mutex<()>,
}

/// What happened to the state of a warm plugin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StateMoved {
    /// There was none.
    None,
    /// This many bytes went from `save` to `restore`.
    Moved(usize),
    /// One of the two versions has no `lifecycle`, so it was dropped.
    Dropped,
}

impl Slot {
    /// A place that this version serves from the start.
    ///
    /// # Errors
    /// [`LoadError::Check`] when its own `check` says no.
    pub async fn new(plugin: Arc<Plugin>, context: CallContext) -> Result<Self, LoadError> {
        plugin.check(context).await?;
        Ok(Self {
            current: RwLock::new(plugin),
            upgrading: tokio::sync::Mutex::default(),
        })
    }

    /// The version that serves.
    pub fn current(&self) -> Arc<Plugin> {
        self.current.read().clone()
    }

    /// Runs a request on the version that serves.
    ///
    /// # Errors
    /// As [`Plugin::call`].
    pub async fn call(
        &self,
        request: TaskRequest,
        context: CallContext,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        self.current().call(request, context).await
    }

    /// Puts another version in place. A version whose `check` fails, or that cannot take over the state, is rolled back:
    /// the old one goes on serving.
    ///
    /// # Errors
    /// [`LoadError::Check`] with what the new version said.
    pub async fn upgrade(&self, new: Arc<Plugin>, context: CallContext) -> Result<StateMoved, LoadError> {
        let _one_at_a_time = self.upgrading.lock().await;
        new.check(context.clone()).await?;
        let old = self.current();
        if Arc::ptr_eq(&old, &new) {
            return Ok(StateMoved::None);
        }
        let moved = move_state(&old, &new, context).await?;
        *self.current.write() = new;
        Ok(moved)
    }

    /// Puts one in place that may do less, whatever it says to that: nobody asks a plugin whether it lets a right go. State that does not move is
    /// dropped.
    pub async fn narrow(&self, new: Arc<Plugin>, context: CallContext) -> StateMoved {
        let _one_at_a_time = self.upgrading.lock().await;
        let old = self.current();
        let moved = move_state(&old, &new, context).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a plugin that may do less loses its state");
            old.warm.take();
            succeed(&old, &new);
            StateMoved::Dropped
        });
        *self.current.write() = new;
        moved
    }
}

async fn move_state(
    old: &Arc<Plugin>,
    new: &Arc<Plugin>,
    mut context: CallContext,
) -> Result<StateMoved, LoadError> {
    if !old.warm.kept() {
        return Ok(StateMoved::None);
    }
    if old.lifecycle().is_none() {
        return Ok(StateMoved::None);
    }
    // The one instance that has the state is busy while a call runs: `enter` waits for it, and keeps later calls of the old
    // version out until the new one is in place.
    let failed = |error: TaskError| check_error(old, error.message);
    let mut entered = old.enter(&mut context).await.map_err(failed)?;
    let Some(mut instance) = old.warm.take() else {
        entered.end(None, None);
        succeed(old, new);
        return Ok(StateMoved::None);
    };
    Host::renew(&mut instance.store, context.clone()).map_err(failed)?;
    let (answer, left) = match new.warm.kept() && new.lifecycle().is_some() {
        false => (Ok(StateMoved::Dropped), None),
        true => hand_over(old, instance, new, context).await,
    };
    entered.end(None, None);
    match (&answer, left) {
        (Ok(_), _) => succeed(old, new),
        (Err(_), Some(instance)) => old.keep_warm(instance),
        (Err(_), None) => {}
    }
    answer
}

/// Calls that wait for their turn on the old version go over to the new one as soon as this one's place is free. The new one is told
/// first: each may have been the other's successor, and a call must never go back and forth.
fn succeed(old: &Plugin, new: &Arc<Plugin>) {
    new.warm.serves_again();
    old.warm.succeeded_by(new.clone());
}

/// Moves the state of an instance; with the instance, unless it can serve no more.
async fn hand_over(
    old: &Arc<Plugin>,
    mut from: TaskInstance,
    new: &Arc<Plugin>,
    context: CallContext,
) -> (Result<StateMoved, LoadError>, Option<TaskInstance>) {
    match old.save(&mut from).await {
        Ok(Ok(state)) => (take_over(&state, new, context).await, Some(from)),
        Ok(Err(why)) => (Err(check_error(old, format!("save: {why}"))), Some(from)),
        Err(why) => {
            let why = format!("save: {why}; what it knew is lost");
            (Err(check_error(old, why)), None)
        }
    }
}

async fn take_over(state: &[u8], new: &Arc<Plugin>, context: CallContext) -> Result<StateMoved, LoadError> {
    let mut to = new.fresh(context).await.map_err(|why| check_error(new, why))?;
    new.restore(&mut to, state)
        .await
        .map_err(|why| check_error(new, format!("restore: {why}")))?;
    new.keep_warm(to);
    Ok(StateMoved::Moved(state.len()))
}

fn check_error(plugin: &Plugin, why: String) -> LoadError {
    let manifest = plugin.manifest();
    LoadError::Check {
        name: manifest.name.clone(),
        version: manifest.version.to_string(),
        why,
    }
}

impl Plugin {
    fn lifecycle(&self) -> Option<&LifecycleIndices> {
        match &self.export {
            Export::Task { lifecycle, .. } => lifecycle.as_ref(),
            _ => None,
        }
    }

    async fn fresh(&self, context: CallContext) -> Result<TaskInstance, String> {
        let store = self.store(context).map_err(|error| error.message)?;
        self.timed(self.instantiate(store))
            .await?
            .map_err(|error| error.message)
    }

    /// Asks the plugin whether it can serve; one without `lifecycle` can.
    async fn check(&self, context: CallContext) -> Result<(), LoadError> {
        let Some(indices) = self.lifecycle() else {
            return Ok(());
        };
        let check = async {
            let mut instance = self.fresh(context).await?;
            let guest = indices
                .load(&mut instance.store, &instance.instance)
                .map_err(|e| e.to_string())?;
            let said = guest
                .karman_task_lifecycle()
                .call_check(&mut instance.store)
                .await;
            said.map_err(|error| explain(&instance.store, &error))?
        };
        self.timed(check)
            .await
            .and_then(|said| said)
            .map_err(|why| check_error(self, why))
    }

    /// What the instance says, state or why not.
    ///
    /// # Errors
    /// It trapped or was stopped, and nothing can be asked of it any more.
    async fn save(&self, instance: &mut TaskInstance) -> Result<Result<Vec<u8>, String>, String> {
        let indices = self.lifecycle().expect("asked by the caller");
        let save = async {
            let guest = indices
                .load(&mut instance.store, &instance.instance)
                .map_err(|e| e.to_string())?;
            let said = guest.karman_task_lifecycle().call_save(&mut instance.store).await;
            said.map_err(|error| explain(&instance.store, &error))
        };
        self.timed(save).await?
    }

    async fn restore(&self, instance: &mut TaskInstance, state: &[u8]) -> Result<(), String> {
        let indices = self.lifecycle().expect("asked by the caller");
        let restore = async {
            let guest = indices
                .load(&mut instance.store, &instance.instance)
                .map_err(|e| e.to_string())?;
            let said = guest
                .karman_task_lifecycle()
                .call_restore(&mut instance.store, state)
                .await;
            said.map_err(|error| explain(&instance.store, &error))?
        };
        self.timed(restore).await?
    }

    async fn timed<T>(&self, step: impl Future<Output = T>) -> Result<T, String> {
        let step = pin!(step);
        let step = self.engine.workers().runs().counted(step);
        tokio::time::timeout(self.info.limits.time, step)
            .await
            .map_err(|_| {
                format!(
                    "no answer within {}",
                    karman_types::format_duration(self.info.limits.time)
                )
            })
    }
}

fn explain(store: &Store<Host>, error: &wasmtime::Error) -> String {
    store.data().explain(error).message
}
