//! The three nodes and the links between them.

use super::contender::{Contender, Goal};
use crate::site::Site;
use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use karman_infer::zoo::{Architecture, Variant};
use karman_node::inference::InferResponse;
use karman_node::{LinkMeasure, SplitPlan};
use karman_sched::partition::Problem;
use karman_study::machine::{beside_us, processor_time_of};
use karman_study::trace::ASSUMED_WATTS;
use karman_types::NodeId;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIERS: [&str; 3] = ["edge", "fog", "cloud"];
const SLOWDOWNS: [f64; 3] = [24.0, 6.0, 1.0];
/// Milliseconds between edge and fog, edge and cloud, fog and cloud.
const DELAYS_MS: [u32; 3] = [3, 13, 10];
/// Rows and columns of the image.
const INPUT: u32 = 64;
/// Within which a node has seen that its links behave otherwise: it looks each 100 ms.
const SEEN: Duration = Duration::from_millis(150);

/// The edge's access link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Access {
    /// As fast as it goes.
    Open,
    /// Megabits per second.
    Rate(f64),
    /// Nothing passes.
    Out,
}

impl Access {
    pub(super) fn of(mbit_s: f64) -> Self {
        match mbit_s > 0.0 {
            true => Self::Rate(mbit_s),
            false => Self::Out,
        }
    }

    /// As a link profile writes it. An outage of more than 12 s would break connections, so a longer one is many of them.
    fn describe(self) -> String {
        match self {
            Self::Open => String::new(),
            Self::Rate(mbit_s) => format!("rate = '{:.0} kbit/s'\n", mbit_s * 1e3),
            Self::Out => "outages = [{ start = '0s', length = '11990ms' }]\nrepeat = '12s'\n".into(),
        }
    }
}

/// Three processes.
pub(super) struct Continuum {
    sites: [Site; 3],
    links: [PathBuf; 3],
    nodes: Vec<NodeId>,
    request: Bytes,
    file: Bytes,
}

impl Continuum {
    pub(super) async fn start(folder: &Path) -> Result<Self> {
        let karman = beside_us("karman")?;
        let site = |tier: usize| Site::new(&karman, folder.join(TIERS[tier]), &config(tier));
        let mut sites = [site(0)?, site(1)?, site(2)?];
        let links = TIERS.map(|tier| folder.join(format!("{tier}.links.toml")));
        write_links(&links, Access::Open)?;
        sites[2].run(&["mesh", "init"])?;
        sites[2]
            .up(&["--link-profile", &links[2].display().to_string()])
            .await?;
        for tier in [1, 0] {
            let word = sites[2].run(&["mesh", "invite", "--tier", TIERS[tier], "--right", "deploy:*"])?;
            let profile = links[tier].display().to_string();
            sites[tier]
                .up(&["--join", &word, "--link-profile", &profile])
                .await?;
        }
        let variant = Variant {
            input: INPUT,
            ..Variant::default()
        };
        let mut continuum = Self {
            sites,
            links,
            nodes: Vec::new(),
            request: request()?,
            file: Architecture::MobileNetV2.generate(&variant),
        };
        continuum.add("plan").await?;
        continuum.nodes = Site::soon(async || {
            let plan = continuum.plan("plan", &Goal::Latency.order()).await?;
            ensure!(plan.nodes.len() == TIERS.len(), "{:?} take part", plan.nodes);
            Ok(plan.nodes)
        })
        .await?;
        Ok(continuum)
    }

    async fn add(&self, name: &str) -> Result<()> {
        let path = format!("/models/{name}");
        let _: Value = self.sites[0]
            .order(Method::POST, &path, self.file.clone())
            .await?;
        Ok(())
    }

    async fn plan(&self, name: &str, order: &karman_node::SplitOrder) -> Result<SplitPlan> {
        let path = format!("/models/{name}/plan");
        let body = serde_json::to_vec(order)?;
        self.sites[0].order(Method::POST, &path, body.into()).await
    }

    /// What the edge plans from when its link is open.
    pub(super) async fn problem(&self, goal: Goal) -> Result<Problem> {
        Ok(self.plan("plan", &goal.order()).await?.problem)
    }

    /// Has a contender's model run as it is ordered, from fresh measurements.
    pub(super) async fn apply(&self, contender: &Contender) -> Result<()> {
        self.add(&contender.name).await?;
        // A link that was gone a moment ago may have taken a connection with it.
        Site::soon(async || {
            let plan = self.plan(&contender.name, &contender.order()).await?;
            let (name, nodes) = (&contender.name, &plan.nodes);
            ensure!(*nodes == self.nodes, "{name}: {nodes:?} take part");
            Ok(())
        })
        .await
    }

    /// The access link is like this from now on.
    pub(super) async fn set(&self, access: Access) -> Result<()> {
        write_links(&self.links, access)?;
        tokio::time::sleep(SEEN).await;
        Ok(())
    }

    /// Tells an oracle the links of the moment.
    pub(super) async fn state(&self, name: &str, links: &[karman_sched::partition::Link]) -> Result<()> {
        let links: Vec<LinkMeasure> = links
            .iter()
            .map(|link| LinkMeasure {
                from: self.nodes[link.from],
                to: self.nodes[link.to],
                latency_ms: link.latency_ms,
                rate_mbit_s: link.rate_mbit_s,
            })
            .collect();
        let path = format!("/models/{name}/links");
        self.sites[0]
            .order(Method::PUT, &path, serde_json::to_vec(&links)?.into())
            .await
    }

    /// One request.
    pub(super) async fn run(&self, name: &str) -> Result<InferResponse> {
        let path = format!("/models/{name}/run");
        self.sites[0]
            .order(Method::POST, &path, self.request.clone())
            .await
    }

    pub(super) fn tier_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|other| *other == node)
    }

    /// Seconds that its nodes have computed.
    pub(super) fn processor_time(&self) -> Result<f64> {
        let nodes = self.sites.iter();
        nodes.map(|site| processor_time_of(site.pid()?)).sum()
    }
}

fn config(tier: usize) -> String {
    let [busy, idle, transmit] = ASSUMED_WATTS[tier];
    format!(
        "tier = '{}'\nbackend = 'tract'\n[compute]\nslowdown = {:.1}\n\
         [power]\nbusy = {busy:.1}\nidle = {idle:.1}\ntransmit = {transmit:.1}\n\
         [mesh]\nlisten = '127.0.0.1:0'\nfind-neighbours = false\n",
        TIERS[tier], SLOWDOWNS[tier]
    )
}

fn write_links(files: &[PathBuf; 3], access: Access) -> Result<()> {
    let [to_fog, to_cloud, wired] = DELAYS_MS;
    let shaped = access.describe();
    let link =
        |to: &str, delay: u32, more: &str| format!("[[link]]\nto = 'tier={to}'\ndelay = '{delay}ms'\n{more}");
    let rate = "rate = '1000 Mbit/s'\n";
    let texts = [
        link("fog", to_fog, &shaped) + &link("cloud", to_cloud, &shaped),
        link("edge", to_fog, &shaped) + &link("cloud", wired, rate),
        link("edge", to_cloud, &shaped) + &link("fog", wired, rate),
    ];
    for (file, text) in files.iter().zip(texts) {
        // A node must not read half of it.
        let fresh = file.with_extension("fresh");
        std::fs::write(&fresh, text)?;
        std::fs::rename(fresh, file)?;
    }
    Ok(())
}

/// A picture.
fn request() -> Result<Bytes> {
    let mut rng = fastrand::Rng::with_seed(7);
    let pixels: Vec<f32> = (0..3 * INPUT * INPUT)
        .map(|_| f32::from(rng.u8(..)) / 255.0)
        .collect();
    let input = json!({ "name": "image", "shape": [1, 3, INPUT, INPUT], "datatype": "FP32", "data": pixels });
    Ok(serde_json::to_vec(&json!({ "inputs": [input] }))?.into())
}
