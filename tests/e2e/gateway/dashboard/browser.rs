//! Chromium without a screen, driven by the WebDriver protocol as its own driver speaks it.

use crate::support::{Answer, exchange};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a page may take to become as it is to be, on a machine with better things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys as WebDriver names them.
pub(super) const TAB: &str = "\u{E004}";
pub(super) const ENTER: &str = "\u{E007}";

pub(super) struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    /// A browser with a window of this size.
    pub(super) fn start(width: u32, height: u32) -> Self {
        let mut driver = Command::new(program("chromedriver"))
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port = BufReader::new(driver.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            });
        let mut browser = Self {
            driver,
            address: format!("127.0.0.1:{}", port.expect("the driver says its port")),
            session: String::new(),
        };
        // Root has no sandbox, and a container may have a small /dev/shm.
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            format!("--window-size={width},{height}"),
        ]);
        let options = json!({ "binary": program("chromium"), "args": arguments });
        let logs = json!({ "performance": "ALL", "browser": "ALL" });
        let wanted =
            json!({ "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs });
        let made = browser.ask(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": wanted } }),
        );
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let json = [("content-type", "application/json")];
        let answer: Answer = exchange(
            stream,
            method,
            &format!("{}{path}", self.session),
            &json,
            body.to_string().as_bytes(),
        );
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        answer.json()["value"].clone()
    }

    pub(super) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// What a script returns.
    pub(super) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns true.
    #[track_caller]
    pub(super) fn until(&self, script: &str) {
        let started = Instant::now();
        while self.run(script) != true {
            assert!(
                started.elapsed() < PATIENCE,
                "`{script}` does not become true:\n{}",
                self.run("return document.body.innerText")
            );
        }
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(super) fn press(&self, keys: &str) {
        let events = keys.chars().flat_map(|key| {
            let event = |kind: &str| json!({ "type": kind, "value": key.to_string() });
            [event("keyDown"), event("keyUp")]
        });
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": events.collect::<Vec<_>>() });
        self.ask("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// An order of Chromium's own protocol.
    pub(super) fn order(&self, name: &str, parameters: &Value) -> Value {
        self.ask(
            "POST",
            "/goog/cdp/execute",
            &json!({ "cmd": name, "params": parameters }),
        )
    }

    /// The lines of one of its logs since they were last read.
    pub(super) fn log(&self, kind: &str) -> Vec<Value> {
        let lines = self.ask("POST", "/se/log", &json!({ "type": kind }));
        lines.as_array().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver takes the browser with it.
        if let (Ok(stream), false) = (TcpStream::connect(&self.address), self.session.is_empty()) {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            exchange(stream, "DELETE", &self.session, &[], b"");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("there is no {name}: `cargo xtask setup` installs it"))
}
