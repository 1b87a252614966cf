//! One request and its answer over HTTP, as bytes.

use serde_json::Value;
use std::io::{Read, Write};

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One request on a connection of its own. Unless the headers name another host, it asks for this machine.
pub(crate) fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let given = |known: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(known));
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !given("host") {
        head.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !given("content-length") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    // A server may answer, and close, before it has read everything.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
    let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
    // Some say that they close, and do not.
    while !is_whole(&answer) {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(length) => answer.extend_from_slice(&piece[..length]),
        }
    }
    parse(&answer)
}

/// Whether everything is there that the head announces.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or(answer.len());
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body = answer.get(end + 4..).unwrap_or_default();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Answer {
        status,
        body: if chunked { unchunk(body) } else { body.to_vec() },
        head,
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let Ok(size) = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16) else {
            break;
        };
        let Some(chunk) = body
            .get(end + 2..end + 2 + size)
            .filter(|chunk| !chunk.is_empty())
        else {
            break;
        };
        whole.extend_from_slice(chunk);
        body = &body[(end + 4 + size).min(body.len())..];
    }
    whole
}
