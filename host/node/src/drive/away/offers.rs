//! What nodes offered when they were last in reach: while they are away, nobody can ask them.

use crate::contacts;
use crate::contacts::wall_ms;
use crate::drive::bundles::MOST_BUNDLE;
use crate::drive::tasks::Inner;
use crate::node::Node;
use crate::services::blocking;
use karman_mesh::Mesh;
use karman_space::{Bundle, ContactPlan, earliest_arrival};
use karman_store::Store;
use karman_types::{NodeId, Offer, TaskError, TaskId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const RECORD: &str = "away-offers";
/// Nodes whose offers are remembered, and tasks of each.
const MOST: usize = 256;
const MOST_TASKS: usize = 256;
/// Bytes of the name of one.
const MOST_NAME: usize = 256;
/// How often a node in reach is asked that has not answered yet.
const ASKED_AGAIN: Duration = Duration::from_secs(30);
/// How often one with planned contacts is asked that has, and does not tell by itself what changes: longer than a connection stays
/// that nobody uses. One that is asked again and again stays connected for ever.
const HEARD_AGAIN: Duration = Duration::from_secs(600);
/// How often what has changed at nodes that are known goes to the disk: they may change it as often as they like.
const WRITTEN_AGAIN: Duration = Duration::from_secs(60);
/// How far ahead a way to a node may begin.
const HORIZON: Duration = Duration::from_secs(30 * 86_400);
/// What goes around the input of a task in its bundle, at most or nearly so.
const AROUND: u64 = 32 << 10;

/// The names of the tasks that nodes run.
type Known = BTreeMap<NodeId, BTreeSet<String>>;

pub(super) struct Offers {
    store: Store,
    known: Mutex<Known>,
    news: Mutex<News>,
    asked: Mutex<HashMap<NodeId, Instant>>,
}

/// What is not on the disk yet.
#[derive(Default)]
struct News {
    /// Of nodes that were not known: worth to be written at once.
    first: bool,
    any: bool,
    written: Option<Instant>,
}

impl Offers {
    pub(super) fn open(store: Store) -> Result<Self, TaskError> {
        let known = store.mesh().get(RECORD)?;
        Ok(Self {
            known: Mutex::new(known.unwrap_or_default()),
            news: Mutex::default(),
            asked: Mutex::default(),
            store,
        })
    }

    /// The name under which the node ran this task, or one below it in the tree of capabilities, when it was last here.
    pub(super) fn name_at(&self, node: NodeId, task: &str) -> Option<String> {
        name_among(self.known.lock().get(&node)?, task).cloned()
    }

    fn nodes_with(&self, task: &str) -> Vec<NodeId> {
        let known = self.known.lock();
        let with = known
            .iter()
            .filter(|(_, names)| name_among(names, task).is_some());
        with.map(|(node, _)| *node).collect()
    }

    /// The node says that it does not run this any more.
    pub(super) fn runs_no_longer(&self, node: NodeId, name: &str) {
        let mut known = self.known.lock();
        if known.get_mut(&node).is_some_and(|names| names.remove(name)) {
            self.news.lock().any = true;
        }
    }

    /// Remembers what a node offers. Where enough are known, one that no contact is planned with gives way to one that there is.
    fn remember(&self, offer: &Offer, is_planned: impl Fn(NodeId) -> bool) {
        let names = offer.tasks.iter().map(|task| &task.name);
        let names: BTreeSet<String> = names
            .filter(|name| name.len() <= MOST_NAME)
            .take(MOST_TASKS)
            .cloned()
            .collect();
        let mut known = self.known.lock();
        // One that is about to stop offers nothing, and will again.
        if names.is_empty() || known.get(&offer.node) == Some(&names) {
            return;
        }
        let first = !known.contains_key(&offer.node);
        if first && known.len() >= MOST {
            let unplanned = known.keys().find(|node| !is_planned(**node)).copied();
            let Some(gives_way) = unplanned.filter(|_| is_planned(offer.node)) else {
                return;
            };
            known.remove(&gives_way);
        }
        known.insert(offer.node, names);
        let mut news = self.news.lock();
        (news.first, news.any) = (news.first || first, true);
    }

    /// What is to be written now, if anything.
    fn due(&self) -> Option<Known> {
        let mut news = self.news.lock();
        let lately = news
            .written
            .is_some_and(|written| written.elapsed() < WRITTEN_AGAIN);
        if !news.first && (!news.any || lately) {
            return None;
        }
        *news = News {
            written: Some(Instant::now()),
            ..News::default()
        };
        drop(news);
        Some(self.known.lock().clone())
    }

    async fn write(&self, known: Known) {
        let store = self.store.clone();
        let nodes: Vec<String> = known.keys().map(ToString::to_string).collect();
        let written = blocking(move || store.mesh().put(RECORD, &known).map_err(TaskError::from));
        match written.await {
            Ok(()) => tracing::info!(?nodes, "what nodes offer is remembered"),
            Err(error) => tracing::warn!(%error, "what nodes offer is not remembered"),
        }
    }

    /// Whether to ask a node now that is in reach since then, and has last been heard at that time.
    fn asks(&self, node: NodeId, since: Instant, heard: Option<Instant>, is_planned: bool) -> bool {
        let is_enough = |heard: Instant| heard >= since && (!is_planned || heard.elapsed() < HEARD_AGAIN);
        if heard.is_some_and(is_enough) {
            return false;
        }
        let mut asked = self.asked.lock();
        asked.retain(|_, when| when.elapsed() < ASKED_AGAIN);
        let lately = asked.contains_key(&node);
        if !lately {
            asked.insert(node, Instant::now());
        }
        !lately
    }
}

fn name_among<'a>(names: &'a BTreeSet<String>, task: &str) -> Option<&'a String> {
    let below = |name: &&String| name.strip_prefix(task).is_some_and(|rest| rest.starts_with('/'));
    names.get(task).or_else(|| names.iter().find(below))
}

/// Hears what those offer that are in reach now, for when they are not any more. Each is asked when it has come, and tells for a while
/// what changes; its connection ends when nobody uses it.
pub(crate) async fn listen(node: &Node, mesh: &Mesh, plan: &ContactPlan) {
    let offers = &node.tasks().inner().away.offers;
    let is_planned = |node| plan.contacts_of(node).next().is_some();
    for peer in mesh.peers() {
        let (Some(since), Some(member)) = (peer.since, &peer.member) else {
            continue;
        };
        if let Some((offer, _)) = &peer.offer {
            offers.remember(offer, is_planned);
        }
        let heard = peer.offer.as_ref().map(|(_, when)| *when);
        if !peer.tells() && offers.asks(member.node, since, heard, is_planned(member.node)) {
            let (mesh, id, node) = (mesh.clone(), peer.id, member.node);
            tokio::spawn(async move {
                // What it says is among what is known of it next time.
                if let Err(error) = mesh.reach(id).await {
                    tracing::debug!(%node, %error, "it does not say what it offers");
                }
            });
        }
    }
    if let Some(known) = offers.due() {
        offers.write(known).await;
    }
}

/// Nodes out of reach that offered this task when they were here and to which planned contacts lead, the one that is reached
/// first first. None where there is no room for its bundle: the task waits then.
pub(in crate::drive) async fn reached_later(tasks: &Inner, task: TaskId, name: &str) -> Vec<NodeId> {
    let with = tasks.away.offers.nodes_with(name);
    if with.is_empty() || !has_room(tasks, task).await {
        return Vec::new();
    }
    let node = tasks.away.node();
    let Some((node, mesh)) = node.as_ref().and_then(|node| Some((node, node.mesh()?))) else {
        return Vec::new();
    };
    let is_there = |to: &NodeId| {
        let peer = mesh.key_of(*to).and_then(|key| karman_mesh::peer_of(&key));
        peer.is_none_or(|peer| mesh.is_connected(&peer))
    };
    let now = contacts::now();
    let (here, plan) = (node.runtime().id(), node.bundles().plan(now));
    let arrival = |to: NodeId| {
        let bundle = Bundle {
            source: here,
            destination: to,
            bytes: 1 << 10,
            sent: now,
            expires: now + HORIZON,
            split: true,
        };
        Some((earliest_arrival(&plan, &bundle).ok()?.arrival, to))
    };
    let out_of_reach = with.into_iter().filter(|to| *to != here && !is_there(to));
    let mut planned: Vec<_> = out_of_reach.filter_map(arrival).collect();
    planned.sort_unstable();
    planned.into_iter().map(|(_, to)| to).collect()
}

/// Whether one more task may go away, and its bundle would be kept.
async fn has_room(tasks: &Inner, task: TaskId) -> bool {
    let input = tasks
        .machine
        .lock()
        .record(task)
        .map_or(0, |record| record.weight());
    let (away, bytes) = (&tasks.away, input + AROUND);
    // It would never go: it waits for a node in reach.
    if bytes > MOST_BUNDLE {
        return false;
    }
    let store = away.store.clone();
    let kept = blocking(move || store.bundles().has_room(bytes).map_err(TaskError::from));
    let room = away.ledger.has_room(wall_ms()) && kept.await.unwrap_or(false);
    if away.full.swap(!room, Ordering::Relaxed) == room {
        match room {
            true => tracing::info!("there is room for tasks that go by bundle again"),
            false => tracing::warn!("there is no room for tasks that would go by bundle: they wait"),
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{Digest, OfferedTask, Tier};

    fn offer(node: &str, tasks: &[&str]) -> Offer {
        let task = |name: &&str| OfferedTask {
            name: (*name).to_owned(),
            version: semver::Version::new(0, 1, 0),
            id: Digest::of(name.as_bytes()),
        };
        Offer {
            node: NodeId::of_key(node.as_bytes()),
            tier: Tier::Space,
            cores: 1,
            memory: 0,
            tasks: tasks.iter().map(task).collect(),
            models: Vec::new(),
        }
    }

    fn offers() -> (Offers, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Offers::open(Store::open(folder.path()).unwrap()).unwrap(), folder)
    }

    #[test]
    fn one_that_the_plan_names_takes_the_place_of_one_that_it_does_not() {
        let (offers, _folder) = offers();
        for number in 0..MOST {
            offers.remember(&offer(&number.to_string(), &["tally"]), |_| false);
        }
        let [stranger, above] = ["stranger", "above"].map(|name| offer(name, &["tally"]));
        offers.remember(&stranger, |_| false);
        offers.remember(&above, |node| node == above.node);
        let with = offers.nodes_with("tally");
        assert_eq!(with.len(), MOST);
        assert!(with.contains(&above.node) && !with.contains(&stranger.node));
    }

    #[test]
    fn a_node_that_changes_its_offer_all_the_time_is_not_written_all_the_time() {
        let (offers, _folder) = offers();
        offers.remember(&offer("above", &["tally"]), |_| true);
        assert!(offers.due().is_some());
        for tasks in [["vision/road"], ["tally"], ["vision/road"]] {
            offers.remember(&offer("above", &tasks), |_| true);
            assert!(offers.due().is_none());
        }
        offers.remember(&offer("other", &["tally"]), |_| true);
        assert_eq!(offers.due().map(|known| known.len()), Some(2));
    }

    #[test]
    fn a_node_is_asked_when_it_has_come_and_left_alone_when_it_has_answered() {
        let (offers, _folder) = offers();
        let [one, two, three] = ["one", "two", "three"].map(|name| NodeId::of_key(name.as_bytes()));
        let (came, ago) = (Instant::now(), |age| Instant::now().checked_sub(age).unwrap());
        assert!(offers.asks(one, came, None, false));
        assert!(!offers.asks(one, came, None, false), "it was asked a moment ago");
        let answered = Some(came + Duration::from_millis(1));
        assert!(!offers.asks(two, came, answered, true));
        // What it said before it went may have changed since.
        assert!(offers.asks(two, came, came.checked_sub(Duration::from_secs(1)), false));
        let (came, answered) = (ago(2 * HEARD_AGAIN), Some(ago(HEARD_AGAIN)));
        assert!(!offers.asks(three, came, answered, false));
        assert!(offers.asks(three, came, answered, true), "it may go soon");
    }

    #[test]
    fn what_a_node_runs_no_longer_is_forgotten_and_nothing_else() {
        let (offers, _folder) = offers();
        let above = offer("above", &["vision/road", "vision/river"]);
        offers.remember(&above, |_| true);
        let found = |task: &str| offers.name_at(above.node, task);
        assert_eq!(found("vision").as_deref(), Some("vision/river"));
        offers.runs_no_longer(above.node, "vision/river");
        assert_eq!(found("vision").as_deref(), Some("vision/road"));
        // About to stop, it offers nothing for a while.
        offers.remember(&offer("above", &[]), |_| true);
        assert_eq!(offers.nodes_with("vision"), [above.node]);
    }
}
