//! What a node answers: HTTP plugins, tasks, health and metrics on its address; its operator on a socket in its folder.

mod answer;
mod awake;
mod connections;
mod control;
mod events;
mod extract;
mod fed;
mod flows;
mod held;
mod mesh;
mod metrics;
mod models;
mod pages;
mod plugin;
mod public;
mod stream;
mod tasks;
mod threads;

pub use answer::{Refusal, error_json, error_status};
pub use awake::Awake;
pub use connections::{Listener, ShutDown};
pub(crate) use control::serve_control;
pub use extract::{InPath, InQuery};
pub use pages::{is_of_another_page, must_name_one_host, other_host, plain_host, set_apart};
pub use plugin::serve_plugin;
pub(crate) use public::serve_public;
pub use public::{health, plugin_path};
pub use threads::attend;
