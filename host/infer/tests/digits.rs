//! The digit classifiers of `tests/models` on every back-end that is here: the accuracy that `models.json` records, and the
//! same answers from each.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::backends;
use karman_infer::graph::{CutError, Graph};
use karman_infer::{
    BackendName, BackendOptions, Backends, InferError, LoadOptions, Model, ModelLimits, UseOnnxRuntime,
};
use karman_tensor::Tensor;
use karman_types::ByteSize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// Every held-out digit with its label.
fn digits() -> Vec<(usize, Vec<f32>)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(tests().join("data/digits"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let label = name.split('-').nth(1).unwrap().parse().unwrap();
            let mut reader = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()))
                .read_info()
                .unwrap();
            let mut pixels = vec![0; 64];
            reader.next_frame(&mut pixels).unwrap();
            (label, pixels.iter().map(|p| f32::from(*p) / 255.0).collect())
        })
        .collect()
}

fn models() -> Vec<(Value, Vec<u8>)> {
    let record: Value =
        serde_json::from_slice(&std::fs::read(tests().join("models/models.json")).unwrap()).unwrap();
    let load = |model: &Value| {
        let path = tests().join("models").join(model["file"].as_str().unwrap());
        (model.clone(), std::fs::read(path).unwrap())
    };
    record["models"].as_array().unwrap().iter().map(load).collect()
}

/// The outputs of each digit, one by one: [digit][output][class].
fn run(model: &Arc<dyn Model>, digits: &[(usize, Vec<f32>)]) -> Vec<Vec<Vec<f32>>> {
    digits
        .iter()
        .map(|(_, image)| {
            let image = Tensor::from_slice([1, 1, 8, 8], image).unwrap();
            let outputs = model.run(vec![("image".into(), image)]).unwrap();
            outputs.iter().map(|(_, t)| t.view().unwrap().to_vec()).collect()
        })
        .collect()
}

fn best(scores: &[f32]) -> usize {
    (0..scores.len())
        .max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
        .unwrap()
}

/// Without it these tests would pass over a library that is broken.
#[test]
fn a_library_that_is_named_loads() {
    if std::env::var_os("KARMAN_ONNXRUNTIME").is_some() {
        backends().get(Some(BackendName::OnnxRuntime)).unwrap();
    }
}

#[test]
fn the_recorded_accuracy_is_reached() {
    let (backends, digits) = (backends(), digits());
    for (record, bytes) in models() {
        for (name, backend) in backends.all() {
            let Ok(backend) = backend.inspect_err(|error| println!("skipped: {error}")) else {
                continue;
            };
            let model = backend.load(&bytes, &LoadOptions::default()).unwrap();
            let start = Instant::now();
            let answers = run(&model, &digits);
            let each = start.elapsed() / digits.len() as u32;
            for (exit, recorded) in record["exits"].as_array().unwrap().iter().enumerate() {
                let hits = answers
                    .iter()
                    .zip(&digits)
                    .filter(|(a, d)| best(&a[exit]) == d.0)
                    .count();
                println!(
                    "{} {name} {}: {hits}/{}",
                    record["name"],
                    recorded["output"],
                    digits.len()
                );
                assert_eq!(model.outputs()[exit].name, recorded["output"]);
                assert_eq!(hits, recorded["correct"], "{} on {name}", record["name"]);
            }
            println!("{} {name}: {each:?} a digit", record["name"]);
        }
    }
}

#[test]
fn a_model_up_to_an_exit_answers_as_that_exit_does_and_computes_no_more() {
    let (backends, digits) = (backends(), digits());
    let (record, bytes) = models()
        .into_iter()
        .find(|(record, _)| record["name"] == "digits-l")
        .unwrap();
    let limits = ModelLimits::default();
    let whole = Graph::read(bytes, &limits).unwrap();
    let (last, early) = record["exits"].as_array().unwrap().split_last().unwrap();
    let answer = last["output"].as_str().unwrap();
    assert_eq!(early.len(), 2);
    for exit in early {
        let output = exit["output"].as_str().unwrap();
        let file = whole.up_to(output, answer).unwrap();
        let cut = Graph::read(file.clone(), &limits).unwrap();
        assert!(cut.macs().at(1) <= exit["macs"].as_u64().unwrap());
        assert!(cut.parameters() < whole.parameters());
        for (name, backend) in backends.all() {
            let Ok(backend) = backend else { continue };
            let model = backend.load(&file, &LoadOptions::default()).unwrap();
            let gives: Vec<&str> = model.outputs().iter().map(|info| info.name.as_str()).collect();
            assert_eq!(gives, [answer]);
            let answers = run(&model, &digits);
            let right = answers.iter().zip(&digits).filter(|(a, d)| best(&a[0]) == d.0);
            assert_eq!(right.count(), exit["correct"], "{output} on {name}");
        }
    }
    assert!(matches!(
        whole.up_to("exit_9", answer),
        Err(CutError::Output { .. })
    ));
    assert!(matches!(whole.up_to(answer, answer), Err(CutError::Exit { .. })));
}

#[test]
fn a_batch_that_would_take_too_much_memory_is_refused_before_it_runs() {
    let options = LoadOptions {
        limits: ModelLimits {
            run: ByteSize::mib(4),
            ..ModelLimits::default()
        },
        ..LoadOptions::default()
    };
    let (_, bytes) = models()
        .into_iter()
        .find(|(record, _)| record["name"] == "digits-l")
        .unwrap();
    for (name, backend) in backends().all() {
        let Ok(backend) = backend.inspect_err(|error| println!("skipped: {error}")) else {
            continue;
        };
        let model = backend.load(&bytes, &options).unwrap();
        let run = |items: u32| {
            let images = vec![0f32; items as usize * 64];
            let images = Tensor::from_slice([items, 1, 8, 8], &images).unwrap();
            model.run(vec![("image".into(), images)])
        };
        assert!(run(1).is_ok(), "{name}");
        let error = run(4096).unwrap_err();
        assert!(
            matches!(error, InferError::Limit { limit: "run", .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn the_back_ends_agree() {
    let (backends, digits) = (backends(), digits());
    if let Err(error) = backends.get(Some(BackendName::OnnxRuntime)) {
        println!("skipped, nothing to compare with: {error}");
        return;
    }
    for (record, bytes) in models() {
        let [a, b] = [BackendName::OnnxRuntime, BackendName::Tract].map(|name| {
            let backend = Some(name);
            let options = LoadOptions {
                backend,
                ..LoadOptions::default()
            };
            let model = backends.load(&bytes, &options).unwrap();
            assert_eq!(model.backend(), name);
            (
                model.inputs().to_vec(),
                model.outputs().to_vec(),
                run(&model, &digits),
            )
        });
        assert_eq!((a.0, a.1), (b.0, b.1));
        let worst = (a.2.iter().flatten().flatten())
            .zip(b.2.iter().flatten().flatten())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        println!("{}: max |difference| {worst:e}", record["name"]);
        assert!(worst <= 1e-4, "{}: {worst}", record["name"]);
    }
}

#[test]
fn a_batch_is_its_digits_one_by_one() {
    let (backends, digits) = (backends(), digits());
    let (_, bytes) = models().pop().unwrap();
    for (name, backend) in backends.all() {
        let Ok(backend) = backend else { continue };
        let model = backend.load(&bytes, &LoadOptions::default()).unwrap();
        for size in [1usize, 2, 7, 32, 3, 7] {
            let pixels: Vec<f32> = digits[..size]
                .iter()
                .flat_map(|(_, image)| image.clone())
                .collect();
            let batch = Tensor::from_slice([size as u32, 1, 8, 8], &pixels).unwrap();
            let outputs = model.run(vec![("image".into(), batch)]).unwrap();
            for (exit, (_, probabilities)) in outputs.iter().enumerate() {
                assert_eq!(probabilities.shape().dims(), [size as u32, 10]);
                let rows = probabilities.view::<f32>().unwrap().chunks(10);
                for (row, alone) in rows.zip(run(&model, &digits[..size])) {
                    let off = row
                        .iter()
                        .zip(&alone[exit])
                        .map(|(a, b)| (a - b).abs())
                        .fold(0.0, f32::max);
                    assert!(off <= 1e-5, "{name}: {off}");
                }
            }
        }
    }
}

#[test]
fn one_model_serves_many_threads() {
    let (backends, digits) = (backends(), digits());
    let (_, bytes) = models().remove(0);
    for (_, backend) in backends.all() {
        let Ok(backend) = backend else { continue };
        let sessions = 2.try_into().unwrap();
        let model = backend
            .load(
                &bytes,
                &LoadOptions {
                    sessions,
                    ..LoadOptions::default()
                },
            )
            .unwrap();
        let expected = run(&model, &digits[..50]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(run(&model, &digits[..50]), expected));
            }
        });
    }
}

#[test]
fn a_missing_library_is_said() {
    let backends = Backends::detect(&BackendOptions {
        onnxruntime: UseOnnxRuntime::At("/nowhere/libonnxruntime.so".into()),
        ..BackendOptions::default()
    });
    let error = backends.get(Some(BackendName::OnnxRuntime)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "onnxruntime is not available: there is no /nowhere/libonnxruntime.so: correct the path"
    );
    assert_eq!(backends.get(None).unwrap().name(), BackendName::Tract);
}

#[test]
fn the_eight_bit_twin_knows_its_digits_on_every_back_end() {
    let (backends, digits) = (backends(), digits());
    let bytes = std::fs::read(tests().join("models/digits-l-int8.onnx")).unwrap();
    for (name, backend) in backends.all() {
        let Ok(backend) = backend else { continue };
        let model = backend.load(&bytes, &LoadOptions::default()).unwrap();
        let answers = run(&model, &digits);
        for (exit, least) in [430, 444, 441].into_iter().enumerate() {
            let hits = answers
                .iter()
                .zip(&digits)
                .filter(|(a, d)| best(&a[exit]) == d.0)
                .count();
            println!("digits-l-int8 {name} {}: {hits}", model.outputs()[exit].name);
            // Back-ends round in different places.
            assert!(hits + 5 >= least, "{name}: {hits} of {least}");
        }
    }
}
