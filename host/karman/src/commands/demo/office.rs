//! The county's office: it asks the cloud's gateway by the Open Inference Protocol, over HTTP as anybody would, and says how good, how
//! fast and how cheap the answer has to be.

use super::beside::Beside;
use super::continuum::{Continuum, Who, pause};
use super::days::overlap;
use super::mission::{CAPABILITY, LARGE, body, order_at};
use crate::app::App;
use crate::control::escape;
use crate::output::table;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use karman_node::{HeldModel, MeasureOrder, Measured};
use karman_types::TaskError;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Tiles that the gateway measures with.
const EXAMPLES: usize = 4;
/// What a call of the cloud's own model costs, in the gateway's currency.
const PRICE: f64 = 0.002;
/// After which the gateway gives up.
const WITHIN: &str = "5 s";
/// How often to look how far the story is.
const LOOK: Duration = Duration::from_millis(200);

/// What is asked for, and in which act at the earliest, counted from 0: bounds as the gateway takes them.
const ASKS: [(usize, &[(&str, &str)]); 4] = [
    (0, &[("karman-accuracy", "0.75"), ("karman-p95", "500 ms")]),
    (0, &[("karman-accuracy", "0.75"), ("karman-cost", "0.001")]),
    (0, &[("karman-accuracy", "0.999")]),
    (2, &[("karman-accuracy", "0.75"), ("karman-cost", "0.001")]),
];

/// A question, and what the gateway said.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Asked {
    /// The act that it was when it was asked, counted from 0.
    act: usize,
    /// Its bounds by their headers.
    bounds: BTreeMap<&'static str, &'static str>,
    status: u16,
    /// The decision, as the response's headers have it.
    model: Option<String>,
    node: Option<String>,
    cut: Option<String>,
    why: Option<String>,
    decision: Option<String>,
    /// Intersection over union with the truth.
    overlap: Option<f64>,
    took: Duration,
    error: Option<String>,
}

/// Who asks.
pub(super) struct Office {
    address: String,
    token: String,
    request: Bytes,
    truth: Vec<u8>,
}

impl Office {
    /// Lets the gateway measure who has the large model, the cloud's own among them, and gets a token.
    ///
    /// # Errors
    /// What the cloud says.
    pub(super) fn open(continuum: &Continuum, examples: &MeasureOrder) -> Result<Self, TaskError> {
        let cloud = continuum.node(Who::Cloud);
        let does = json!({ "capability": CAPABILITY }).to_string();
        let path = format!("/models/flood-l?info={}", escape(&does));
        order_at::<HeldModel>(cloud.control(), Who::Cloud, &path, LARGE.into())?;
        let own = format!("flood-l@{}", cloud.id().short());
        let few = examples.examples.iter().take(EXAMPLES).cloned();
        let wanted = MeasureOrder {
            examples: few.collect(),
            cost: BTreeMap::from([(own, PRICE)]),
            ..examples.clone()
        };
        order_at::<Vec<Measured>>(cloud.control(), Who::Cloud, "/flows/measure", body(&wanted)?)?;
        let tile = examples.examples.first();
        let tile = tile.ok_or_else(|| TaskError::internal("there is no tile to ask about"))?;
        let truth = tile.output.get("water").map(|water| &water["mask"]);
        let image = json!({ "name": "image", "shape": [1, 3, 32, 32], "datatype": "UINT8", "data": tile.input["image"] });
        let request = json!({ "inputs": [image] });
        Ok(Self {
            address: cloud.url().trim_start_matches("http://").to_owned(),
            token: continuum.token(&["infer:*"])?,
            request: request.to_string().into(),
            truth: truth.map(pixels).unwrap_or_default(),
        })
    }

    /// Asks, each as soon as it may.
    ///
    /// # Errors
    /// `internal` when the system has no more descriptors. What the gateway says is told.
    pub(super) fn run(&self, app: &App, beside: &Beside) -> Result<Vec<Asked>, TaskError> {
        let mut asked = Vec::new();
        for (earliest, bounds) in ASKS {
            let act = loop {
                match beside.act().filter(|act| *act >= earliest) {
                    Some(act) => break act,
                    None if beside.is_over() => return Ok(asked),
                    None => pause(app, LOOK)?,
                }
            };
            asked.push(self.ask(app, act, bounds)?);
        }
        Ok(asked)
    }

    fn ask(
        &self,
        app: &App,
        act: usize,
        bounds: &[(&'static str, &'static str)],
    ) -> Result<Asked, TaskError> {
        let started = Instant::now();
        let answer = app.block_on(async { Ok(self.exchange(bounds).await) })?;
        let took = started.elapsed();
        let bounds = bounds.iter().copied().collect();
        let (head, said) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(why) => return Ok(Asked::unanswered(act, bounds, took, why)),
        };
        let header = |name: &str| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        let found = said["outputs"][0]["data"].as_array();
        Ok(Asked {
            act,
            bounds,
            status: head.status.as_u16(),
            model: header("karman-model"),
            node: header("karman-node"),
            cut: header("karman-cut"),
            why: header("karman-why"),
            decision: header("karman-decision"),
            overlap: found.and_then(|found| overlap(found, &self.truth)),
            took,
            error: said["error"].as_str().map(str::to_owned),
        })
    }

    /// One request on a connection of its own.
    async fn exchange(&self, bounds: &[(&str, &str)]) -> Result<Response<Bytes>, String> {
        let mut request = Request::post("/v2/models/flood-l/infer")
            .header("host", &self.address)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .header("karman-within", WITHIN);
        for (name, value) in bounds {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(self.request.clone())).map_err(words)?;
        let stream = TcpStream::connect(&self.address).await.map_err(words)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(words)?;
        tokio::spawn(connection);
        let (head, said) = sender.send_request(request).await.map_err(words)?.into_parts();
        let said = said.collect().await.map_err(words)?.to_bytes();
        Ok(Response::from_parts(head, said))
    }
}

fn words(error: impl fmt::Display) -> String {
    error.to_string()
}

/// The numbers of nested lists in one row.
fn pixels(nested: &Value) -> Vec<u8> {
    match nested {
        Value::Array(items) => items.iter().flat_map(pixels).collect(),
        one => vec![u8::from(one.as_u64() == Some(1))],
    }
}

impl Asked {
    fn unanswered(
        act: usize,
        bounds: BTreeMap<&'static str, &'static str>,
        took: Duration,
        why: String,
    ) -> Self {
        Self {
            act,
            bounds,
            status: 0,
            model: None,
            node: None,
            cut: None,
            why: None,
            decision: None,
            overlap: None,
            took,
            error: Some(why),
        }
    }

    /// With names in the place of ids.
    pub(super) fn named(self, continuum: &Continuum) -> Self {
        let named = |text: Option<String>| text.map(|text| continuum.named(&text));
        Self {
            node: named(self.node),
            cut: named(self.cut),
            why: named(self.why),
            error: named(self.error),
            ..self
        }
    }

    fn row(&self) -> Vec<String> {
        let bounds = self.bounds.iter();
        let bounds: Vec<String> = bounds
            .map(|(header, value)| format!("{} {value}", header.trim_start_matches("karman-")))
            .collect();
        let dash = || "-".to_owned();
        let served = match (&self.model, &self.node) {
            (Some(model), Some(node)) => format!("{model}@{node}"),
            _ => dash(),
        };
        vec![
            (self.act + 1).to_string(),
            bounds.join(", "),
            self.status.to_string(),
            served,
            self.cut.clone().unwrap_or_else(dash),
            self.overlap.map_or_else(dash, |overlap| format!("{overlap:.2}")),
            format!("{:.2} s", self.took.as_secs_f64()),
        ]
    }
}

/// All questions with their answers, for people.
pub(super) struct Told<'a>(pub(super) &'a [Asked]);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["PASS", "BOUNDS", "STATUS", "SERVED BY", "CUT", "IOU", "TOOK"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.0.iter().map(Asked::row));
        write!(f, "{}", table(&rows))?;
        for asked in self.0 {
            let (pass, ok) = (asked.act + 1, StatusCode::OK.as_u16());
            match (&asked.error, &asked.why) {
                (Some(error), _) => write!(f, "\n  pass {pass}, {}: {error}", asked.status)?,
                (None, Some(why)) if asked.status == ok => write!(f, "\n  pass {pass}, why: {why}")?,
                (None, _) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_pixels_are_one_row() {
        assert_eq!(pixels(&json!([[[[1, 0], [0, 1]]]])), [1, 0, 0, 1]);
        assert_eq!(pixels(&Value::Null), [0]);
    }

    #[test]
    fn what_was_not_answered_says_why() {
        let bounds = BTreeMap::from([("karman-cost", "0.001")]);
        let asked = Asked::unanswered(2, bounds, Duration::from_millis(1500), "refused".into());
        let told = Told(&[asked]).to_string();
        assert!(
            told.contains("cost 0.001") && told.contains("pass 3, 0: refused"),
            "{told}"
        );
    }
}
