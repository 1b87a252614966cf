//! Two nodes as processes, and the link between them.

use super::registered::Registered;
use super::workload::{CLOUD, Candidate, Workload};
use crate::site::Site;
use crate::{digits, given};
use anyhow::{Error, Result};
use bytes::Bytes;
use http::Method;
use karman_study::machine::{beside_us, processor_time_of};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What another tenant of the cloud runs there.
const TENANT: &str = "digits-l";

/// The two nodes.
pub(super) struct Tiers {
    edge: Site,
    cloud: Site,
    tenant: (Bytes, f64),
}

impl Tiers {
    pub(super) async fn start(
        registered: &Registered,
        workloads: &[Workload],
        folder: &Path,
    ) -> Result<Self> {
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
        let models = workloads
            .iter()
            .flat_map(|load| load.models.iter().map(|model| (load.folder, *model)));
        for (from, model) in models {
            let file: Bytes = given::read(&format!("{from}/{model}.onnx"))?.into();
            for (site, name) in [(&edge, model.to_owned()), (&cloud, format!("{CLOUD}{model}"))] {
                let _: Value = site
                    .order(Method::POST, &format!("/models/{name}"), file.clone())
                    .await?;
            }
        }
        let tenant = (digits::together(registered.tenant_images)?, registered.tenant);
        Ok(Self { edge, cloud, tenant })
    }

    /// Has a candidate answer, wherever it is; how long that took.
    pub(super) async fn call(&self, candidate: &Candidate, request: &Bytes) -> Result<(Value, Duration)> {
        let started = Instant::now();
        let path = &candidate.path;
        let answer = self.edge.order(Method::POST, path, request.clone()).await?;
        Ok((answer, started.elapsed()))
    }

    /// The same, as soon as the edge has heard that there is this candidate.
    pub(super) async fn find(&self, candidate: &Candidate, request: &Bytes) -> Result<()> {
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
        let path = format!("/models/{CLOUD}{TENANT}/run");
        let request = self.tenant.0.clone();
        let _: Value = self.cloud.order(Method::POST, &path, request).await?;
        Ok(())
    }

    /// Waits until the last request of a tenant that is gone is over: the cloud's processor takes one after the other.
    pub(super) async fn rest(&self, workload: &Workload) -> Result<()> {
        let in_cloud = workload.in_cloud(0)?;
        match workload.requests().first() {
            Some(request) => self.call(in_cloud, request.body()).await.map(drop),
            None => Ok(()),
        }
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
