//! Requests to a model that wait at the same time, run as one.

use super::*;
use std::thread::scope;

/// The file of the model under another name, of which each request runs by itself.
const ALONE: &str = "alone";

/// How long it takes until batches were measured, on a machine with better things to do.
const MEASURED: Duration = Duration::from_secs(60);

/// How far an answer of a batch may be from that of a request alone, as a share of its largest number.
const ROUNDING: f64 = 1e-5;

/// A gateway that waits long enough for four requests, and where a request without a deadline has the time for that.
fn batched() -> Node {
    let home = home("cloud");
    let config = home.path().join("config/karman/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let batches = format!("[batches.{MODEL}]\nat-most = 4\nwait = \"500 ms\"\nwithin = \"8 s\"\n");
    std::fs::write(&config, text + &batches).unwrap();
    let file = root().join(format!("tests/models/{MODEL}.onnx"));
    home.run(["model", "add", ALONE, file.to_str().unwrap()]).ok();
    gateway(home, &["infer:*", "metrics"])
}

/// The answer for one of several images.
fn ask(server: &Server, model: &str, number: u8, headers: &[(&str, &str)]) -> Answer {
    let image: Vec<f32> = (0..64u8)
        .map(|at| f32::from((at + 5 * number) % 17) / 16.0)
        .collect();
    let image = json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image });
    let body = json!({ "inputs": [image] }).to_string();
    let headers = [&[JSON], headers].concat();
    server.post(&format!("/v2/models/{model}/infer"), &headers, body.as_bytes())
}

/// Answers to four images that are sent at once.
fn together(server: &Server) -> Vec<Answer> {
    scope(|scope| {
        let asked = |number| scope.spawn(move || ask(server, MODEL, number, &[]));
        let asked: Vec<_> = (0..4).map(asked).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

fn size(answer: &Answer) -> Option<u64> {
    header(answer, "karman-batch").map(|size| size.parse().unwrap())
}

fn numbers(answer: &Answer) -> Vec<f64> {
    let reply = answer.json();
    let data = reply["outputs"][0]["data"].as_array().unwrap();
    data.iter().map(|number| number.as_f64().unwrap()).collect()
}

fn counter(server: &Server, name: &str) -> u64 {
    let metrics = server.get("/metrics").text();
    let line = format!("{name}_total{{model=\"{MODEL}\"}} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    value
        .unwrap_or_else(|| panic!("{line}: {metrics}"))
        .parse()
        .unwrap()
}

#[test]
fn requests_at_the_same_time_end_as_batches_with_the_answers_of_each_alone() {
    let node = batched();
    let server = &node.server;
    let alone: Vec<Vec<f64>> = (0..4)
        .map(|number| numbers(&ask(server, ALONE, number, &[])))
        .collect();
    let (started, mut batched) = (Instant::now(), 0);
    // Its batches are measured after the first requests.
    while batched == 0 {
        assert!(started.elapsed() < MEASURED, "nothing is run together");
        for (answer, alone) in together(server).iter().zip(&alone) {
            assert_eq!(answer.status, 200, "{answer:?}");
            let largest = alone
                .iter()
                .fold(0.0, |largest: f64, number| largest.max(number.abs()));
            let answered = numbers(answer);
            assert_eq!(answered.len(), alone.len());
            for (one, other) in answered.iter().zip(alone) {
                assert!(
                    (one - other).abs() <= ROUNDING * largest,
                    "{answered:?} {alone:?}"
                );
            }
            let size = size(answer);
            assert_eq!(
                answer.json()["parameters"]["legs"][0]["batch"].as_u64(),
                size,
                "{answer:?}"
            );
            batched += u64::from(size.is_some_and(|size| (2..=4).contains(&size)));
        }
    }
    assert_eq!(counter(server, "karman_model_batched"), batched);
    let batches = counter(server, "karman_model_batches");
    assert!((1..=batched / 2).contains(&batches), "{batches} {batched}");
    assert_eq!(counter(server, "karman_model_batches_apart"), 0);
    let models = node.home.control("/models");
    let runs_on = |name: &str| {
        let mut models = models.as_array().unwrap().iter();
        let model = models.find(|model| model["name"] == name).unwrap();
        model["runs_on"].as_str().unwrap().to_owned()
    };
    assert!(runs_on(MODEL).ends_with("in batches of up to 4"), "{models}");
    assert!(runs_on(ALONE).ends_with(", cpu"), "{models}");

    // A request with less time than the others waits for none of them, and one that does not fit is told alone what is wrong with it.
    let hurried = ask(server, MODEL, 0, &[("karman-within", "7 s")]);
    assert_eq!((hurried.status, size(&hurried)), (200, None), "{hurried:?}");
    let (wrong, right) = scope(|scope| {
        let image =
            json!({ "name": "image", "shape": [1, 1, 8, 7], "datatype": "FP32", "data": vec![0.5; 56] });
        let body = json!({ "inputs": [image] }).to_string();
        let path = format!("/v2/models/{MODEL}/infer");
        let wrong = scope.spawn(move || server.post(&path, &[JSON], body.as_bytes()));
        let right = together(server);
        (wrong.join().unwrap(), right)
    });
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert!(right.iter().all(|answer| answer.status == 200), "{right:?}");
}
