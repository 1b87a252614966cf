//! Two nodes as processes, the link between them, and the six candidates.

use super::registered::Registered;
use crate::digits;
use crate::site::Site;
use anyhow::{Error, Result};
use bytes::Bytes;
use http::Method;
use karman_study::machine::{beside_us, processor_time_of};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// From small to large.
pub(super) const MODELS: [&str; 3] = ["digits-s", "digits-m", "digits-l"];
/// Before the names of the models in the cloud: the edge has others.
const CLOUD: &str = "cloud-";

/// One that may answer a request.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// `digits-m@edge`.
    pub(super) name: String,
    pub(super) model: &'static str,
    pub(super) price: f64,
    /// By which the edge is asked for it.
    path: String,
}

/// The two nodes.
pub(super) struct Tiers {
    edge: Site,
    cloud: Site,
    pub(super) candidates: Vec<Candidate>,
    tenant: (Bytes, f64),
}

impl Tiers {
    pub(super) async fn start(registered: &Registered, folder: &Path) -> Result<Self> {
        let karman = beside_us("karman")?;
        let new = |tier: &str, slowdown| Site::new(&karman, folder.join(tier), &config(tier, slowdown));
        let mut cloud = new("cloud", registered.cloud_slowdown)?;
        let mut edge = new("edge", registered.edge_slowdown)?;
        let link = |from: &str, to: &str| -> Result<String> {
            let file = folder.join(format!("{from}.links.toml"));
            let delay = registered.link.as_micros();
            std::fs::write(
                &file,
                format!("[[link]]\nto = 'tier={to}'\ndelay = '{delay} us'\n"),
            )?;
            Ok(file.display().to_string())
        };
        cloud.run(&["mesh", "init"])?;
        cloud.up(&["--link-profile", &link("cloud", "edge")?]).await?;
        let word = cloud.run(&["mesh", "invite", "--tier", "edge"])?;
        let profile = link("edge", "cloud")?;
        edge.up(&["--join", &word, "--link-profile", &profile]).await?;
        for model in MODELS {
            let file: Bytes = std::fs::read(format!("tests/models/{model}.onnx"))?.into();
            for (site, name) in [(&edge, model.to_owned()), (&cloud, format!("{CLOUD}{model}"))] {
                let _: Value = site
                    .order(Method::POST, &format!("/models/{name}"), file.clone())
                    .await?;
            }
        }
        let tenant = (digits::together(registered.tenant_images)?, registered.tenant);
        Ok(Self {
            edge,
            cloud,
            candidates: candidates(registered),
            tenant,
        })
    }

    /// Has a candidate answer, wherever it is; how long that took.
    pub(super) async fn call(&self, candidate: usize, request: &Bytes) -> Result<(Value, Duration)> {
        let path = &self.candidates[candidate].path;
        let started = Instant::now();
        let answer = self.edge.order(Method::POST, path, request.clone()).await?;
        Ok((answer, started.elapsed()))
    }

    /// The same, as soon as the edge has heard that there is this candidate.
    pub(super) async fn find(&self, candidate: usize, request: &Bytes) -> Result<()> {
        Site::soon(async || self.call(candidate, request).await.map(drop)).await
    }

    /// What another tenant does in the cloud, until it is not polled any more: it keeps the processor busy for its share of the time. Ends
    /// with what went wrong only.
    pub(super) async fn tenant(&self) -> Error {
        let share = self.tenant.1;
        loop {
            let started = Instant::now();
            if let Err(error) = self.tenant_once().await {
                return error;
            }
            sleep(started.elapsed().mul_f64((1.0 - share) / share)).await;
        }
    }

    /// One request of that tenant.
    pub(super) async fn tenant_once(&self) -> Result<()> {
        let path = format!("/models/{CLOUD}{}/run", MODELS[2]);
        let request = self.tenant.0.clone();
        let _: Value = self.cloud.order(Method::POST, &path, request).await?;
        Ok(())
    }

    /// Waits until the last request of a tenant that is gone is over: the cloud's processor takes one after the other.
    pub(super) async fn rest(&self, request: &Bytes) -> Result<()> {
        self.call(self.candidates.len() - 1, request).await.map(drop)
    }

    /// Seconds of processor time that the nodes and this program have used.
    pub(super) fn processor_time(&self) -> Result<f64> {
        let there = processor_time_of(self.edge.pid()?)? + processor_time_of(self.cloud.pid()?)?;
        Ok(there + processor_time_of(std::process::id())?)
    }
}

fn config(tier: &str, slowdown: f64) -> String {
    format!(
        "tier = '{tier}'\nbackend = 'tract'\n[compute]\nslowdown = {slowdown:.1}\n\
         [mesh]\nlisten = '127.0.0.1:0'\nfind-neighbours = false\n"
    )
}

/// Each model on each tier.
fn candidates(registered: &Registered) -> Vec<Candidate> {
    let tiers = [
        ("edge", "", registered.edge_prices),
        ("cloud", CLOUD, registered.cloud_prices),
    ];
    let of_tier = |(tier, before, prices): (&str, &str, [f64; 3])| {
        let models = MODELS.into_iter().zip(prices);
        let candidates = models.map(|(model, price)| Candidate {
            name: format!("{model}@{tier}"),
            model,
            price,
            path: format!("/tasks/model/{before}{model}"),
        });
        candidates.collect::<Vec<_>>()
    };
    tiers.into_iter().flat_map(of_tier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_on_each_tier_at_a_price() {
        let all = candidates(&Registered::read().unwrap());
        let names: Vec<&str> = all.iter().map(|candidate| candidate.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "digits-s@edge",
                "digits-m@edge",
                "digits-l@edge",
                "digits-s@cloud",
                "digits-m@cloud",
                "digits-l@cloud"
            ]
        );
        assert_eq!(all[4].path, "/tasks/model/cloud-digits-m");
        assert!(all[4].price > all[1].price);
    }
}
