use crate::access::{Access, Revoked};
use crate::config::GatewayConfig;
use crate::connections::Door;
use crate::pipeline::Pipeline;
use karman_node::{Node, ShutDown};
use karman_package::PublicKey;
use karman_types::TaskError;
use std::sync::Arc;

/// The door of a node that callers from outside come in by, in the place of its plain one.
pub struct Gateway {
    node: Node,
    config: GatewayConfig,
    pipeline: Arc<Pipeline>,
}

impl Gateway {
    /// A door for this node. Tokens that the node's own key signed are taken, `node_key` is its public half.
    pub fn new(node: Node, node_key: [u8; 32], config: GatewayConfig) -> Self {
        let keys = std::iter::once(PublicKey::from_bytes(node_key)).chain(config.token_keys.iter().copied());
        let revoked = Revoked::of(node.runtime().home().folder());
        let (open, failed) = (config.open.clone(), config.limits.failed_tokens);
        let access = Access::new(keys.collect(), open, config.open_limits, revoked, failed);
        Self {
            pipeline: Arc::new(Pipeline::new(node.clone(), &config, access)),
            node,
            config,
        }
    }

    /// Answers callers on the node's address, and its operator on the socket in its folder, until the shutdown. `up` is told
    /// where callers reach it.
    ///
    /// # Errors
    /// `unavailable` when the address cannot be taken, `invalid` when the certificate does not read; what the store says.
    pub async fn serve(&self, shut_down: &ShutDown, up: impl FnOnce(&str)) -> Result<(), TaskError> {
        let door = Door::open(self.node.runtime().config().listen, &self.config).await?;
        let url = door.url()?;
        self.pipeline.access.seen(self.node.newest_time()?);
        self.node.attend(shut_down).await?;
        self.pipeline.sites.warn_of_missing(&self.node);
        self.pipeline.metrics.count_connections(door.connections());
        up(&url);
        let pipeline = self.pipeline.clone();
        door.serve(
            move |request, busy, peer| pipeline.clone().answer(request, busy, peer),
            shut_down,
        )
        .await;
        self.node.leave_off().await;
        Ok(())
    }
}
