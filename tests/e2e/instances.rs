//! Instances that serve again, by the engine alone: their state, their fuel, and the places that they take.

use crate::support::guest;
use karman_engine::{Allocation, CallReport, Engine, EngineOptions, Plugin, Slot, StateMoved};
use karman_package::{Package, ReadLimits, embed};
use karman_types::{
    CallContext, GrantSet, Manifest, NodeId, TaskError, TaskId, TaskRequest, TaskResponse, Tier,
};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any of these calls takes; one that spins ends here.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The plugin of a guest, with something else in its manifest.
fn load(engine: &Engine, name: &str, change: impl FnOnce(&mut Manifest)) -> Arc<Plugin> {
    let file = std::fs::read(guest(name)).unwrap();
    let package = Package::read(&file, &ReadLimits::default()).unwrap();
    let mut manifest = package.manifest.unwrap();
    change(&mut manifest);
    let file = embed(&file, &manifest).unwrap();
    let none = GrantSet::default();
    engine
        .load(&file, &none, |world| Manifest::foreign(name, world))
        .unwrap()
}

fn context() -> CallContext {
    CallContext {
        task: TaskId::from_parts(0, fastrand::u128(..)),
        attempt: 1,
        idempotency_key: None,
        within: None,
        node: NodeId::of_key(b"here"),
        tier: Tier::Edge,
        chain: Arc::default(),
    }
}

fn order(text: &str) -> TaskRequest {
    TaskRequest {
        body: text.to_owned().into(),
        ..TaskRequest::default()
    }
}

async fn said(call: impl Future<Output = Result<(TaskResponse, CallReport), TaskError>>) -> String {
    let (response, _) = tokio::time::timeout(TOO_LONG, call).await.unwrap().unwrap();
    String::from_utf8(response.body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_version_that_takes_over_again_goes_on_with_the_state() {
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let (first, second) = (load(&engine, "warm", |_| {}), load(&engine, "warm-v2", |_| {}));
    let slot = Slot::new(first.clone(), context()).await.unwrap();
    let count = || said(slot.call(order(""), context()));
    assert_eq!(count().await, "v1 1");
    for (version, says) in [
        (&second, "v2 2"),
        (&first, "v1 3"),
        (&second, "v2 4"),
        (&first, "v1 5"),
    ] {
        let moved = slot.upgrade(version.clone(), context()).await.unwrap();
        assert_eq!(moved, StateMoved::Moved(8));
        assert_eq!(count().await, says);
    }
    // Who has waited for the one that was taken back is served by the other.
    assert_eq!(said(second.call(order(""), context())).await, "v1 6");
    // It does not take over from itself.
    let moved = slot.upgrade(first, context()).await.unwrap();
    assert_eq!((moved, count().await.as_str()), (StateMoved::None, "v1 7"));
}

#[tokio::test]
async fn each_call_of_a_warm_instance_has_its_own_fuel() {
    const FUEL: u64 = 1_000_000;
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let plugin = load(&engine, "warm", |manifest| manifest.limits.fuel = Some(FUEL));
    let mut used = Vec::new();
    loop {
        let (_, report) = plugin.call(order(""), context()).await.unwrap();
        used.push(report.fuel);
        if used.iter().sum::<u64>() > 2 * FUEL {
            break;
        }
    }
    // The first made the instance as well; the others do the same work, each its own.
    let (least, most) = (used[1..].iter().min().unwrap(), used[1..].iter().max().unwrap());
    assert!(*least > 0 && *most < 2 * least, "{least} to {most}");
}

#[tokio::test]
async fn instances_that_wait_keep_no_call_from_its_place() {
    let allocation = Allocation::Pool {
        slots: 16,
        keeps: 64 << 10,
    };
    let engine = Engine::new(EngineOptions {
        allocation: Some(allocation),
        ..EngineOptions::default()
    })
    .unwrap();
    let plugins = (0..6).map(|n| {
        load(&engine, "hostile", |manifest| {
            manifest.name = format!("guest-{n}");
            manifest.warm = true;
        })
    });
    // Together they would keep more instances than there are places.
    for plugin in plugins.collect::<Vec<_>>() {
        let calls = (0..6).map(|_| {
            let plugin = plugin.clone();
            tokio::spawn(async move { said(plugin.call(order("sleep 50"), context())).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), "slept 50 ms");
        }
        // One that waits serves the next.
        let made = plugin.stats().cold_starts();
        said(plugin.call(order("count"), context())).await;
        assert_eq!(plugin.stats().cold_starts(), made);
    }
}
