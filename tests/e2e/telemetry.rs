//! A collector that takes OTLP over HTTP: what two nodes did for one request is one trace there, and what they say comes with it.

use crate::gateway::{infer, token, with_model};
use crate::mesh::{FOUND, Node, home};
use crate::support::Home;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// The time within which everything is there.
const SENT: Duration = Duration::from_secs(60);

/// What has come, each with the node that sent it.
#[derive(Default)]
struct Taken {
    spans: Vec<(String, Span)>,
    /// Text and trace of an event.
    events: Vec<(String, String, Vec<u8>)>,
}

/// A collector, and its address.
fn collector() -> (Arc<Mutex<Taken>>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::new(Mutex::new(Taken::default()));
    let all = taken.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = all.clone();
            std::thread::spawn(move || while take(&stream, &taken).is_some() {});
        }
    });
    (taken, address)
}

/// One request of a connection; nothing when there is no other.
fn take(mut stream: &TcpStream, taken: &Mutex<Taken>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim().to_ascii_lowercase();
        if text.is_empty() {
            break;
        }
        if path.is_empty() {
            path = text.split_whitespace().nth(1)?.to_owned();
        }
        if let Some(told) = text.strip_prefix("content-length:") {
            length = told.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    keep(&path, &body, &mut taken.lock().unwrap());
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer.as_bytes()).ok()
}

fn keep(path: &str, body: &[u8], taken: &mut Taken) {
    match path {
        "/v1/traces" => {
            for of_node in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
                let node = instance(of_node.resource.as_ref());
                let spans = of_node.scope_spans.into_iter().flat_map(|scope| scope.spans);
                taken.spans.extend(spans.map(|span| (node.clone(), span)));
            }
        }
        "/v1/logs" => {
            for of_node in ExportLogsServiceRequest::decode(body).unwrap().resource_logs {
                let node = instance(of_node.resource.as_ref());
                let records = of_node.scope_logs.into_iter().flat_map(|scope| scope.log_records);
                taken.events.extend(records.map(|record| {
                    let said = record.body.and_then(|body| body.value);
                    (node.clone(), text(said), record.trace_id)
                }));
            }
        }
        other => panic!("{other} is no signal that is sent"),
    }
}

fn text(value: Option<Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

/// The node that a resource is.
fn instance(resource: Option<&Resource>) -> String {
    let attributes = resource
        .map(|resource| &resource.attributes[..])
        .unwrap_or_default();
    let of = |key: &str| {
        let found = attributes.iter().find(|attribute| attribute.key == key);
        text(found.and_then(|attribute| attribute.value.clone()?.value))
    };
    assert_eq!(of("service.name"), "karman");
    of("service.instance.id")
}

/// A node whose batches do not wait for long.
fn start(home: Home, arguments: &[&str], environment: &[(&str, &str)]) -> Node {
    let mut command = home.command(arguments);
    command
        .env("OTEL_BSP_SCHEDULE_DELAY", "200")
        .env("OTEL_BLRP_SCHEDULE_DELAY", "200")
        .env_remove("OTEL_SERVICE_NAME")
        .envs(environment.iter().copied());
    let server = home.started(command);
    Node { home, server }
}

#[test]
fn what_two_nodes_did_for_one_request_is_one_trace() {
    let (taken, address) = collector();
    // One is told by its configuration, the other one by its environment.
    let cloud = home("cloud");
    let file = cloud.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{config}[telemetry]\notlp = \"{address}\"\n")).unwrap();
    cloud.run(["mesh", "init"]).ok();
    let cloud = start(
        cloud,
        &["gateway", "--listen", "127.0.0.1:0", "--open", "infer:*"],
        &[],
    );
    let word = cloud.invite(&["--tier", "edge"]);
    let edge = home("edge");
    with_model(&edge);
    let up = ["node", "up", "--listen", "127.0.0.1:0", "--join", &word];
    let edge = start(edge, &up, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)]);

    let started = Instant::now();
    let (parent, token) = (
        format!("00-{TRACE}-{PARENT}-01"),
        token(&cloud, &["--right", "infer:*"]),
    );
    let headers = [("traceparent", &parent[..]), ("authorization", &token[..])];
    while infer(&cloud.server, "digits-s", &headers).status != 200 {
        assert!(started.elapsed() < FOUND, "nobody has the model");
    }
    let (cloud, edge) = (cloud.id(), edge.id());
    let started = Instant::now();
    while !is_one_trace(&taken.lock().unwrap(), &cloud, &edge) {
        let seen = taken.lock().unwrap();
        let names: Vec<_> = seen.spans.iter().map(|(node, span)| (node, &span.name)).collect();
        assert!(started.elapsed() < SENT, "{names:?} {:?}", seen.events);
        drop(seen);
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// The request, the call that it made, and its answer on the other node, each the parent of the next; and the gateway's line of it.
fn is_one_trace(taken: &Taken, cloud: &str, edge: &str) -> bool {
    let trace = u128::from_str_radix(TRACE, 16).unwrap().to_be_bytes();
    let parent = u64::from_str_radix(PARENT, 16).unwrap().to_be_bytes();
    let below = |parent: &[u8], node: &str, kind: SpanKind| -> Vec<&Span> {
        let spans = taken.spans.iter().filter(|(of, span)| {
            of == node && span.trace_id == trace && span.parent_span_id == parent && span.kind == kind as i32
        });
        spans.map(|(_, span)| span).collect()
    };
    let requests = below(&parent, cloud, SpanKind::Server);
    let calls = requests
        .iter()
        .flat_map(|request| below(&request.span_id, cloud, SpanKind::Client));
    let calls: Vec<&Span> = calls.filter(|call| call.name == "call digits-s").collect();
    let answered = calls
        .iter()
        .flat_map(|call| below(&call.span_id, edge, SpanKind::Server))
        .any(|answer| answer.name == "answer digits-s");
    let line =
        |(node, text, of): &(String, String, Vec<u8>)| node == cloud && text == "answered" && *of == trace;
    answered && taken.events.iter().any(line)
}

#[test]
fn what_is_no_collector_keeps_the_node_from_starting() {
    let home = Home::new();
    let mut command = home.command(["node", "up", "--listen", "127.0.0.1:0"]);
    let ran = command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("`collector:4318` is no collector"), "{said}");
}
