//! Devices as a user meets them: what is missing is named, bad drivers harm nobody, a plugin gets what it was granted and no more.
//! What needs Vulkan runs on software where no GPU is (`mesa-vulkan-drivers`), and says so where neither is.

use crate::support::{Home, Ran, guest, root};
use serde_json::Value;

mod hostile;
mod named;
mod programs;

fn lines(ran: &Ran) -> Vec<Value> {
    ran.out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The tool under a Vulkan loader that finds this instead of drivers.
fn with_driver(home: &Home, driver: &str, arguments: &[&str]) -> Ran {
    let mut command = home.command(arguments);
    command
        .env("VK_ICD_FILENAMES", driver)
        .env("VK_DRIVER_FILES", driver)
        .env("LIBGL_ALWAYS_SOFTWARE", "1");
    Ran::of(command.output().unwrap())
}

#[test]
fn a_broken_driver_and_none_are_named_and_the_processor_is_there() {
    let home = Home::new();
    let garbage = home.path().join("driver.json");
    std::fs::write(
        &garbage,
        "{\"ICD\": {\"library_path\": \"/dev/null\", \"api_version\": \"1.3\"}}",
    )
    .unwrap();
    for driver in [garbage.to_str().unwrap(), "/nowhere.json"] {
        let listed = with_driver(&home, driver, &["gpu", "list", "--json"]);
        let found = lines(&listed.ok());
        assert!(found.iter().any(|line| line["id"] == "cpu"), "{found:?}");
        assert!(!found.iter().any(|line| line["api"] == "vulkan"), "{found:?}");
        let vulkan = found
            .iter()
            .find(|line| line["what"] == "vulkan" || line["what"] == "gpu")
            .expect("named");
        assert!(
            vulkan["why"].as_str().unwrap().contains("apt-get") || vulkan["what"] == "gpu",
            "{vulkan}"
        );
        // A device of CUDA, or which of its libraries is not there.
        let is_cuda = |line: &Value| line["api"] == "cuda" || line["what"] == "cuda" || line["what"] == "gpu";
        assert!(found.iter().any(is_cuda), "{found:?}");
        let checked = with_driver(&home, driver, &["gpu", "check", "--device", "vulkan-0"]);
        assert_eq!(checked.code, 4, "{}", checked.stderr);
        assert!(
            checked.stderr.contains("no device `vulkan-0`"),
            "{}",
            checked.stderr
        );
    }
}

#[test]
fn the_processor_passes_its_check() {
    let rows = lines(
        &Home::new()
            .run(["gpu", "check", "--device", "cpu", "--json"])
            .ok(),
    );
    assert!(
        rows.len() >= 10 && rows.iter().all(|row| row["ok"] == true),
        "{rows:?}"
    );
}

const GEMM: &str = r#"kernel={"kernel":"gemm","m":1,"n":2,"k":2}"#;

/// [1 2] times [[1 2] [3 4]].
fn product(home: &Home, on: &str, grants: &[&str], set: &[(&str, &str)]) -> Ran {
    let numbers = [1.0f32, 2.0, 1.0, 2.0, 3.0, 4.0];
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let file = home.path().join("numbers");
    std::fs::write(&file, body).unwrap();
    let (plugin, on) = (guest("gpu"), format!("on={on}"));
    let mut arguments = vec![
        "run",
        plugin.to_str().unwrap(),
        file.to_str().unwrap(),
        "--meta",
        GEMM,
    ];
    arguments.extend(["--meta", "split=8", "--meta", &on]);
    grants
        .iter()
        .for_each(|grant| arguments.extend(["--grant", grant]));
    let mut command = home.command(arguments);
    command.envs(set.iter().copied());
    Ran::of(command.output().unwrap())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

#[test]
fn a_plugin_runs_kernels_where_it_was_granted_them() {
    let home = Home::new();
    assert_eq!(product(&home, "cpu", &[], &[]).code, 3);
    let ran = product(&home, "cpu", &["gpu:kernels"], &[]).ok();
    assert_eq!(floats(&ran.stdout), [7.0, 10.0]);
}

/// A GPU is never served by a processor in silence.
#[test]
fn without_a_gpu_work_fails_or_falls_back_and_says_so() {
    let home = Home::new();
    let off = [("KARMAN_GPU__DEVICE", "off")];
    let refused = product(&home, "gpu", &["gpu:kernels"], &off);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("turned GPUs off"), "{}", refused.stderr);
    let fell = product(&home, "gpu-or-cpu", &["gpu:kernels"], &off).ok();
    assert_eq!(floats(&fell.stdout), [7.0, 10.0]);
    let none = [("KARMAN_GPU__DEVICE", "vulkan-7")];
    let refused = product(&home, "gpu", &["gpu:kernels"], &none);
    assert!(
        refused.code == 4 && refused.stderr.contains("vulkan-7"),
        "{}",
        refused.stderr
    );
}

const DOUBLE: &str = "wgsl=@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) { b[i] = 2.0 * a[i]; }";

#[test]
fn a_plugin_runs_a_shader_of_its_own_on_the_device_that_the_operator_named() {
    let home = Home::new();
    if !hostile::has_vulkan(&home) {
        return;
    }
    let named = [("KARMAN_GPU__DEVICE", "vulkan-0")];
    let ran = product(&home, "gpu", &["gpu:kernels"], &named).ok();
    assert_eq!(floats(&ran.stdout), [7.0, 10.0]);
    let file = home.path().join("four");
    std::fs::write(&file, [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()).unwrap();
    let plugin = guest("gpu");
    let shade = |grant: &str| {
        let arguments = [
            "run",
            plugin.to_str().unwrap(),
            file.to_str().unwrap(),
            "--grant",
            grant,
        ];
        let mut command =
            home.command(
                arguments
                    .into_iter()
                    .chain(["--meta", DOUBLE, "--meta", "outputs=16"]),
            );
        Ran::of(command.envs(named).output().unwrap())
    };
    assert_eq!(shade("gpu:kernels").code, 3);
    assert_eq!(floats(&shade("gpu:shaders").ok().stdout), [2.0, 4.0, 6.0, 8.0]);
}

/// A model of a plugin's own, for the target `gpu` or `cpu`, on the same numbers.
fn classified(home: &Home, model: &str, target: &str, more: &[&str]) -> Ran {
    let file = root().join(format!("tests/models/{model}.onnx"));
    let (infer, target) = (guest("infer"), format!("target={target}"));
    let mut arguments = vec!["run", infer.to_str().unwrap(), file.to_str().unwrap()];
    arguments.extend([
        "--meta",
        &target,
        "--meta",
        "input=image",
        "--meta",
        "shape=1,1,8,8",
    ]);
    arguments.extend(["--grant", "nn-raw:tract"]);
    arguments.extend(more);
    let mut command = home.command(arguments);
    Ran::of(command.env("KARMAN_GPU__DEVICE", "vulkan-0").output().unwrap())
}

/// What the processor answers, the GPU answers, and who asked is told where it ran.
#[test]
fn a_plugins_own_model_runs_on_the_device_that_the_operator_named() {
    let home = Home::new();
    if !hostile::has_vulkan(&home) {
        return;
    }
    let granted = ["--grant", "gpu:kernels"];
    for model in ["digits-s", "digits-m", "digits-l"] {
        let [cpu, gpu] = ["cpu", "gpu"].map(|target| {
            let ran = classified(&home, model, target, &granted).ok();
            floats(&ran.stdout)
        });
        assert_eq!((cpu.len(), gpu.len()), (10, 10));
        let sum: f32 = gpu.iter().sum();
        assert!((sum - 1.0).abs() < 1e-3, "{gpu:?}");
        let far = cpu.iter().zip(&gpu).any(|(cpu, gpu)| (cpu - gpu).abs() > 1e-4);
        assert!(!far, "{model}: {cpu:?} {gpu:?}");
    }
    let told = classified(&home, "digits-s", "gpu", &["--grant", "gpu:kernels", "--json"]).ok();
    let line: Value = serde_json::from_str(&told.out()).unwrap();
    let ran_on = line["ran_on"].as_str().unwrap();
    assert!(ran_on.contains("gpu, vulkan-0"), "{ran_on}");
    // A right to the GPU is a right of its own, and nothing runs on the processor in a kernel's place.
    classified(&home, "digits-s", "gpu", &[]).fails(1, "Security");
    let refused = classified(&home, "digits-l-int8", "gpu", &granted);
    refused.fails(
        1,
        "UnsupportedOperation: the model does not run on target `gpu`: operator `QuantizeLinear`",
    );
}
