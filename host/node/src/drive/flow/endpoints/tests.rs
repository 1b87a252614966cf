//! Against a server on this machine that answers by the protocol, or nearly so.

use super::*;
use crate::inference::binary::{HEADER_LENGTH, WireBody, part};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use half::f16;
use karman_tensor::{Shape, Tensor};
use karman_types::from_toml;
use serde_json::Value;

/// Dimensions that no stack holds as lists in lists.
const DEEP: usize = 1 << 18;

/// What the server answers to the model of each name.
async fn infer(Path(model): Path<String>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    let question: Value = serde_json::from_str(&body).unwrap();
    let input = &question["inputs"][0];
    let answer = |outputs: Value| (StatusCode::OK, json!({ "outputs": outputs }).to_string());
    match model.as_str() {
        "twice" => {
            let data = input["data"].as_array().unwrap().iter();
            let twice: Vec<f64> = data.map(|value| 2.0 * value.as_f64().unwrap()).collect();
            answer(json!([{ "name": "y", "shape": input["shape"], "datatype": "FP32", "data": twice }]))
        }
        "words" => answer(json!([
            { "name": "text", "shape": [2], "datatype": "BYTES", "data": [input["data"][0], "!"] },
        ])),
        "who" => {
            let says = headers
                .get("authorization")
                .map_or("nobody", |value| value.to_str().unwrap());
            answer(json!([{ "name": "who", "shape": [1], "datatype": "BYTES", "data": [says] }]))
        }
        "lists" => {
            answer(json!([{ "name": "y", "shape": [4294967295u32, 0], "datatype": "FP32", "data": [] }]))
        }
        "short" => answer(json!([{ "name": "y", "shape": [9], "datatype": "FP32", "data": [1.0] }])),
        "deep" => answer(json!([{ "name": "y", "shape": vec![1; DEEP], "datatype": "FP32", "data": [1.0] }])),
        "long" => (StatusCode::OK, " ".repeat(100_000)),
        "hangs" => std::future::pending().await,
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            json!({ "error": "not loaded" }).to_string(),
        ),
    }
}

/// What a server that takes bytes answers to the model of each name: twice the halves that it was given, and a text, or nearly so.
async fn infer_bytes(Path(model): Path<String>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let length = headers.get(HEADER_LENGTH).unwrap().to_str().unwrap();
    let (json, behind) = part(body, Some(length)).unwrap();
    let question: Value = serde_json::from_slice(&json).unwrap();
    let input = &question["inputs"][0];
    assert_eq!(input["parameters"]["binary_data_size"], json!(behind.len()));
    assert!(input["data"].is_null(), "{question}");
    let wanted =
        |name: &str, as_bytes: bool| json!({ "name": name, "parameters": { "binary_data": as_bytes } });
    assert_eq!(
        question["outputs"],
        json!([wanted("y", true), wanted("text", false)])
    );
    let twice: Vec<u8> = behind
        .chunks(2)
        .flat_map(|half| (f16::from_le_bytes([half[0], half[1]]) * f16::from_f32(2.0)).to_le_bytes())
        .collect();
    let size = match &*model {
        "too-few" => twice.len() + 2,
        _ => twice.len(),
    };
    let parameters = json!({ "binary_data_size": size });
    let outputs = json!([
        { "name": "y", "shape": input["shape"], "datatype": "FP16", "parameters": parameters },
        { "name": "text", "shape": [1], "datatype": "BYTES", "data": ["done"] },
    ]);
    let json = json!({ "outputs": outputs }).to_string().into_bytes();
    let written = WireBody::of(json, vec![twice.into()]);
    let length = match &*model {
        "too-long" => written.bytes.len() + 1,
        _ => written.header_length.unwrap(),
    };
    ([(HEADER_LENGTH, length.to_string())], written.bytes)
}

async fn ready(Path(model): Path<String>) -> StatusCode {
    match model.as_str() {
        "twice" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn describe(State(datatype): State<&'static str>) -> String {
    json!({ "name": "any", "inputs": [{ "name": "x", "datatype": datatype, "shape": [-1] }], "outputs": [] })
        .to_string()
}

/// Where a server listens whose models take one input `x` of this type.
async fn server(datatype: &'static str) -> String {
    let router = Router::new()
        .route("/v2/models/{model}", get(describe))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/ready", get(ready))
        .with_state(datatype);
    serve(router).await
}

/// Where a server listens that takes halves as bytes.
async fn server_of_bytes() -> String {
    let describe = || async {
        let inputs = json!([{ "name": "x", "datatype": "FP16", "shape": [-1] }]);
        let outputs = json!([{ "name": "y", "datatype": "FP16" }, { "name": "text", "datatype": "BYTES" }]);
        json!({ "name": "any", "inputs": inputs, "outputs": outputs }).to_string()
    };
    let itself = || async { json!({ "name": "one", "extensions": ["a", EXTENSION] }).to_string() };
    let router = Router::new()
        .route("/v2", get(itself))
        .route("/v2/models/{model}", get(describe))
        .route("/v2/models/{model}/infer", post(infer_bytes));
    serve(router).await
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

fn endpoints(url: &str, model: &str, more: &str) -> Endpoints {
    let text = format!("url = \"{url}\"\nmodel = \"{model}\"\ncapability = \"a/b\"\n{more}");
    let named = BTreeMap::from([("far".to_owned(), from_toml(&text).unwrap())]);
    Endpoints::open(&named).unwrap()
}

fn request(input: &Value) -> TaskRequest {
    TaskRequest {
        body: input.to_string().into(),
        ..TaskRequest::default()
    }
}

/// What a model of the server gives for an input.
async fn ask(datatype: &'static str, model: &str, more: &str, input: Value) -> Result<Value, TaskError> {
    let url = server(datatype).await;
    let endpoints = endpoints(&url, model, more);
    let answer = endpoints.call((&url, model), request(&input), None).await?;
    Ok(serde_json::from_slice(&answer.body).unwrap())
}

#[tokio::test]
async fn tensors_go_by_name_and_come_back_as_they_are_shaped() {
    let doubled = ask("FP32", "twice", "", json!({ "x": [[1, 2], [3, 4.5]] })).await;
    assert_eq!(doubled, Ok(json!({ "y": [[2.0, 4.0], [6.0, 9.0]] })));
    let of_protocol = json!({ "inputs": [{ "name": "x", "shape": [1], "datatype": "FP32", "data": [2] }] });
    let answer = ask("FP32", "twice", "", of_protocol).await.unwrap();
    assert_eq!(answer["outputs"][0]["data"], json!([4.0]));
    let words = ask("BYTES", "words", "", json!({ "x": ["good"] })).await;
    assert_eq!(words, Ok(json!({ "text": ["good", "!"] })));

    let url = server("FP32").await;
    let x = Tensor::from_slice(Shape::new(&[2]).unwrap(), &[1f32, -1.0]).unwrap();
    let inputs = vec![("x".to_owned(), x)];
    let endpoints = endpoints(&url, "twice", "");
    let outputs = endpoints
        .infer((&url, "twice"), &inputs, Duration::from_secs(20))
        .await;
    assert_eq!(outputs.unwrap()[0].1.view::<f32>().unwrap(), [2.0, -2.0]);
}

#[tokio::test]
async fn tensors_go_as_bytes_where_the_server_takes_them() {
    let url = server_of_bytes().await;
    let halves = endpoints(&url, "halves", "");
    let asked = halves.call((&url, "halves"), request(&json!({ "x": [0.5, -1.0] })), None);
    let answer: Value = serde_json::from_slice(&asked.await.unwrap().body).unwrap();
    assert_eq!(answer, json!({ "y": [1.0, -2.0], "text": ["done"] }));

    // JSON has no word for this.
    let x = Tensor::from_slice(Shape::new(&[2]).unwrap(), &[f16::ONE, f16::NAN]).unwrap();
    let input = InferTensor::write("x", &x);
    let (_, endpoint) = halves.0.first_key_value().unwrap();
    let (_, twice) = endpoint.run(vec![input]).await.unwrap()[0].read().unwrap();
    let twice = twice.view::<f16>().unwrap();
    assert!(twice[0] == f16::from_f32(2.0) && twice[1].is_nan(), "{twice:?}");

    for (model, says) in [("too-few", "bytes are left"), ("too-long", "no length within")] {
        let wrong = endpoints(&url, model, "");
        let asked = wrong.call((&url, model), request(&json!({ "x": [0.5] })), None);
        let error = asked.await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Failed, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_an_input_is_said_before_the_server_is_asked() {
    for (input, says) in [
        (json!({ "z": [1] }), "no input `z`; it has x"),
        (
            json!({ "x": [[1, 2], [3]] }),
            "3 elements are not the shape [2, 2]",
        ),
        (json!("seven"), "no object"),
    ] {
        let error = ask("FP32", "twice", "", input).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[tokio::test]
async fn answers_are_bounded_and_a_server_that_does_not_answer_is_not_there() {
    for (model, kind, says) in [
        ("gone", ErrorKind::Unavailable, "not loaded"),
        ("hangs", ErrorKind::Unavailable, "within 200ms"),
        ("long", ErrorKind::Limit, "more than 4096 bytes"),
        ("short", ErrorKind::Failed, "1 elements are not the shape [9]"),
        ("lists", ErrorKind::Failed, "0 elements are not the shape"),
    ] {
        let bounds = "time = \"200 ms\"\nanswer = \"4 KiB\"";
        let error = ask("FP32", model, bounds, json!({ "x": [1] })).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
    // The time of its caller is something else.
    let url = server("FP32").await;
    let within = Some(Duration::from_millis(50));
    let hangs = endpoints(&url, "hangs", "");
    let late = hangs
        .call((&url, "hangs"), request(&json!({ "x": [1] })), within)
        .await;
    assert_eq!(late.unwrap_err().kind, ErrorKind::Deadline);
    // Nobody listens there.
    let nobody = endpoints("http://127.0.0.1:1", "twice", "");
    let asked = nobody.call(
        ("http://127.0.0.1:1", "twice"),
        request(&json!({ "x": [1] })),
        None,
    );
    assert_eq!(asked.await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_tensor_of_more_dimensions_than_there_are_is_no_answer() {
    let deep = ask("FP32", "deep", "", json!({ "x": [1] })).await.unwrap_err();
    assert_eq!(deep.kind, ErrorKind::Failed, "{deep}");
    assert!(deep.message.contains("262144 dimensions"), "{deep}");
}

#[tokio::test]
async fn who_is_not_ready_is_told_from_who_is() {
    let url = server("FP32").await;
    for (model, is_ready) in [("twice", true), ("gone", false)] {
        let asked = endpoints(&url, model, "").ready().await;
        assert_eq!(
            (asked[0].0.as_str(), asked[0].1.is_ok()),
            ("far", is_ready),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn a_token_is_read_for_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let url = server("FP32").await;
    let endpoints = endpoints(&url, "who", &format!("token = {file:?}"));
    for token in ["first", "second"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let input = request(&json!({ "x": [1] }));
        let answer = endpoints.call((&url, "who"), input, None).await.unwrap();
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(said["who"][0], format!("Bearer {token}"));
    }
    std::fs::remove_file(&file).unwrap();
    let asked = endpoints.call((&url, "who"), request(&json!({ "x": [1] })), None);
    assert_eq!(asked.await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn only_what_the_operator_names_is_called() {
    let endpoints = endpoints("http://a.example/", "digits-l", "");
    let found = endpoints.doing(|capability| capability == "a/b");
    let binding = Binding::Endpoint {
        url: "http://a.example".into(),
        model: "digits-l".into(),
    };
    assert_eq!(found, [("far@a.example".to_owned(), binding)]);
    assert!(endpoints.doing(|capability| capability == "c").is_empty());
    assert!(endpoints.has("http://a.example", "digits-l") && !endpoints.has("http://b.example", "digits-l"));
    let asked = endpoints.call(("http://b.example", "digits-l"), request(&json!({})), None);
    let error = asked.await.unwrap_err();
    assert!(error.message.contains("not named"), "{error}");

    let text = "url = \"http://a.example\"\nmodel = \"a/b\"\ncapability = \"a\"";
    let named = BTreeMap::from([("far".to_owned(), from_toml(text).unwrap())]);
    let error = Endpoints::open(&named).err().unwrap();
    assert_eq!(error.field.as_deref(), Some("endpoints.far.model"));
}
