//! Nodes of one mesh on loopback: the edge in this process, so that tensors go in and come out as they are, the others as their own.

use super::{Setting, limits};
use crate::site::Site;
use anyhow::{Result, ensure};
use karman_infer::zoo::Architecture;
use karman_node::{
    BackendChoice, ComputeProfile, JoinOptions, LogRing, MeshConfig, Node, NodeConfig, RuntimeOptions,
    SplitOrder, SplitPlan,
};
use karman_study::machine::processor_time_of;
use std::net::SocketAddr;

/// The edge, and who helps it.
pub(super) struct Nodes {
    pub(super) edge: Node,
    pub(super) others: Vec<Site>,
}

/// An edge node that is so many times slower than the machine, and others, each with its tier and its slowdown; the last of them has made
/// the mesh.
pub(super) async fn start(
    setting: &Setting,
    name: &str,
    slowdown: f64,
    others: &[(&str, f64)],
) -> Result<Nodes> {
    let mut sites = Vec::new();
    for (tier, slowdown) in others {
        let folder = setting.place(&format!("{name}-{tier}"));
        sites.push(Site::new(
            &setting.karman,
            folder,
            &config(setting, tier, *slowdown),
        )?);
    }
    let Some((last, rest)) = sites.split_last_mut() else {
        anyhow::bail!("an edge alone has nobody to share with");
    };
    last.run(&["mesh", "init"])?;
    last.up(&[]).await?;
    for (site, (tier, _)) in rest.iter_mut().zip(others) {
        let word = last.run(&["mesh", "invite", "--tier", tier, "--right", "deploy:*"])?;
        site.up(&["--join", &word]).await?;
    }
    let word = last.run(&["mesh", "invite", "--tier", "edge", "--right", "deploy:*"])?;
    let folder = setting.place(&format!("{name}-edge"));
    let options = RuntimeOptions {
        state: folder.join("state"),
        cache: folder.join("cache"),
        program: None,
    };
    let config = NodeConfig {
        backend: BackendChoice::OnnxRuntime,
        onnxruntime: Some(setting.library.path().into()),
        models: limits(),
        compute: ComputeProfile {
            slowdown,
            ..ComputeProfile::default()
        },
        mesh: MeshConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            find_neighbours: false,
            ..MeshConfig::default()
        },
        ..NodeConfig::default()
    };
    let edge = Node::start(config, options, LogRing::default()).await?;
    let invitation = Some(word.parse()?);
    edge.join(JoinOptions {
        invitation,
        links: None,
    })
    .await?;
    Ok(Nodes { edge, others: sites })
}

fn config(setting: &Setting, tier: &str, slowdown: f64) -> String {
    let library = setting.library.path().display();
    format!(
        "tier = '{tier}'\nbackend = 'onnxruntime'\nonnxruntime = '{library}'\n\
         [models]\nmodel = '1 GiB'\nconstants = '1 GiB'\ntensor = '1 GiB'\nrun = '8 GiB'\n\
         [compute]\nslowdown = {slowdown:.1}\n[mesh]\nlisten = '127.0.0.1:0'\nfind-neighbours = false\n"
    )
}

impl Nodes {
    /// Gives the edge a network of the zoo.
    pub(super) fn add(&self, architecture: Architecture, file: &[u8]) -> Result<()> {
        let store = self.edge.runtime().home().store()?;
        store
            .models()
            .add(architecture.as_str(), file, None, Default::default())?;
        Ok(())
    }

    /// A plan over all of them, as soon as the edge has found them.
    pub(super) async fn plan(
        &self,
        architecture: Architecture,
        cut: Option<Vec<usize>>,
    ) -> Result<SplitPlan> {
        let order = SplitOrder {
            over: vec!["all".into()],
            apply: cut.is_some(),
            // All on the edge, until it is known where to cut.
            cut: cut.or_else(|| Some(Vec::new())),
            ..SplitOrder::default()
        };
        Site::soon(async || {
            let plan = self.edge.plan_model(architecture.as_str(), &order).await?;
            ensure!(
                plan.nodes.len() == self.others.len() + 1,
                "{:?} take part",
                plan.nodes
            );
            Ok(plan)
        })
        .await
    }

    /// Seconds of processor time that all of them have used, this process with the load generator among them.
    pub(super) fn processor_time(&self) -> Result<f64> {
        let here = processor_time_of(std::process::id())?;
        let there = self.others.iter().map(|site| processor_time_of(site.pid()?));
        Ok(here + there.sum::<Result<f64>>()?)
    }
}
