use super::*;
use karman_types::ErrorKind;
use std::os::unix::fs::PermissionsExt;

fn order(place: Place) -> Order {
    Order {
        tenant: "one".into(),
        work: Asked::Kernel(r#"{"kernel": "map", "length": 1, "steps": []}"#.into()),
        inputs: vec![vec![0; 4]],
        place,
        within: Duration::from_millis(100),
    }
}

/// The driver of this node answers nobody. It is asked once, and each call waits for it as long as it has time.
#[tokio::test]
async fn a_driver_that_hangs_holds_up_no_call_beyond_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (program, here) = (folder.path().join("driver"), folder.path().display());
    let script =
        format!("#!/bin/sh\necho asked >> {here}/log\nwhile [ -e {here}/log ]; do sleep 0.05; done\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let compute = NodeCompute::new(GpuConfig::default(), Some(program), folder.path().join("tiles"));
    for place in [Place::Gpu, Place::GpuOrCpu, Place::Gpu] {
        let late = compute.clone().run(order(place)).await.unwrap_err();
        assert_eq!(late.kind, ErrorKind::Deadline, "{late}");
    }
    let done = compute.clone().run(order(Place::Cpu)).await;
    assert!(done.is_ok(), "{done:?}");
    let log = folder.path().join("log");
    while !log.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(std::fs::read_to_string(log).unwrap(), "asked\n");
}
