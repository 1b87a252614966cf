use super::process::{Process, run};
use super::sky::Pass;
use crate::app::App;
use crate::error;
use karman_node::{NodeOffer, PeerStatus};
use karman_types::{NodeId, TaskError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait until nodes have met.
const MEET: Duration = Duration::from_secs(30);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(50);

/// The nodes of the demonstration.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Who {
    /// The satellite.
    Sat,
    /// The edge board with the dish that the satellite passes over.
    Dish,
    /// The edge board in the village.
    Siren,
    /// The machine in the county's office.
    Fog,
    /// The gateway.
    Cloud,
}

impl Who {
    /// All of them, the first one up first.
    pub(super) const ALL: [Self; 5] = [Self::Cloud, Self::Fog, Self::Dish, Self::Siren, Self::Sat];

    /// Its name in the report, and of its folder.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sat => "sat",
            Self::Dish => "dish",
            Self::Siren => "siren",
            Self::Fog => "fog",
            Self::Cloud => "cloud",
        }
    }

    /// Where it stands.
    pub(super) const fn tier(self) -> &'static str {
        match self {
            Self::Sat => "space",
            Self::Dish | Self::Siren => "edge",
            Self::Fog => "fog",
            Self::Cloud => "cloud",
        }
    }

    /// How many times slower its models run than this machine could.
    pub(super) const fn slowdown(self) -> u32 {
        match self {
            Self::Sat => 16,
            Self::Dish | Self::Siren => 50,
            Self::Fog => 40,
            Self::Cloud => 1,
        }
    }

    const fn is_edge(self) -> bool {
        matches!(self, Self::Dish | Self::Siren)
    }

    /// What a link is like while it is there: delay in milliseconds, kbit/s. Nothing where there is none.
    const fn link_to(self, to: Self) -> Option<(u32, u32)> {
        match (self, to) {
            (Self::Sat, Self::Dish) => Some((4, 8000)),
            (Self::Dish, Self::Sat) => Some((4, 2000)),
            (Self::Dish | Self::Siren, Self::Dish | Self::Siren) => Some((3, 20_000)),
            (Self::Dish | Self::Siren, Self::Fog) | (Self::Fog, Self::Dish | Self::Siren) => {
                Some((2, 40_000))
            }
            (Self::Fog, Self::Cloud) => Some((140, 500)),
            (Self::Dish | Self::Siren, Self::Cloud) => Some((150, 500)),
            (Self::Cloud, Self::Fog | Self::Dish | Self::Siren) => Some((150, 4000)),
            _ => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which links are there now.
#[derive(Clone, Copy, Debug)]
struct Links {
    /// The satellite has been launched: it is no longer beside the others.
    launched: bool,
    /// It is over the dish.
    passes: bool,
    /// The edge reaches the cloud and the fog.
    uplink: bool,
}

/// Bytes sent from one node to another.
pub(super) type Sent = BTreeMap<(Who, Who), u64>;

/// The five nodes.
pub(super) struct Continuum {
    folder: PathBuf,
    nodes: BTreeMap<Who, Process>,
    links: Links,
}

impl Continuum {
    /// Starts them, in one mesh.
    ///
    /// # Errors
    /// What keeps one of them from coming up.
    pub(super) fn start(app: &App, folder: &Path) -> Result<Self, TaskError> {
        let mut continuum = Self {
            folder: folder.to_owned(),
            nodes: BTreeMap::new(),
            links: Links {
                launched: false,
                passes: true,
                uplink: true,
            },
        };
        for who in Who::ALL {
            continuum.furnish(who)?;
        }
        run(&continuum.folder_of(Who::Cloud), &["mesh", "init"])?;
        for who in Who::ALL {
            let process = continuum.process(who)?;
            continuum.nodes.insert(who, process);
        }
        continuum.write_links()?;
        for who in Who::ALL {
            continuum.until(app, who, Who::ALL.len() - 1)?;
        }
        Ok(continuum)
    }

    /// The folder of all of them.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// One of them.
    pub(super) fn node(&self, who: Who) -> &Process {
        &self.nodes[&who]
    }

    /// By its id.
    pub(super) fn who(&self, id: NodeId) -> Option<Who> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, node)| node.id() == id).map(|(who, _)| *who)
    }

    /// A text in which nodes have their names in the place of their ids.
    pub(super) fn named(&self, text: &str) -> String {
        let nodes = self.nodes.iter();
        nodes.fold(text.to_owned(), |text, (who, node)| {
            text.replace(&node.id().to_string(), who.name())
                .replace(&node.id().short(), who.name())
        })
    }

    /// Kills a node.
    pub(super) fn kill(&mut self, who: Who) {
        if let Some(node) = self.nodes.get_mut(&who) {
            node.kill();
        }
    }

    /// From now on the satellite reaches the dish only while it passes.
    pub(super) fn launch(&mut self, plan: &[Pass]) -> Result<(), TaskError> {
        let text: String = plan.iter().map(Pass::as_contacts).collect();
        for who in [Who::Sat, Who::Dish] {
            write(&self.folder_of(who).join("contacts.toml"), &text)?;
        }
        (self.links.launched, self.links.passes) = (true, false);
        self.write_links()
    }

    /// The satellite comes over the dish, or goes.
    pub(super) fn passes(&mut self, passes: bool) -> Result<(), TaskError> {
        self.links.passes = passes;
        self.write_links()
    }

    /// The edge has an uplink, or has none.
    pub(super) fn uplink(&mut self, uplink: bool) -> Result<(), TaskError> {
        self.links.uplink = uplink;
        self.write_links()
    }

    /// All is well again.
    pub(super) fn heal(&mut self, app: &App) -> Result<(), TaskError> {
        if !self.node(Who::Fog).is_up() {
            let process = Process::start(&self.folder_of(Who::Fog), &UP)?;
            self.nodes.insert(Who::Fog, process);
        }
        self.links.uplink = true;
        self.passes(true)?;
        self.until(app, Who::Cloud, 3)
    }

    /// Waits until the satellite and the dish see each other.
    pub(super) fn acquire(&self, app: &App, until: Instant) -> Result<bool, TaskError> {
        while !self.sees()? {
            if Instant::now() > until {
                return Ok(false);
            }
            pause(app, LOOK)?;
        }
        Ok(true)
    }

    /// Whether the satellite reaches the dish.
    pub(super) fn sees(&self) -> Result<bool, TaskError> {
        let dish = self.node(Who::Dish).id();
        let peers = peers(self.node(Who::Sat))?;
        Ok(peers.iter().any(|peer| peer.node == dish && peer.path.is_some()))
    }

    /// What each node that is up has sent to each other.
    pub(super) fn sent(&self) -> Result<Sent, TaskError> {
        let mut sent = Sent::new();
        for (from, node) in self.nodes.iter().filter(|(_, node)| node.is_up()) {
            for peer in peers(node)? {
                if let Some(to) = self.who(peer.node) {
                    sent.insert((*from, to), peer.sent_bytes);
                }
            }
        }
        Ok(sent)
    }

    /// A token for the dashboard.
    pub(super) fn token(&self) -> Result<String, TaskError> {
        let arguments = ["token", "issue", "demo", "--right", "admin", "--right", "infer:*"];
        let issued = run(&self.folder_of(Who::Cloud), &arguments)?;
        Ok(issued["token"].as_str().unwrap_or_default().to_owned())
    }

    fn folder_of(&self, who: Who) -> PathBuf {
        self.folder.join(who.name())
    }

    /// Writes what a node needs before its first start.
    fn furnish(&self, who: Who) -> Result<(), TaskError> {
        let folder = self.folder_of(who);
        std::fs::create_dir_all(&folder).map_err(|why| error::file(&folder, &why))?;
        let contacts = match who {
            Who::Sat | Who::Dish => format!("contacts = {:?}\n", folder.join("contacts.toml")),
            _ => String::new(),
        };
        let (tier, slowdown) = (who.tier(), who.slowdown());
        let config = format!(
            "tier = \"{tier}\"\nbackend = \"tract\"\n[compute]\nslowdown = {slowdown}\n[mesh]\nlisten = \"127.0.0.1:0\"\n\
             find-neighbours = false\n{contacts}"
        );
        write(&folder.join("node.toml"), &config)?;
        write(&folder.join("contacts.toml"), "")?;
        write(&folder.join("links.toml"), "[[link]]\nto = \"all\"\n")
    }

    fn process(&self, who: Who) -> Result<Process, TaskError> {
        let folder = self.folder_of(who);
        if who == Who::Cloud {
            return Process::start(&folder, &GATEWAY);
        }
        // The dish lets others fetch the model that it plans with.
        let invite = ["mesh", "invite", "--tier", who.tier(), "--right", "deploy:*"];
        let invitation = run(&self.folder_of(Who::Cloud), &invite)?;
        let word = invitation["invitation"].as_str().unwrap_or_default().to_owned();
        Process::start(&folder, &[&UP[..], &["--join", &word]].concat())
    }

    /// Waits until a node has met so many others: it looks for all of them when it is asked what they offer.
    fn until(&self, app: &App, who: Who, others: usize) -> Result<(), TaskError> {
        let started = Instant::now();
        loop {
            let offers: Vec<NodeOffer> = self.node(who).control().get("/mesh/offers")?;
            let met = offers.iter().filter(|offer| !offer.here).count();
            if met >= others {
                return Ok(());
            }
            if started.elapsed() > MEET {
                return Err(TaskError::unavailable(format!(
                    "`{who}` has met {met} of {others} other nodes after {} s",
                    MEET.as_secs()
                )));
            }
            pause(app, LOOK)?;
        }
    }

    /// Tells every node how its links behave now. They notice within a tenth of a second.
    fn write_links(&self) -> Result<(), TaskError> {
        for (from, node) in &self.nodes {
            let mut text = String::new();
            for (to, other) in self.nodes.iter().filter(|(to, _)| *to != from) {
                text.push_str(&self.links.describe(*from, *to, other.id()));
            }
            write(&node.folder().join("links.toml"), &text)?;
        }
        Ok(())
    }
}

impl Links {
    fn describe(self, from: Who, to: Who, id: NodeId) -> String {
        let is_space = from == Who::Sat || to == Who::Sat;
        let goes_up = from.is_edge() != to.is_edge() && !is_space;
        let is_there = match from.link_to(to) {
            // Before the launch it stands beside the others.
            None => !self.launched,
            Some(_) if is_space => self.passes,
            Some(_) => self.uplink || !goes_up,
        };
        let (delay, rate) = from.link_to(to).unwrap_or((1, 100_000));
        let outage = match is_there {
            true => "",
            false => "outages = [{ start = \"0s\", length = \"1000d\" }]\n",
        };
        format!("[[link]]\nto = \"{id}\"\ndelay = \"{delay}ms\"\nrate = \"{rate} kbit/s\"\n{outage}")
    }
}

/// How the gateway is started, and how a node is that has been in the mesh before.
const GATEWAY: [&str; 3] = ["gateway", "--listen", "127.0.0.1:0"];
const UP: [&str; 4] = ["node", "up", "--listen", "127.0.0.1:0"];

/// What a node knows of the others.
pub(super) fn peers(node: &Process) -> Result<Vec<PeerStatus>, TaskError> {
    node.control().get("/mesh/peers")
}

/// Waits.
pub(super) fn pause(app: &App, time: Duration) -> Result<(), TaskError> {
    app.block_on(async {
        tokio::time::sleep(time).await;
        Ok(())
    })
}

/// Writes a file at once: who reads it finds the old text or the new one.
fn write(path: &Path, text: &str) -> Result<(), TaskError> {
    let beside = path.with_extension("new");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|why| error::file(path, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_space::LinkProfile;
    use karman_types::Tier;

    #[test]
    fn a_link_is_there_when_it_should_be() {
        let id = NodeId::of_key(b"other");
        let links = Links {
            launched: true,
            passes: false,
            uplink: true,
        };
        let is_there = |links: Links, from, to| {
            let profile = LinkProfile::from_toml(&links.describe(from, to, id)).unwrap();
            profile
                .to(id, Tier::Edge)
                .unwrap()
                .outage(Duration::ZERO)
                .is_none()
        };
        let passes = Links {
            passes: true,
            ..links
        };
        let no_uplink = Links {
            uplink: false,
            ..passes
        };
        for (from, to, there) in [
            (Who::Sat, Who::Dish, [false, true, true]),
            (Who::Dish, Who::Sat, [false, true, true]),
            (Who::Sat, Who::Cloud, [false, false, false]),
            (Who::Dish, Who::Cloud, [true, true, false]),
            (Who::Fog, Who::Siren, [true, true, false]),
            (Who::Dish, Who::Siren, [true, true, true]),
            (Who::Fog, Who::Cloud, [true, true, true]),
        ] {
            let found = [links, passes, no_uplink].map(|links| is_there(links, from, to));
            assert_eq!(found, there, "{from} to {to}");
        }
        let on_the_ground = Links {
            launched: false,
            ..links
        };
        assert!(is_there(on_the_ground, Who::Sat, Who::Cloud));
    }
}
