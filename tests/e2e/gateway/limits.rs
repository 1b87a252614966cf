//! How much callers may do, and what those that misbehave get.

use super::clients::python;
use super::load::limited;
use super::*;

#[test]
fn a_caller_gets_what_its_token_says_and_no_more() {
    let node = gateway(home("cloud"), &[]);
    let named = token(&node, &["--right", "call:tiny", "--rate", "3", "--body", "1KiB"]);
    let call = |length: usize| {
        let body = vec![b'1'; length];
        node.server
            .post("/tasks/tiny", &[("authorization", &named)], &body)
    };
    let long = call(2000);
    assert_eq!(
        (long.status, &long.json()["field"]),
        (413, &json!("body")),
        "{long:?}"
    );
    let answers: Vec<Answer> = (0..8).map(|_| call(1)).collect();
    let refused = answers
        .iter()
        .find(|answer| answer.status == 429)
        .expect("nothing is refused");
    assert_eq!(header(refused, "retry-after"), Some("1"), "{refused:?}");
    assert!(answers.iter().any(|answer| answer.status == 200), "{answers:?}");
}

#[test]
fn too_many_tokens_that_do_not_hold_are_not_looked_at() {
    let node = gateway(limited("failed-tokens = 1"), &[]);
    let named = token(&node, &["--right", "infer:*"]);
    let with = |bearer: &str| infer(&node.server, MODEL, &[("authorization", bearer)]);
    assert_eq!(with(&named).status, 200);
    let mut answers = (0..100).map(|_| with("Bearer nonsense"));
    let refused = answers
        .find(|answer| answer.status != 401)
        .expect("all are looked at");
    assert_eq!(
        (refused.status, header(&refused, "retry-after")),
        (429, Some("1")),
        "{refused:?}"
    );
    // Whom the gateway has met comes in from the same address.
    assert_eq!(with(&named).status, 200);
    // Whoever watches over it sees how many there were.
    let watcher = token(&node, &["--right", "admin", "--right", "metrics"]);
    let seen = |path: &str| {
        let started = Instant::now();
        loop {
            let headers = [("authorization", &watcher[..])];
            let answer = node.server.send("GET", path, &headers, b"");
            // It is new there, too, so it waits for its turn.
            if answer.status != 429 || started.elapsed() > FOUND {
                return answer;
            }
        }
    };
    let load = seen("/admin/load").json();
    let count = |name: &str| load[name].as_u64().unwrap();
    assert!(
        count("failed_tokens") >= 1 && count("tokens_kept_out") >= 1,
        "{load}"
    );
    assert_eq!(count("beside"), 0, "{load}");
    let metrics = seen("/metrics").text();
    for name in [
        "karman_gateway_beside 0",
        "karman_gateway_failed_tokens_total{outcome=\"refused\"} ",
        "karman_gateway_failed_tokens_total{outcome=\"not_looked_at\"} ",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

/// Whoever fails too often behind a proxy keeps no other caller of that proxy out.
#[test]
fn callers_behind_a_proxy_are_counted_apart() {
    let home = limited("failed-tokens = 1");
    let file = home.path().join("config/karman/node.toml");
    let limited = std::fs::read_to_string(&file).unwrap();
    let trusting = format!("{limited}\n[gateway]\ntrusted-proxies = [\"127.0.0.1\"]\n");
    std::fs::write(&file, trusting).unwrap();
    let node = gateway(home, &[]);
    let asks = |caller: &str, bearer: &str| {
        let headers = [("authorization", bearer), ("x-forwarded-for", caller)];
        infer(&node.server, MODEL, &headers).status
    };
    assert!((0..100).any(|_| asks("192.0.2.1", "Bearer nonsense") == 429));
    // One more from there is not looked at, even if it would hold; from another address it is.
    assert_eq!(asks("192.0.2.2", "Bearer nonsense"), 401);
    let named = token(&node, &["--right", "infer:*"]);
    assert_eq!(asks("192.0.2.3", &named), 200);
}

/// Connections that never finish what they say give way to those that do.
#[test]
fn slow_callers_keep_nobody_out() {
    let home = home("cloud");
    let limits = "[gateway.limits]\nconnections = 64\nbody-pause = \"300 ms\"\n";
    home.configure(limits);
    let node = gateway(home, &["infer:*"]);
    let address = &node.server.address;
    let slow = |bytes: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream
    };
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|at| slow(["", "G", "POST /v2 HTTP/1.1\r\nhost: localhost\r\nx: "][at % 3]))
        .collect();
    assert_eq!(infer(&node.server, MODEL, &[]).status, 200);

    // A body that stops on its way is answered, not waited for.
    let stream = &mut slow[0];
    *stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[9..12], b"408", "{}", String::from_utf8_lossy(&answer));
    // One that is for nothing that there is, is not waited for.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc";
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[9..12], b"404", "{}", String::from_utf8_lossy(&answer));
    assert_eq!(infer(&node.server, MODEL, &[]).status, 200);
}

/// With one place and one seat to wait in, most of many are refused at once, and told when to come again.
#[test]
fn beyond_its_capacity_it_refuses_quickly() {
    let home = home("cloud");
    let limits = "[gateway.limits]\nat-once = 1\nwaiting = 1\nwait = \"30 s\"\n";
    home.configure(limits);
    let node = gateway(home, &["call:*"]);
    node.run(&["deploy", guest("hostile").to_str().unwrap()]).ok();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let ask = || {
            let headers = [("karman-meta-do", "sleep 1500"), ("karman-within", "20 s")];
            node.server.post("/tasks/hostile", &headers, b"")
        };
        let running: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(refused.len() >= 5, "{answers:?}");
    assert!(
        refused
            .iter()
            .all(|answer| header(answer, "retry-after").is_some()),
        "{refused:?}"
    );
    // It never stops answering those who watch over it.
    assert_eq!(node.server.get("/healthz").status, 200);
}

#[test]
fn it_finishes_what_it_has_begun_when_it_is_stopped() {
    let node = gateway(home("cloud"), &["call:*"]);
    node.run(&["deploy", guest("hostile").to_str().unwrap()]).ok();
    let address = node.server.address.clone();
    let asked = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "POST /tasks/hostile HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nkarman-meta-do: sleep 1000\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    });
    let running = || {
        let status = node.home.control("/status");
        let plugins = status["plugins"].as_array().unwrap().clone();
        plugins.iter().any(|plugin| plugin["running"] == 1)
    };
    let started = Instant::now();
    while !running() {
        assert!(started.elapsed() < FOUND, "the task does not run");
    }
    let Node { server, .. } = node;
    let (code, _) = server.stop();
    assert_eq!((code, &asked.join().unwrap()[..]), (0, "HTTP/1.1 200"));
}

/// Whoever sends callers to it sees that it will close, and it goes on until they had the time to.
#[test]
fn it_gives_notice_before_it_closes() {
    let node = gateway(limited("notice = \"1 h\""), &["infer:*"]);
    assert_eq!(node.server.get("/readyz").status, 200);
    node.server.signal_terminate();
    let started = Instant::now();
    while node.server.get("/readyz").status != 503 {
        assert!(started.elapsed() < FOUND, "it says that it is ready");
    }
    assert_eq!(node.server.get("/v2/health/ready").status, 503);
    assert_eq!(node.server.get("/healthz").status, 200);
    assert_eq!(infer(&node.server, MODEL, &[]).status, 200);
    // A second signal lets nobody wait.
    let Node { server, .. } = node;
    assert_eq!(server.stop().0, 0);
}

#[test]
fn one_that_is_taken_out_of_service_is_not_ready() {
    let node = gateway(home("cloud"), &["admin"]);
    assert_eq!(node.server.get("/readyz").status, 200);
    assert_eq!(node.server.post("/admin/drain", &[], b"").status, 200);
    assert_eq!(node.server.get("/readyz").status, 503);
    assert_eq!(node.server.get("/healthz").status, 200);
}

#[test]
fn a_task_has_the_time_that_a_request_has() {
    let home = home("cloud");
    let limits = "[gateway.limits]\ntime = \"500 ms\"\n";
    home.configure(limits);
    let node = gateway(home, &["call:*"]);
    node.run(&["deploy", guest("hostile").to_str().unwrap()]).ok();
    let late = node
        .server
        .post("/tasks/hostile", &[("karman-meta-do", "sleep 5000")], b"");
    assert_eq!(
        (late.status, &late.json()["code"]),
        (504, &json!("deadline")),
        "{late:?}"
    );
    // The limit of the plugin itself, two seconds, has not ended it.
    assert!(late.text().contains("gateway.limits.time"), "{late:?}");
}

/// Who waits for an end takes no place from what runs, but there are only so many places to wait at.
#[test]
fn only_so_many_wait_for_an_end() {
    let node = gateway(limited("beside = 1"), &["call:*"]);
    // Accepted, for whoever may come to have it: it does not end here.
    let accepted = node
        .server
        .post("/tasks/absent", &[("karman-accept", "local")], b"1");
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let path = format!("/accepted/{}", accepted.json()["task"].as_str().unwrap());
    let head = format!("GET {path}/result?wait=60s HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let (mut waiting, started) = (Vec::new(), Instant::now());
    let refused = loop {
        let mut stream = TcpStream::connect(&node.server.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // One of them comes in before a question does, and stays.
        waiting.push(stream);
        let answer = node.server.get(&path);
        match answer.status {
            503 => break answer,
            200 => assert!(started.elapsed() < FOUND, "everybody may wait"),
            _ => panic!("{answer:?}"),
        }
    };
    assert_eq!(header(&refused, "retry-after"), Some("1"), "{refused:?}");
    assert_eq!(node.server.post("/tasks/tiny", &[], b"1").status, 200);
    assert_eq!(node.server.get("/healthz").status, 200);
}

/// Two bytes of JSON are an element of many: what there is no room for is not read at all.
#[test]
fn what_a_body_becomes_has_to_have_room_too() {
    let home = home("cloud");
    let limits = "[gateway.limits]\nbody = \"1 MiB\"\nbodies = \"4 MiB\"\n";
    home.configure(limits);
    let node = gateway(home, &["infer:*"]);
    let data = vec![0; 400_000];
    let image = json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": data });
    let body = json!({ "inputs": [image] }).to_string();
    let path = format!("/v2/models/{MODEL}/infer");
    let refused = node.server.post(&path, &[JSON], body.as_bytes());
    let error = refused.json()["error"].clone();
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(
        error
            .as_str()
            .is_some_and(|error| error.contains("binary tensor extension")),
        "{error}"
    );
    // Of gRPC, too: what is no longer than a body may be would be more than all of them.
    let said = python(&node, "typed.py", &[MODEL, "250000"]);
    assert_eq!(said.lines().last(), Some("done"), "{said}");
    assert_eq!(infer(&node.server, MODEL, &[]).status, 200);
}

/// A short request does not have a long answer written any number of times.
#[test]
fn an_output_is_wanted_once() {
    let node = gateway(home("cloud"), &["infer:*"]);
    let ask = |outputs: Value| {
        let image = json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image() });
        let body = json!({ "inputs": [image], "outputs": outputs }).to_string();
        node.server
            .post(&format!("/v2/models/{MODEL}/infer"), &[JSON], body.as_bytes())
    };
    let wanted = json!({ "name": "probabilities" });
    assert_eq!(ask(json!([wanted])).status, 200);
    let refused = ask(json!([wanted, wanted]));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text().contains("more than once"), "{refused:?}");
}
