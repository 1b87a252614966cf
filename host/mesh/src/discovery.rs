//! Who offers what: asked of the DHT, and then of the nodes themselves.

mod lately;
mod nodes;
mod tree;

pub(crate) use nodes::keep_depth;
pub(crate) use tree::Branch;

use self::lately::All;
use crate::mesh::Mesh;
use crate::offer::{self, TIERS};
use crate::peers::Known;
use crate::under_way::UnderWay;
use futures::future::{BoxFuture, ready};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use karman_types::Offer;
use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// How long an answer of the DHT is used again. A search takes several round trips and, in a large mesh, a megabyte; a call should not.
const LATELY: Duration = Duration::from_secs(30);
/// The same while all that it named run the task and one has a free core, for what changes there they tell by themselves. Half of it is luck, so
/// that callers do not search together. A newcomer that is connected is found within a second, any other within this time.
const SUFFICES: Duration = Duration::from_secs(120);
/// How long nobody is searched for once more where nobody was found: all that wait for a provider ask at once, and again and again.
const IN_VAIN: Duration = Duration::from_secs(1);
/// How often it is completed by those that are there and have said meanwhile that they offer the task.
const COMPLETED: Duration = Duration::from_secs(1);
/// How much longer than the first one other providers may take to say what they offer.
const OTHERS: Duration = Duration::from_millis(250);
/// How long a node is waited for that is missed, at least, and how long one was that is from then on.
const DOUBTED: Duration = Duration::from_secs(1);
/// Tasks of which the answer is remembered.
const MOST_FOUND: usize = 1024;

/// A node that offers what was asked for.
#[derive(Clone, Debug)]
pub struct Provider {
    /// By which it is called.
    pub id: PeerId,
    /// What it offers.
    pub offer: Arc<Offer>,
    /// Calls under way there, as far as is known here.
    pub busy: u32,
}

impl Provider {
    fn of(id: PeerId, (offer, busy): Known) -> Self {
        Self { id, offer, busy }
    }
}

/// Providers that the DHT has named lately, by task, and what it is asked now. That it named none is remembered for a moment only: the next
/// answer may have one.
#[derive(Default)]
pub(crate) struct Found {
    lately: Mutex<HashMap<String, Answer>>,
    under_way: UnderWay<String, HashSet<PeerId>>,
    all: All,
}

struct Answer {
    providers: HashSet<PeerId>,
    /// How many nodes had come into reach when the search began, where it has found nobody.
    in_vain: Option<u64>,
    searched: Instant,
    completed: Instant,
    /// From 0 up to 1.
    luck: f64,
    /// Some have not said in time, since the search, that they run the task.
    lost: bool,
    /// One of them had a free core when they were asked last.
    free: bool,
}

impl Answer {
    /// Whether it may be used again.
    fn holds(&self) -> bool {
        let holds = match (self.in_vain, self.free && !self.lost) {
            (Some(_), _) => IN_VAIN,
            (None, true) => SUFFICES.mul_f64(0.5 + self.luck / 2.0),
            (None, false) => LATELY,
        };
        self.searched.elapsed() < holds
    }
}

impl Found {
    /// What was found lately, and nodes that have begun to offer the task since.
    fn lately(&self, task: &str, offering: impl FnOnce() -> Vec<PeerId>) -> Option<HashSet<PeerId>> {
        let mut found = self.lately.lock();
        let answer = found.get_mut(task)?;
        if !answer.holds() {
            return None;
        }
        if answer.completed.elapsed() >= COMPLETED {
            answer.providers.extend(offering());
            answer.completed = Instant::now();
        }
        Some(answer.providers.clone())
    }

    /// Whether a search has found nobody a moment ago, and no node has come into reach since: that makes it worth another one.
    fn in_vain(&self, task: &str, arrivals: u64) -> bool {
        let found = self.lately.lock();
        let answer = found.get(task).filter(|answer| answer.holds());
        answer.is_some_and(|answer| answer.in_vain == Some(arrivals))
    }

    /// Leaves out those that were asked and did not say in time that they run the task, so that they hold up no other call; they are
    /// back when they have said so. Whom somebody else has found meanwhile stays.
    fn keep(&self, task: &str, asked: &HashSet<PeerId>, providers: &[Provider]) {
        let mut lately = self.lately.lock();
        let Some(answer) = lately.get_mut(task) else {
            return;
        };
        answer.free = has_free_core(providers);
        if asked.len() > providers.len() {
            answer.lost = true;
            let said: HashSet<PeerId> = providers.iter().map(|provider| provider.id).collect();
            let is_silent = |id: &PeerId| asked.contains(id) && !said.contains(id);
            answer.providers.retain(|id| !is_silent(id));
        }
    }

    fn remember(&self, task: &str, providers: &[Provider], arrivals: u64) {
        let mut found = self.lately.lock();
        if found.len() >= MOST_FOUND {
            found.retain(|_, answer| answer.holds());
        }
        if found.len() < MOST_FOUND || found.contains_key(task) {
            let now = Instant::now();
            let answer = Answer {
                providers: providers.iter().map(|provider| provider.id).collect(),
                in_vain: providers.is_empty().then_some(arrivals),
                searched: now,
                completed: now,
                luck: fastrand::f64(),
                lost: false,
                free: has_free_core(providers),
            };
            found.insert(task.to_owned(), answer);
        }
    }
}

fn has_free_core(providers: &[Provider]) -> bool {
    providers
        .iter()
        .any(|provider| provider.busy < provider.offer.cores)
}

impl Mesh {
    /// Who offers this task, this node left out.
    pub async fn providers(&self, task: &str) -> Vec<Provider> {
        let mut providers = Vec::new();
        if let Some(found) = self.0.found.lately(task, || self.0.peers.offering(task)) {
            providers = self.that_run(task, found.clone()).await;
            self.0.found.keep(task, &found, &providers);
        }
        let arrivals = *self.0.peers.arrivals().borrow();
        if providers.is_empty() && !self.0.found.in_vain(task, arrivals) {
            let search = self.0.found.under_way.share(task, || self.search_for(task));
            let found = search.await;
            providers = self.that_run(task, found).await;
            self.0.found.remember(task, &providers, arrivals);
        }
        if providers.is_empty() {
            // A neighbour that has just come may not have announced itself yet.
            providers = self.that_run(task, self.connected()).await;
        }
        providers
    }

    /// Asks the DHT who announced the task.
    fn search_for(&self, task: &str) -> BoxFuture<'static, HashSet<PeerId>> {
        let (mesh, keys) = (self.clone(), TIERS.map(|tier| offer::task_key(task, tier)));
        async move { mesh.find(keys).await }.boxed()
    }

    /// The last round trip to a node, and when it last said what it offers: nothing where neither is known.
    pub fn last_heard(&self, id: &PeerId) -> (Option<Duration>, Option<Instant>) {
        self.0.peers.last_heard(id)
    }

    fn connected(&self) -> HashSet<PeerId> {
        self.0.peers.there().into_iter().collect()
    }

    /// Those of the nodes that offer the task. Once there is one, the others have little time left to say so: a node that is
    /// gone holds nobody up.
    async fn that_run(&self, task: &str, nodes: HashSet<PeerId>) -> Vec<Provider> {
        self.heard(nodes, |offer: &Offer| offer.runs(task).is_some(), true)
            .await
    }

    /// What these nodes offer, where it is what is wanted; in a `hurry`, of those that say so soon after the first. For nodes that are
    /// missed nobody waits long. What anyone says later is heard all the same.
    async fn heard(
        &self,
        nodes: HashSet<PeerId>,
        wanted: impl Fn(&Offer) -> bool,
        hurry: bool,
    ) -> Vec<Provider> {
        let now = Instant::now();
        let is_missed = |id: &PeerId| self.0.missed.is_missed(id, self.0.peers.since(id), now);
        let missed: HashSet<PeerId> = nodes.iter().copied().filter(is_missed).collect();
        let mut awaited = nodes.len() - missed.len();
        let patience = nodes.iter().map(|id| self.patience(id)).max();
        let doubted = missed.iter().map(|id| self.doubted(id)).max();
        let asked = nodes.into_iter().map(|id| {
            let mesh = self.clone();
            async move { (id, mesh.known(id).await) }
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut found = Vec::new();
        let mut until = now + patience.unwrap_or_default();
        loop {
            if hurry && !found.is_empty() {
                until = until.min(Instant::now() + OTHERS);
            } else if awaited == 0 {
                until = until.min(Instant::now() + doubted.unwrap_or_default());
            }
            let Ok(Some((id, known))) = timeout_at(until.into(), asked.next()).await else {
                break;
            };
            awaited -= usize::from(!missed.contains(&id));
            let provider = known.map(|known| Provider::of(id, known));
            found.extend(provider.filter(|provider| wanted(&provider.offer)));
        }
        if !asked.is_empty() {
            tokio::spawn(asked.for_each(|_| ready(())));
        }
        found
    }

    /// How long this node is waited for where it is missed: its answer needs a round trip.
    fn doubted(&self, id: &PeerId) -> Duration {
        let round_trip = self.0.peers.round_trip(id).unwrap_or_default();
        DOUBTED.max(round_trip.saturating_mul(2).min(self.patience(id)))
    }

    /// What the node says of itself; nothing when it does not say so in time.
    async fn known(&self, id: PeerId) -> Option<Known> {
        if let Some(fresh) = self.0.peers.fresh(&id) {
            return Some(fresh);
        }
        let begun = Instant::now();
        match self.ask(id).await {
            Ok(known) => {
                self.0.missed.answers(&id);
                Some(known)
            }
            Err(error) => {
                tracing::debug!(%error, "an offer is not known");
                // One whose machine refuses at once holds nobody up.
                if begun.elapsed() >= DOUBTED {
                    self.0.missed.misses(id, Instant::now());
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calling::PATIENCE;
    use crate::membership::RootKey;
    use crate::support::start;
    use karman_types::{NodeId, Tier};
    use std::net::{TcpListener, UdpSocket};

    fn offer() -> Offer {
        Offer {
            node: NodeId::of_key(b"a node"),
            tier: Tier::Edge,
            cores: 1,
            memory: 1,
            tasks: Vec::new(),
            models: Vec::new(),
        }
    }

    #[test]
    fn who_offers_a_task_since_it_was_searched_for_is_found_too() {
        let (found, task) = (Found::default(), "vision/segmentation");
        let (first, second) = (PeerId::random(), PeerId::random());
        let lately = || found.lately(task, || vec![second]);
        assert_eq!(lately(), None);
        found.remember(task, &[], 7);
        let ago = |age| Instant::now().checked_sub(age).unwrap();
        {
            // However long this test takes, it was a moment ago.
            let mut all = found.lately.lock();
            let answer = all.get_mut(task).unwrap();
            answer.searched = Instant::now() + LATELY;
            answer.completed = answer.searched;
        }
        assert_eq!(lately(), Some(HashSet::new()));
        assert!(found.in_vain(task, 7) && !found.in_vain(task, 8));
        // Who says so meanwhile is called at once; and soon others are searched for once more.
        found.lately.lock().get_mut(task).unwrap().completed = ago(COMPLETED);
        assert_eq!(lately(), Some(HashSet::from([second])));
        found.lately.lock().get_mut(task).unwrap().searched = ago(IN_VAIN);
        assert!(!found.in_vain(task, 7));
        assert_eq!(lately(), None);
        found.remember(task, &[Provider::of(first, (Arc::new(offer()), 0))], 0);
        assert!(!found.in_vain(task, 0));
        assert_eq!(lately(), Some(HashSet::from([first])));
        found.lately.lock().get_mut(task).unwrap().completed = ago(COMPLETED);
        assert_eq!(lately(), Some(HashSet::from([first, second])));
        found.lately.lock().get_mut(task).unwrap().searched = ago(SUFFICES);
        assert_eq!(lately(), None);
    }

    #[test]
    fn an_answer_is_used_for_longer_while_all_run_the_task_and_one_is_free() {
        let (found, task) = (Found::default(), "vision/segmentation");
        let ids = [(); 2].map(|()| PeerId::random());
        let busy = |busy: [u32; 2]| {
            let both = ids.into_iter().zip(busy);
            let both = both.map(|(id, busy)| Provider::of(id, (Arc::new(offer()), busy)));
            both.collect::<Vec<_>>()
        };
        let holds = |age| {
            let searched = Instant::now().checked_sub(age).unwrap();
            found.lately.lock().get_mut(task).unwrap().searched = searched;
            found.lately(task, Vec::new).is_some()
        };
        let asked = HashSet::from(ids);
        found.remember(task, &busy([0, 1]), 0);
        found.lately.lock().get_mut(task).unwrap().luck = 0.5;
        assert!(holds(SUFFICES / 2) && !holds(SUFFICES * 3 / 4));
        found.keep(task, &asked, &busy([1, 1]));
        assert!(!holds(LATELY), "none has a free core");
        found.keep(task, &asked, &busy([1, 0]));
        assert!(holds(LATELY));
        found.keep(task, &asked, &busy([0, 0])[..1]);
        assert!(!holds(LATELY), "one is lost");
        found.keep(task, &HashSet::from([ids[0]]), &busy([0, 0])[..1]);
        assert!(!holds(LATELY), "it still is");
    }

    #[test]
    fn who_did_not_answer_is_left_out_until_it_has_said_what_it_offers() {
        let (found, task) = (Found::default(), "vision/segmentation");
        let [here, gone, new] = [(); 3].map(|()| PeerId::random());
        let [said, silent, found_since] =
            [here, gone, new].map(|id| Provider::of(id, (Arc::new(offer()), 0)));
        found.remember(task, &[said.clone(), silent.clone()], 0);
        let lately = || found.lately(task, || vec![gone]);
        assert_eq!(lately(), Some(HashSet::from([here, gone])));
        let asked = lately().unwrap();
        // Another caller searches while they are asked.
        found.remember(task, &[said.clone(), silent, found_since], 0);
        found.keep(task, &asked, &[said]);
        assert_eq!(lately(), Some(HashSet::from([here, new])));
        let ago = Instant::now().checked_sub(COMPLETED).unwrap();
        found.lately.lock().get_mut(task).unwrap().completed = ago;
        assert_eq!(lately(), Some(HashSet::from([here, gone, new])));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_that_is_silent_is_waited_for_once() {
        let node = start(None, Some(&RootKey::generate().unwrap()));
        let gone = PeerId::random();
        // The machine does not refuse what comes to its port, over neither of the two.
        let mut tries = std::iter::repeat_with(|| {
            let takes = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = takes.local_addr().unwrap().port();
            let silent = UdpSocket::bind(("127.0.0.1", port)).ok()?;
            Some((takes, silent, port))
        });
        let (_takes, _silent, port) = tries.find_map(|free| free).unwrap();
        let address = format!("/ip4/127.0.0.1/udp/{port}/quic-v1/p2p/{gone}");
        let asks = async || {
            node.mesh.dial(address.parse().unwrap()).await;
            // What was ordered before is under way when this is answered.
            node.mesh.addresses().await;
            let started = Instant::now();
            let all = node.mesh.heard(HashSet::from([gone]), |_| true, false);
            assert!(all.await.is_empty());
            started.elapsed()
        };
        let first = asks().await;
        let answered = Instant::now();
        while !node.mesh.0.missed.is_missed(&gone, None, Instant::now()) {
            assert!(answered.elapsed() < 6 * PATIENCE, "nobody misses it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = asks().await;
        assert!(second < first, "{second:?} {first:?}");
    }
}
