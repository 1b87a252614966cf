use crate::app::App;
use crate::commands::node::Up;
use crate::commands::serve;
use crate::logging;
use crate::supervisor;
use clap::Args;
use karman_gateway::{GatewayConfig, Right, TlsConfig};
use karman_types::TaskError;
use serde_json::json;
use std::path::PathBuf;

/// `karman gateway`
#[derive(Args, Debug)]
pub(crate) struct Gateway {
    #[command(flatten)]
    up: Up,
    /// What takes no token, such as infer:*; besides what `gateway.open` of node.toml says; may be given again
    #[arg(long = "open", value_name = "RIGHT")]
    open: Vec<Right>,
    /// The certificate to show, PEM [default: `gateway.tls` or `gateway.acme` of node.toml; plain HTTP without one]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

impl Gateway {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let (ring, _lines) = logging::start_node(app)?;
        let config = self.up.config(app)?;
        let gateway = self.config(GatewayConfig::of(&config)?);
        let is_closed = config.listen.ip().is_loopback() && !self.up.says_where();
        let keys = app.keys()?;
        serve::threads()?.block_on(async {
            let node = self.up.start(app, config, ring).await?;
            let shut_down = serve::stop_by_signal()?;
            let status = node.status();
            let gateway = karman_gateway::Gateway::new(node.clone(), keys.node().public(), gateway);
            let up = |url: &str| {
                supervisor::watched(&node, &shut_down);
                let id = status.node.get(..8).unwrap_or(&status.node);
                app.output
                    .note(format!("gateway {id} ({}) on {url}", status.tier));
                if is_closed {
                    let note = "only this machine reaches it: `--listen 0.0.0.0:8080` opens it, with a certificate beside it";
                    app.output.note(note);
                }
                if app.output.json {
                    let _ = app
                        .output
                        .line(json!({ "node": status.node, "tier": status.tier, "url": url }));
                }
            };
            gateway.serve(&shut_down, up).await
        })
    }

    fn config(&self, mut config: GatewayConfig) -> GatewayConfig {
        config.open.extend(self.open.iter().cloned());
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            config.tls = Some(TlsConfig {
                certificate: certificate.clone(),
                key: key.clone(),
            });
            config.acme = None;
        }
        config
    }
}
