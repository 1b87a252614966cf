//! What changes a node's plugins, while its store is busy.

use super::*;
use crate::config::NodeConfig;
use crate::runtime::RuntimeOptions;
use serde::{Serialize, Serializer};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// So long the store stays busy where nobody says that it has been enough: the test has failed then.
const TOO_LONG: Duration = Duration::from_secs(20);

/// A record whose writing takes until somebody says that it has been enough. Meanwhile nobody else writes.
struct Busy {
    begun: Sender<()>,
    enough: Receiver<()>,
    was_told: Sender<bool>,
}

impl Serialize for Busy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let _ = self.begun.send(());
        let _ = self.was_told.send(self.enough.recv_timeout(TOO_LONG).is_ok());
        serializer.serialize_unit()
    }
}

fn command() -> Vec<u8> {
    let text = r#"(component
        (core module $m (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#;
    wat::parse_str(text).unwrap()
}

/// Does a change while the store is busy, on the one thread that the runtime has, which has to go on meanwhile.
async fn while_the_store_is_busy<T: Send + 'static>(
    plugins: &Arc<Plugins>,
    change: impl Future<Output = Result<T, TaskError>> + Send + 'static,
) -> T {
    let store = plugins.runtime().home().store().unwrap();
    let (begun, begins) = channel();
    let (enough, told) = channel();
    let (was_told, heard) = channel();
    let busy = Busy {
        begun,
        enough: told,
        was_told,
    };
    let writer = std::thread::spawn(move || store.mesh().put("busy", &busy).unwrap());
    begins.recv().unwrap();
    let mut change = tokio::spawn(change);
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut change).await;
    assert!(waited.is_err(), "it is done before it can be on the disk");
    let _ = enough.send(());
    assert!(
        heard.recv().unwrap(),
        "the thread of the network waited for the disk"
    );
    let done = change.await.unwrap().unwrap();
    writer.join().unwrap();
    done
}

#[tokio::test]
async fn no_thread_of_the_network_waits_for_the_disk_while_plugins_change() {
    let folder = tempfile::tempdir().unwrap();
    let options = RuntimeOptions {
        state: folder.path().join("state"),
        cache: folder.path().join("cache"),
        program: None,
    };
    let plugins = Plugins::new();
    let runtime = Runtime::new(NodeConfig::default(), options, None).unwrap();
    plugins.start(runtime.clone()).await.unwrap();

    let here = plugins.clone();
    let deploy = async move { here.deploy(command(), "hello", DeployOptions::default()).await };
    let deployed = while_the_store_is_busy(&plugins, deploy).await;
    assert_eq!((&deployed.name[..], deployed.replaced), ("hello", None));
    let store = runtime.home().store().unwrap();
    assert_eq!(store.plugins().list().unwrap()[0].name, "hello");

    let here = plugins.clone();
    let asked: Grant = "kv:road".parse().unwrap();
    let grant = async move { here.grant("hello", &[asked], false).await };
    let held = while_the_store_is_busy(&plugins, grant).await;
    assert!(held.is_empty(), "it asks for nothing");

    let here = plugins.clone();
    while_the_store_is_busy(&plugins, async move { here.undeploy("hello").await }).await;
    assert!(store.plugins().list().unwrap().is_empty() && plugins.list().is_empty());
}
