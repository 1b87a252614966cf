//! The nodes, as processes, and what they are asked.

use super::alarm::Alarm;
use super::registered::Registered;
use super::scenario::{MODEL, Plan};
use crate::site::Site;
use crate::{digits, given};
use anyhow::{Context, Result};
use bytes::Bytes;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Method;
use karman_node::inference::InferResponse;
use karman_sim::{Instant as Virtual, Router};
use karman_study::machine::{beside_us, processor_time_of};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// What became of a request, in seconds since the run began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) node: u32,
    /// When it was to be sent.
    pub(super) due_s: f64,
    pub(super) sent_s: f64,
    pub(super) ended_s: f64,
    /// What the node says that the model ran.
    pub(super) computed_s: f64,
}

impl Answered {
    /// Its raw row: node, due, sent, ended, computed.
    pub(super) fn row(&self) -> [f64; 5] {
        let Self {
            node,
            due_s,
            sent_s,
            ended_s,
            computed_s,
        } = *self;
        [f64::from(node), due_s, sent_s, ended_s, computed_s]
    }
}

/// Processes in one mesh.
pub(super) struct Nodes {
    sites: Vec<Site>,
    telemetry: Duration,
    path: String,
    request: Bytes,
}

impl Nodes {
    pub(super) async fn start(registered: &Registered, folder: &Path) -> Result<Self> {
        let karman = beside_us("karman")?;
        let config = format!(
            "tier = 'edge'\nbackend = 'tract'\n[compute]\nslowdown = {:.1}\n\
             [mesh]\nlisten = '127.0.0.1:0'\nfind-neighbours = false\n",
            registered.slowdown
        );
        let mut sites: Vec<Site> = Vec::new();
        for number in 0..registered.nodes {
            let mut site = Site::new(&karman, folder.join(format!("node-{number}")), &config)?;
            match sites.first() {
                None => {
                    site.run(&["mesh", "init"])?;
                    site.up(&[]).await?;
                }
                Some(first) => {
                    let word = first.run(&["mesh", "invite", "--tier", "edge"])?;
                    site.up(&["--join", &word]).await?;
                }
            }
            sites.push(site);
        }
        let file: Bytes = given::read(&format!("tests/models/{MODEL}.onnx"))?.into();
        for site in &sites {
            let path = format!("/models/{MODEL}");
            let _: Value = site.order(Method::POST, &path, file.clone()).await?;
        }
        Ok(Self {
            sites,
            telemetry: registered.telemetry,
            path: format!("/models/{MODEL}/run"),
            request: digits::together(registered.images)?,
        })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.sites.len()
    }

    /// One request to one node; how many seconds the model ran there.
    pub(super) async fn ask(&self, node: usize) -> Result<f64> {
        let response: InferResponse = self.sites[node]
            .order(Method::POST, &self.path, self.request.clone())
            .await?;
        let leg = response.parameters.legs.first();
        let leg = leg.context("the node does not say how long the model ran")?;
        Ok(leg.compute_us as f64 / 1e6)
    }

    /// Sends the requests of a plan when they are due, whatever has become of those before, and waits for all answers.
    pub(super) async fn play(&self, plan: &Plan) -> Result<Vec<Answered>> {
        let (arrivals, mut random) = plan.arrivals()?;
        let mut router = Router::new(plan.route, self.sites.len() as u32);
        let mut next = arrivals.next(Virtual::START, &mut random);
        // Requests that each node has, and how many it had when it was looked at.
        let (mut has, mut known) = (vec![0_u32; self.sites.len()], vec![0_u32; self.sites.len()]);
        let mut under_way: FuturesUnordered<LocalBoxFuture<'_, Result<Answered>>> = FuturesUnordered::new();
        let mut answered = Vec::new();
        let mut looks = interval(self.telemetry);
        let (begun, mut alarm) = (Instant::now(), Alarm::start());
        let within = |at: &Virtual| at.since_start() < plan.window.length;
        next = next.filter(within);
        if let Some(first) = next {
            alarm.set(begun + first.since_start());
        }
        loop {
            if next.is_none() && under_way.is_empty() {
                return Ok(answered);
            }
            tokio::select! {
                () = alarm.rings(), if next.is_some() => {
                    let at = next.unwrap_or(Virtual::START);
                    next = arrivals.next(at, &mut random).filter(within);
                    if let Some(next) = next {
                        alarm.set(begun + next.since_start());
                    }
                    let load = |node: u32| f64::from(known[node as usize]);
                    let node = router.choose(&mut random, load).unwrap_or_default();
                    has[node as usize] += 1;
                    under_way.push(self.answer(node, at.since_start(), begun).boxed_local());
                }
                Some(answer) = under_way.next() => {
                    let answer = answer?;
                    has[answer.node as usize] -= 1;
                    answered.push(answer);
                }
                _ = looks.tick() => known.clone_from(&has),
            }
        }
    }

    async fn answer(&self, node: u32, due: Duration, begun: Instant) -> Result<Answered> {
        let sent = begun.elapsed();
        let computed_s = self.ask(node as usize).await?;
        Ok(Answered {
            node,
            due_s: due.as_secs_f64(),
            sent_s: sent.as_secs_f64(),
            ended_s: begun.elapsed().as_secs_f64(),
            computed_s,
        })
    }

    /// Seconds of processor time that the nodes and this program have used.
    pub(super) fn processor_time(&self) -> Result<f64> {
        let there = self.sites.iter().map(|site| processor_time_of(site.pid()?));
        Ok(processor_time_of(std::process::id())? + there.sum::<Result<f64>>()?)
    }
}
