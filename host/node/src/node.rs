use crate::config::NodeConfig;
use crate::contacts::Contacts;
use crate::drive::{
    Bundles, Calls, Federated, JoinOptions, Lent, Links, Split, TaskStatus, Tasks, go_on, hand_on, join,
    resume_all,
};
use crate::listener::{Listener, ShutDown, serve_control, serve_public};
use crate::logs::LogRing;
use crate::plugins::{PluginStatus, Plugins};
use crate::runtime::{Runtime, RuntimeOptions};
use crate::services::blocking;
use karman_engine::Machine;
use karman_mesh::Mesh;
use karman_mesh::membership::UnixTime;
use karman_types::TaskError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

/// A running node. Cheap to clone.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

pub(crate) struct Inner {
    runtime: Runtime,
    machine: Machine,
    calls: Arc<Calls>,
    tasks: Tasks,
    mesh: OnceLock<Mesh>,
    plugins: Arc<Plugins>,
    lent: Lent,
    bundles: Arc<Bundles>,
    links: Links,
    split: Split,
    federated: Federated,
    logs: LogRing,
    /// Since it answers, what tells it to stop.
    ready: Mutex<Option<ShutDown>>,
}

/// The status of a node, as it reports it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// Where it stands.
    pub tier: String,
    /// How instances get their memory.
    pub allocation: String,
    /// The mesh that it belongs to, in short.
    pub mesh: Option<String>,
    /// Whether it was taken out of service.
    pub drained: bool,
    /// Why its disk does not take what is to be kept, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its plugins.
    pub plugins: Vec<PluginStatus>,
}

impl Node {
    /// Opens the node's folder and loads the plugins that it holds.
    ///
    /// # Errors
    /// `unavailable` when another node holds the folder; `internal` when something in the folder is damaged or the engine cannot start.
    pub async fn start(
        config: NodeConfig,
        options: RuntimeOptions,
        logs: LogRing,
    ) -> Result<Self, TaskError> {
        let plugins = Plugins::new();
        let calls = Arc::new(Calls::new(Arc::downgrade(&plugins)));
        let runtime = Runtime::new(config, options, Some(calls.clone()))?;
        let home = runtime.home().clone();
        // Before anybody reads or writes there.
        blocking(move || {
            home.store()?.compact();
            Ok(())
        })
        .await?;
        let models = runtime.models().clone();
        // A node that nobody attends to starts whatever its GPU cannot run.
        if let Err(error) = blocking(move || models.look_for_unfit()).await {
            tracing::warn!(%error, "which models cannot run on the GPU is not known");
        }
        // That takes a while where a driver is slow to answer.
        tokio::spawn(runtime.models().clone().look_for_gpu());
        plugins.start(runtime.clone()).await?;
        let tasks = Tasks::start(runtime.clone(), plugins.clone(), runtime.config().tasks.clone())?;
        if let Err(error) = tasks.check_policy() {
            tracing::warn!(%error, "`[policies] select`: what names no policy itself fails until it is here");
        }
        if let Err(error) = tasks.check_route() {
            tracing::warn!(%error, "`[policies] route`: the default decides until it is here");
        }
        if let Err(error) = tasks.check_place() {
            tracing::warn!(%error, "`[policies] place`: FATE decides until it is here");
        }
        let machine = Machine::probe();
        let bundles = Arc::new(Bundles::new(Contacts::new(runtime.config().mesh.clone())));
        Ok(Self(Arc::new(Inner {
            split: Split::new(&runtime, machine.memory),
            federated: Federated::default(),
            runtime,
            machine,
            calls,
            tasks,
            mesh: OnceLock::new(),
            plugins,
            lent: Lent::default(),
            bundles,
            links: Links::default(),
            logs,
            ready: Mutex::default(),
        })))
    }

    /// Takes the node into its mesh, if it belongs to one or is invited.
    ///
    /// # Errors
    /// `denied` when the invitation or membership does not hold, `unavailable` when the network is not there.
    pub async fn join(&self, options: JoinOptions) -> Result<Option<&Mesh>, TaskError> {
        let Some(mesh) = join(self, options)? else {
            return Ok(None);
        };
        let routes = Arc::downgrade(self.0.tasks.routes());
        self.0.calls.join(mesh.clone(), routes);
        self.0.tasks.join(mesh.clone(), self.downgrade());
        let mesh = self.0.mesh.get_or_init(|| mesh);
        mesh.announce().await;
        tokio::spawn(hand_on(self.downgrade()));
        tokio::spawn(resume_all(self.downgrade()));
        Ok(Some(mesh))
    }

    /// Answers on the address of the configuration, and to its operator, until the shutdown. `up` is told the address.
    ///
    /// # Errors
    /// When the address or the operator's socket cannot be taken.
    pub async fn serve(&self, shut_down: &ShutDown, up: impl FnOnce(SocketAddr)) -> Result<(), TaskError> {
        let listener = Listener::bind(self.runtime().config().listen).await?;
        let address = listener
            .address()
            .map_err(|error| TaskError::internal(error.to_string()))?;
        self.attend(shut_down).await?;
        up(address);
        serve_public(listener, self.clone(), shut_down).await;
        self.leave_off().await;
        Ok(())
    }

    /// Answers to its operator until the shutdown, and counts as ready. For a door of another kind than
    /// [`serve`](Self::serve)'s, which calls [`leave_off`](Self::leave_off) when it has closed.
    ///
    /// # Errors
    /// When the operator's socket cannot be taken.
    pub async fn attend(&self, shut_down: &ShutDown) -> Result<(), TaskError> {
        serve_control(self.clone(), shut_down.clone()).await?;
        *self.0.ready.lock() = Some(shut_down.clone());
        go_on(&self.downgrade());
        Ok(())
    }

    /// Takes the operator's socket away, for the process may end before the task that answered there has cleaned up; writes down what
    /// was decided; and leaves the mesh.
    pub async fn leave_off(&self) {
        *self.0.ready.lock() = None;
        let _ = std::fs::remove_file(self.runtime().home().control_socket());
        self.tasks().decisions().close().await;
        if let Some(mesh) = self.mesh() {
            mesh.leave().await;
        }
    }

    /// The engine and what is behind it.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The plugins that it holds.
    pub fn plugins(&self) -> &Arc<Plugins> {
        &self.0.plugins
    }

    /// The mesh that it belongs to.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.0.mesh.get()
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.0.machine
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    pub(crate) fn lent(&self) -> &Lent {
        &self.0.lent
    }

    pub(crate) fn bundles(&self) -> &Arc<Bundles> {
        &self.0.bundles
    }

    pub(crate) fn links(&self) -> &Links {
        &self.0.links
    }

    pub(crate) fn split(&self) -> &Split {
        &self.0.split
    }

    pub(crate) fn federated(&self) -> &Federated {
        &self.0.federated
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// The accepted tasks that it knows of.
    pub fn accepted_tasks(&self) -> Vec<TaskStatus> {
        self.tasks().list()
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn upgrade(node: &Weak<Inner>) -> Option<Self> {
        node.upgrade().map(Self)
    }

    /// Its last events.
    pub fn logs(&self) -> &LogRing {
        &self.0.logs
    }

    /// Whether it takes work: from [`attend`](Self::attend) on, until the shutdown begins or it is taken out of service, as long as its
    /// disk takes what is to be kept.
    pub fn is_ready(&self) -> bool {
        self.not_ready().is_none()
    }

    /// Why it takes no work, in a few words.
    pub fn not_ready(&self) -> Option<String> {
        let stops = self.0.ready.lock().as_ref().map(ShutDown::has_started);
        match stops {
            None => Some("starting".into()),
            Some(true) => Some("stopping".into()),
            Some(false) if self.is_drained() => Some("drained".into()),
            Some(false) => self.trouble(),
        }
    }

    /// Why nothing but a new start helps it, in a few words: for supervisors, which then start it again.
    pub fn not_live(&self) -> Option<String> {
        self.runtime().home().store().ok()?.shut()
    }

    /// Whether it was taken out of service.
    pub fn is_drained(&self) -> bool {
        self.tasks().draining()
    }

    /// Why the disk does not take what is to be kept, if it does not.
    pub fn trouble(&self) -> Option<String> {
        self.runtime().home().store().ok()?.trouble()
    }

    /// The newest time that it has seen: where the clock shows an earlier one, it was reset.
    ///
    /// # Errors
    /// What the store says.
    pub fn newest_time(&self) -> Result<UnixTime, TaskError> {
        let store = self.runtime().home().store()?;
        let newest = store.mesh().time_floor(0)?;
        Ok(UnixTime::from_seconds(newest))
    }

    /// Waits until its shutdown begins.
    pub(crate) async fn stops(&self) {
        let shut_down = self.0.ready.lock().clone();
        if let Some(shut_down) = shut_down {
            shut_down.started().await;
        }
    }

    /// What it says of itself.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.runtime().id().to_string(),
            tier: self.tier().to_string(),
            allocation: self.runtime().engine().allocation().to_string(),
            mesh: self.mesh().map(|mesh| mesh.standing().mesh().short()),
            drained: self.is_drained(),
            trouble: self.trouble(),
            plugins: self.plugins().list(),
        }
    }
}
