//! Which nodes are the keepers, and how every node learns it: nodes that meet tell each other what they know.

use super::Inner;
use super::wire::{Message, send};
use bytes::Bytes;
use futures::future::join_all;
use karman_mesh::membership::Charter;
use karman_mesh::{Mesh, PeerId};
use karman_tasks::Event;
use karman_types::{ErrorKind, NodeId, TaskError};
use serde_bytes::ByteBuf;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

const RECORD: &str = "keepers";
/// How long a neighbour may take to say which keepers it knows.
const PATIENCE: Duration = Duration::from_secs(5);
/// When one is asked again that did not answer, at first and at last.
const AGAIN: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(60);
/// Nodes of which it is remembered what they have shown.
const MOST_SHOWN: usize = 4096;

impl Inner {
    /// The charter that this node knows of.
    pub(super) fn charter(&self) -> Option<Arc<Charter>> {
        self.charter.borrow().clone()
    }

    /// Takes up what the node knew before it was last stopped.
    pub(super) fn remember(&self, mesh: &Mesh) -> Result<(), TaskError> {
        let store = self.runtime.home().store()?;
        let known: Option<ByteBuf> = store.mesh().get(RECORD)?;
        match known.map(|bytes| mesh.standing().known_charter(&bytes)) {
            Some(Ok(charter)) => self.follow(charter),
            // That of another mesh, to which the node belonged before.
            Some(Err(error)) => {
                tracing::info!(%error, "the keepers that this node knew are not of this mesh")
            }
            None => {}
        }
        Ok(())
    }

    fn follow(&self, charter: Charter) {
        self.charter.send_replace(Some(Arc::new(charter)));
        if let Some(tasks) = self.tasks() {
            // Whether a majority is there shows when it is asked.
            tasks.feed(Event::Keepers {
                total: Charter::KEEPERS as u32,
                majority: true,
            });
        }
    }

    /// Takes a charter, if it is a later one than that which is known; its number.
    ///
    /// # Errors
    /// `invalid` when it is not signed by who may, `denied` when that one is revoked; what the disk refused.
    pub(super) fn adopt(&self, bytes: &[u8]) -> Result<u64, TaskError> {
        let mesh = self.mesh()?;
        let charter = mesh.standing().charter_of(bytes);
        let charter = charter.map_err(|error| TaskError::new(error.kind(), error.to_string()))?;
        let number = charter.number();
        let _one_at_a_time = self.adopting.lock();
        if self.charter().is_some_and(|known| known.number() >= number) {
            return Ok(number);
        }
        let store = self.runtime.home().store()?;
        let kept = store.mesh().put(RECORD, &ByteBuf::from(bytes));
        kept?;
        tracing::info!(number, "the mesh has keepers");
        self.follow(charter);
        Ok(number)
    }

    /// Signs the charter again where this node holds the root key, and one that was replaced had signed it. The keepers stay who they are.
    ///
    /// # Errors
    /// What the disk refused.
    pub(in crate::drive) fn sign_again(&self) -> Result<(), TaskError> {
        let (mesh, Some(charter)) = (self.mesh()?, self.charter()) else {
            return Ok(());
        };
        let is_signed = || Charter::decode(&mesh.standing().mesh(), &charter.encode()).is_ok();
        if !mesh.standing().holds_root() || is_signed() {
            return Ok(());
        }
        let keys: Vec<[u8; 32]> = charter.keepers().iter().copied().collect();
        match mesh.standing().charter(&keys, Some(&charter)) {
            Ok(next) => self.adopt(&next.encode()).map(drop),
            Err(error) => Err(TaskError::internal(error.to_string())),
        }
    }

    /// One before the latest that the same node has shown is sent again. It changes nothing, and is counted.
    fn has_shown(&self, node: NodeId, number: u64) {
        let mut shown = self.shown.lock();
        let latest = shown.get(&node).copied();
        match latest {
            Some(latest) if number < latest => self.refused("old-charter"),
            None if shown.len() >= MOST_SHOWN => {}
            _ => drop(shown.insert(node, number)),
        }
    }

    /// Takes what the other side knows, and answers what it does not know.
    ///
    /// # Errors
    /// Those of [`Self::adopt`]; one that is `denied` is not taken, and no error.
    pub(super) fn compare(&self, from: NodeId, theirs: Option<&[u8]>) -> Result<Option<Bytes>, TaskError> {
        if let Some(theirs) = theirs {
            match self.adopt(theirs) {
                Ok(number) => self.has_shown(from, number),
                // Who has signed it is revoked, say: it hears ours, and need not ask again.
                Err(error) if error.kind == ErrorKind::Denied => {
                    tracing::debug!(%from, %error, "a charter is not taken");
                }
                Err(error) => return Err(error),
            }
        }
        let ours = self.charter().map(|charter| Bytes::from(charter.encode()));
        Ok(ours.filter(|ours| theirs != Some(&**ours)))
    }
}

/// What was compared with which neighbours, and which did not answer. Pure: time is an argument.
#[derive(Default)]
struct Compared {
    /// By the number of the charter that both knew then.
    with: HashMap<PeerId, u64>,
    /// When they are asked again, and after which pause.
    silent: HashMap<PeerId, (Instant, Duration)>,
}

impl Compared {
    /// The neighbours to compare with, which know another charter than the one with this number, or may. What they know they have told at
    /// the gate, where they say so.
    fn due(
        &mut self,
        connected: &HashSet<PeerId>,
        number: u64,
        told: impl Fn(&PeerId) -> Option<u64>,
        now: Instant,
    ) -> Vec<PeerId> {
        self.with.retain(|peer, _| connected.contains(peer));
        let differs = |peer: &PeerId| self.with.get(peer).copied().or_else(|| told(peer)) != Some(number);
        self.silent
            .retain(|peer, _| connected.contains(peer) && differs(peer));
        let rests = |peer: &PeerId| self.silent.get(peer).is_some_and(|(due, _)| *due > now);
        let due = connected.iter().filter(|peer| differs(peer) && !rests(peer));
        due.copied().collect()
    }

    /// A neighbour has answered, and knows the charter with this number then; or it has not. One that is silent is asked more and more
    /// seldom.
    fn answers(&mut self, peer: PeerId, number: Option<u64>, now: Instant) {
        let before = self.silent.remove(&peer);
        match number {
            Some(number) => drop(self.with.insert(peer, number)),
            None => {
                let pause = before.map_or(AGAIN, |(_, pause)| (2 * pause).min(SELDOM));
                self.silent.insert(peer, (now + pause, pause));
            }
        }
    }

    /// When the next one is asked again.
    fn next(&self) -> Option<Instant> {
        self.silent.values().map(|(due, _)| *due).min()
    }
}

/// Compares with neighbours that may know others: when one comes, and when something new is known.
pub(super) async fn spread(keepers: Weak<Inner>) {
    let Some((mut arrivals, mut charters)) = keepers.upgrade().and_then(|inner| {
        let arrivals = inner.mesh().ok()?.arrivals();
        Some((arrivals, inner.charter.subscribe()))
    }) else {
        return;
    };
    let mut compared = Compared::default();
    loop {
        let Some(inner) = keepers.upgrade() else { return };
        let Ok(mesh) = inner.mesh() else { return };
        let standing = mesh.standing();
        let peers = mesh.peers().into_iter().filter(|peer| peer.path.is_some());
        let connected: HashSet<PeerId> = peers.map(|peer| peer.id).collect();
        let number = inner.charter().map_or(0, |charter| charter.number());
        standing.knows_charter(number);
        let told = |peer: &PeerId| standing.charter_known_by(peer);
        let due = compared.due(&connected, number, told, Instant::now());
        let asked = due.into_iter().map(|peer| {
            let inner = &inner;
            async move { (peer, inner.tell(peer).await) }
        });
        for (peer, number) in join_all(asked).await {
            compared.answers(peer, number, Instant::now());
        }
        drop(inner);
        let changed = async {
            tokio::select! {
                changed = arrivals.changed() => changed.is_ok(),
                changed = charters.changed() => changed.is_ok(),
            }
        };
        let gone = match compared.next() {
            Some(due) => timeout_at(due.into(), changed).await == Ok(false),
            None => !changed.await,
        };
        if gone {
            return;
        }
    }
}

impl Inner {
    /// Compares with a neighbour; the number of the charter that both know then, if it has answered.
    async fn tell(&self, peer: PeerId) -> Option<u64> {
        let ours = self.charter();
        let number = ours.as_ref().map_or(0, |ours| ours.number());
        let message = Message::Charter(ours.map(|ours| Bytes::from(ours.encode())));
        let mesh = self.mesh().ok()?;
        let asked = tokio::time::timeout(PATIENCE, send::<Option<Bytes>>(mesh, peer, &message)).await;
        match asked.ok()? {
            Ok(None) => Some(number),
            Ok(Some(theirs)) => {
                let adopted = self.adopt(&theirs);
                let adopted = adopted.inspect_err(|error| tracing::warn!(%peer, %error, "a charter"));
                // Where one of the two takes none of the other's, asking again does not help.
                Some(adopted.map_or(number, |theirs| theirs.max(number)))
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "which keepers it knows is not known");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_asked_that_may_know_another_charter() {
        let (mut compared, now) = (Compared::default(), Instant::now());
        let [same, other, says_nothing] = [(); 3].map(|()| PeerId::random());
        let connected = HashSet::from([same, other, says_nothing]);
        let told = |peer: &PeerId| match *peer {
            peer if peer == same => Some(7),
            peer if peer == other => Some(0),
            _ => None,
        };
        let due = |compared: &mut Compared, number| -> HashSet<PeerId> {
            compared.due(&connected, number, told, now).into_iter().collect()
        };
        assert_eq!(due(&mut compared, 7), HashSet::from([other, says_nothing]));
        for peer in [other, says_nothing] {
            compared.answers(peer, Some(7), now);
        }
        assert!(due(&mut compared, 7).is_empty() && compared.next().is_none());
        // This node has heard of others.
        assert_eq!(due(&mut compared, 8), connected);
        // One that has come again has told it at the gate.
        assert!(compared.due(&HashSet::new(), 7, told, now).is_empty());
        assert_eq!(due(&mut compared, 7), HashSet::from([other, says_nothing]));
    }

    #[test]
    fn one_that_is_silent_is_asked_more_and_more_seldom_and_no_other_with_it() {
        let (mut compared, start) = (Compared::default(), Instant::now());
        let [silent, answers] = [(); 2].map(|()| PeerId::random());
        let connected = HashSet::from([silent, answers]);
        compared.answers(answers, Some(7), start);
        let mut asked = Vec::new();
        let mut now = start;
        for _ in 0..8 {
            assert_eq!(compared.due(&connected, 7, |_| None, now), [silent]);
            compared.answers(silent, None, now);
            assert!(compared.due(&connected, 7, |_| None, now).is_empty());
            let next = compared.next().unwrap();
            asked.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(asked, [2, 4, 8, 16, 32, 60, 60, 60]);
        // Nobody waits for one that has gone, or that knows the same by now.
        assert!(compared.due(&connected, 7, |_| Some(7), now).is_empty());
        assert!(compared.next().is_none());
    }
}
