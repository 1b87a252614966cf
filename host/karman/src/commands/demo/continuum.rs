use super::ending::Children;
use super::links::Links;
pub(super) use super::links::Who;
use super::process::{Process, run};
use super::sky::{self, Pass};
use crate::app::App;
use crate::control::Control;
use crate::error;
use crate::link_profile::CHANGED;
use karman_node::{LogEvent, NodeOffer, PeerStatus};
use karman_types::{NodeId, TaskError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait until nodes have met, or go by new links.
const MEET: Duration = Duration::from_secs(30);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes sent from one node to another.
pub(super) type Sent = BTreeMap<(Who, Who), u64>;

/// The five nodes.
pub(super) struct Continuum {
    folder: PathBuf,
    children: Children,
    nodes: BTreeMap<Who, Process>,
    links: Links,
}

impl Continuum {
    /// Starts them, in one mesh.
    ///
    /// # Errors
    /// What keeps one of them from coming up.
    pub(super) fn start(app: &App, folder: &Path, children: Children) -> Result<Self, TaskError> {
        let mut continuum = Self {
            folder: folder.to_owned(),
            children,
            nodes: BTreeMap::new(),
            links: Links {
                launched: false,
                passes: true,
                uplink: true,
            },
        };
        // The gateway's configuration names others: it comes last.
        for who in Who::ALL.into_iter().rev() {
            continuum.furnish(who)?;
        }
        run(&continuum.folder_of(Who::Cloud), &["mesh", "init"])?;
        for who in Who::ALL {
            let process = continuum.process(who)?;
            continuum.nodes.insert(who, process);
        }
        continuum.write_links(app)?;
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

    /// From now on the satellite reaches the dish only while it passes; those who plan with it are told when that is, and the gateway
    /// where it is meanwhile, from the end of the pass before on.
    pub(super) fn launch(
        &mut self,
        app: &App,
        before: Option<&Pass>,
        plan: &[Pass],
    ) -> Result<(), TaskError> {
        self.plan(before, plan)?;
        (self.links.launched, self.links.passes) = (true, false);
        self.write_links(app)
    }

    /// Those who plan with the passes are told when they are now, and the gateway where the satellite is. Nodes look at their plan before
    /// they act by it, and every two seconds: one that is put off is known in time.
    pub(super) fn plan(&self, before: Option<&Pass>, plan: &[Pass]) -> Result<(), TaskError> {
        let text: String = plan.iter().map(Pass::as_contacts).collect();
        for who in PLANNING {
            write(&self.folder_of(who).join("contacts.toml"), &text)?;
        }
        let moments: String = before.into_iter().chain(plan).map(Pass::as_moments).collect();
        write(&self.folder_of(Who::Cloud).join("replay.toml"), &moments)
    }

    /// The satellite comes over the dish, or goes. Once this returns, the links behave like that.
    pub(super) fn passes(&mut self, app: &App, passes: bool) -> Result<(), TaskError> {
        self.links.passes = passes;
        self.write_links(app)
    }

    /// The edge has an uplink, or has none. Once this returns, the links behave like that.
    pub(super) fn uplink(&mut self, app: &App, uplink: bool) -> Result<(), TaskError> {
        self.links.uplink = uplink;
        self.write_links(app)
    }

    /// On the ground all is well again.
    pub(super) fn heal(&mut self, app: &App) -> Result<(), TaskError> {
        if !self.node(Who::Fog).is_up() {
            let process = Process::start(&self.children, &self.folder_of(Who::Fog), &UP)?;
            self.nodes.insert(Who::Fog, process);
        }
        self.uplink(app, true)?;
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
        reaches(self.node(Who::Sat).control(), self.node(Who::Dish).id())
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

    /// A token for the gateway.
    pub(super) fn token(&self, rights: &[&str]) -> Result<String, TaskError> {
        let mut arguments = vec!["token", "issue", "demo"];
        rights
            .iter()
            .for_each(|right| arguments.extend(["--right", right]));
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
        let contacts = match PLANNING.contains(&who) {
            true => format!("contacts = {:?}\n", folder.join("contacts.toml")),
            false => String::new(),
        };
        let orbits = match who {
            Who::Cloud => self.orbits(&folder)?,
            _ => String::new(),
        };
        let (tier, slowdown) = (who.tier(), who.slowdown());
        let config = format!(
            "tier = \"{tier}\"\nbackend = \"tract\"\n[compute]\nslowdown = {slowdown}\n[mesh]\nlisten = \"127.0.0.1:0\"\n\
             find-neighbours = false\n{contacts}{orbits}"
        );
        write(&folder.join("node.toml"), &config)?;
        write(&folder.join("contacts.toml"), "")?;
        write(&folder.join("links.toml"), "[[link]]\nto = \"all\"\n")
    }

    /// What the gateway has to know to show where the satellite is.
    fn orbits(&self, folder: &Path) -> Result<String, TaskError> {
        let id = |who: Who| {
            let said = run(&self.folder_of(who), &["node", "id"])?;
            let id = said["node"].as_str().and_then(|id| id.parse::<NodeId>().ok());
            id.ok_or_else(|| TaskError::internal(format!("`{who}` does not say who it is: {said}")))
        };
        let (elements, replay) = (folder.join("elements.tle"), folder.join("replay.toml"));
        write(&elements, sky::ELEMENTS)?;
        write(&replay, "")?;
        Ok(sky::orbits(id(Who::Sat)?, id(Who::Dish)?, &elements, &replay))
    }

    fn process(&self, who: Who) -> Result<Process, TaskError> {
        let folder = self.folder_of(who);
        if who == Who::Cloud {
            return Process::start(&self.children, &folder, &GATEWAY);
        }
        // The dish lets others fetch the model that it plans with.
        let invite = ["mesh", "invite", "--tier", who.tier(), "--right", "deploy:*"];
        let invitation = run(&self.folder_of(Who::Cloud), &invite)?;
        let word = invitation["invitation"].as_str().unwrap_or_default().to_owned();
        Process::start(&self.children, &folder, &[&UP[..], &["--join", &word]].concat())
    }

    /// Waits until a node has met this many others: it looks for all of them when it is asked what they offer.
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

    /// Tells every node how its links behave now, and waits until each that answers goes by it: one that was killed, or that somebody
    /// has stopped, has no links.
    fn write_links(&self, app: &App) -> Result<(), TaskError> {
        let mut told = Vec::new();
        for (from, node) in &self.nodes {
            let before = last_event(node);
            let mut text = String::new();
            for (to, other) in self.nodes.iter().filter(|(to, _)| *to != from) {
                text.push_str(&self.links.describe(*from, *to, other.id()));
            }
            write(&node.folder().join("links.toml"), &text)?;
            told.extend(before.map(|before| (*from, before)));
        }
        let until = Instant::now() + MEET;
        told.into_iter()
            .try_for_each(|(who, before)| self.goes_by_links(app, who, before, until))
    }

    /// Waits until a node says after this event of its log that its links have changed.
    fn goes_by_links(&self, app: &App, who: Who, before: u64, until: Instant) -> Result<(), TaskError> {
        while let Some(events) = events(self.node(who), before) {
            if events.iter().any(|event| event.message.starts_with(CHANGED)) {
                break;
            }
            if Instant::now() > until {
                return Err(TaskError::unavailable(format!(
                    "`{who}` does not go by its new links after {} s",
                    MEET.as_secs()
                )));
            }
            pause(app, LOOK)?;
        }
        Ok(())
    }
}

/// Who knows when the satellite passes: the two that meet then, and the gateway, whose dashboard shows it.
const PLANNING: [Who; 3] = [Who::Sat, Who::Dish, Who::Cloud];
/// How the gateway is started, and how a node is that has been in the mesh before.
const GATEWAY: [&str; 3] = ["gateway", "--listen", "127.0.0.1:0"];
const UP: [&str; 4] = ["node", "up", "--listen", "127.0.0.1:0"];

/// What a node knows of the others.
pub(super) fn peers(node: &Process) -> Result<Vec<PeerStatus>, TaskError> {
    node.control().get("/mesh/peers")
}

/// What the log of a node has after this event; nothing where it is not up.
fn events(node: &Process, after: u64) -> Option<Vec<LogEvent>> {
    let up = node.is_up().then_some(node)?;
    up.control().get(&format!("/logs?after={after}")).ok()
}

/// The number of the last of them; nothing where the node is not up.
fn last_event(node: &Process) -> Option<u64> {
    let events = events(node, 0)?;
    Some(events.last().map_or(0, |event| event.number))
}

/// Whether a node has a path to another one now.
pub(super) fn reaches(control: &Control, other: NodeId) -> Result<bool, TaskError> {
    let peers: Vec<PeerStatus> = control.get("/mesh/peers")?;
    Ok(peers.iter().any(|peer| peer.node == other && peer.path.is_some()))
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
