use crate::config::NodeConfig;
use crate::listener::{Listener, ShutDown, serve_control, serve_public};
use crate::logs::LogRing;
use crate::plugins::{PluginStatus, Plugins};
use crate::runtime::{Runtime, RuntimeOptions};
use crate::services::NodeTasks;
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A running node. Cheap to clone.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    plugins: Arc<Plugins>,
    logs: LogRing,
    ready: AtomicBool,
}

/// What a node says of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// Where it stands.
    pub tier: String,
    /// How instances get their memory.
    pub allocation: String,
    /// Its plugins.
    pub plugins: Vec<PluginStatus>,
}

impl Node {
    /// Opens the node's folder and loads the plugins that it holds.
    ///
    /// # Errors
    /// `unavailable` when another node holds the folder, `internal` when something in it is damaged or the engine cannot
    /// start.
    pub async fn start(
        config: NodeConfig,
        options: RuntimeOptions,
        logs: LogRing,
    ) -> Result<Self, TaskError> {
        let plugins = Plugins::new();
        let tasks = Arc::new(NodeTasks(Arc::downgrade(&plugins)));
        let runtime = Runtime::new(config, options, Some(tasks))?;
        plugins.start(runtime.clone()).await?;
        Ok(Self(Arc::new(Inner {
            runtime,
            plugins,
            logs,
            ready: AtomicBool::new(false),
        })))
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
        serve_control(self.clone(), shut_down.clone()).await?;
        self.0.ready.store(true, Ordering::Relaxed);
        up(address);
        serve_public(listener, self.clone(), shut_down).await;
        // The process may end before the task that answered there has cleaned up.
        let _ = std::fs::remove_file(self.runtime().home().control_socket());
        Ok(())
    }

    /// The engine and what is behind it.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The plugins that it holds.
    pub fn plugins(&self) -> &Plugins {
        &self.0.plugins
    }

    /// Its last events.
    pub fn logs(&self) -> &LogRing {
        &self.0.logs
    }

    /// Whether it answers.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// What it says of itself.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.runtime().id().to_string(),
            tier: self.runtime().config().tier.to_string(),
            allocation: self.runtime().engine().allocation().to_string(),
            plugins: self.plugins().list(),
        }
    }
}
