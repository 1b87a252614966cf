//! The API gateway: inference over REST and gRPC, tasks, HTTP plugins, for every model and task of a mesh.
//!
//! A [`Gateway`] stands before a [`Node`](karman_node::Node): callers use it instead of the node's plain listener. A request comes on a
//! connection (`connections`), its caller is authenticated (`access`), its body is read within bounds (`body`), it is admitted or
//! refused (`admission`), and then the node answers: what runs where is decided there, and reported in headers.
//!
//! | file | what |
//! |---|---|
//! | `gateway` | the gateway as a whole |
//! | `connections` | who is connected, TLS, and who must make room |
//! | `pipeline`, `target` | one request from head to head, and what it is for |
//! | `access` | tokens, rights, rates |
//! | `admission`, `body` | what runs and is held at once |
//! | `routes`, `openapi` | what there is to ask for, and its description |
//! | `inference` | the Open Inference Protocol v2 |
//! | `health` | whether it answers, as probes of gRPC ask |
//! | `admin`, `decisions`, `dashboard` | how the mesh is run, and what people see of it |
//! | `hosts`, `cors` | by what name it is asked for, and by whose pages |
//! | `proxies` | who asks by way of a reverse proxy |
//! | `sites` | which HTTP plugin answers there |
//! | `headers` | the headers in which a response says who ran what, and why |
//! | `refusal`, `metrics`, `pipeline`, `line`, `span`, `prompt` | what every response shares |
//! | `config` | the table `[gateway]` of node.toml |
//!
//! ```
//! use karman_gateway::{AccessTerms, AccessToken, CallerLimits};
//! use karman_mesh::membership::UnixTime;
//! use karman_package::PublicKey;
//! use std::time::Duration;
//!
//! # let pair = ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([7; 32]));
//! # let (seed, public) = ([7; 32], *pair.pk);
//! let now = UnixTime::from_seconds(1_800_000_000);
//! let terms = AccessTerms {
//!     name: "sensor-7".into(),
//!     rights: vec!["infer:digits-*".parse()?],
//!     not_after: now.after(Duration::from_secs(3600)),
//!     limits: CallerLimits { rate: Some(50), ..CallerLimits::default() },
//! };
//! let text = AccessToken::issue(&seed, &terms, now)?;
//! let token = AccessToken::read(&text, &[PublicKey::from_bytes(public)])?;
//! assert_eq!(token.terms, terms);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod admin;
mod admission;
mod body;
mod config;
mod connections;
mod cors;
mod dashboard;
mod decisions;
mod gateway;
mod headers;
mod health;
mod hosts;
mod inference;
mod line;
mod metrics;
mod openapi;
mod pipeline;
mod prompt;
mod proxies;
mod refusal;
mod routes;
mod sites;
mod span;
mod target;

pub use access::{AccessTerms, AccessToken, CallerLimits, Revoked, Right, RightError, TokenError};
pub use config::{
    AcmeConfig, ExternalAccount, GatewayConfig, GatewayLimits, Network, NetworkError, RouteConfig, TlsConfig,
};
pub use gateway::Gateway;
pub use inference::weigh_infer_request;
