//! Which nodes are the keepers, and how every node learns it: nodes that meet tell each other what they know.

use super::Inner;
use super::wire::{Message, send};
use crate::services::store_error;
use bytes::Bytes;
use futures::future::join_all;
use karman_mesh::membership::Charter;
use karman_mesh::{Mesh, PeerId};
use karman_tasks::Event;
use karman_types::{ErrorKind, NodeId, TaskError};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

const RECORD: &str = "keepers";
/// How long a neighbour may take to say which keepers it knows.
const PATIENCE: Duration = Duration::from_secs(5);
/// When those are asked again that did not answer.
const AGAIN: Duration = Duration::from_secs(2);
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
        let known: Option<ByteBuf> = store.mesh().get(RECORD).map_err(store_error)?;
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
        kept.map_err(store_error)?;
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

/// Compares with every neighbour: when one comes, and when something new is known.
pub(super) async fn spread(keepers: Weak<Inner>) {
    let Some((mut arrivals, mut charters)) = keepers.upgrade().and_then(|inner| {
        let arrivals = inner.mesh().ok()?.arrivals();
        Some((arrivals, inner.charter.subscribe()))
    }) else {
        return;
    };
    let mut told: HashMap<PeerId, u64> = HashMap::new();
    loop {
        let Some(inner) = keepers.upgrade() else { return };
        let Ok(mesh) = inner.mesh() else { return };
        let connected: Vec<PeerId> = mesh
            .peers()
            .into_iter()
            .filter(|peer| peer.path.is_some())
            .map(|peer| peer.id)
            .collect();
        told.retain(|peer, _| connected.contains(peer));
        let number = inner.charter().map_or(0, |charter| charter.number());
        let news = connected.iter().filter(|peer| told.get(peer) != Some(&number));
        let compared = join_all(news.map(|peer| inner.tell(*peer))).await;
        let silent = compared.iter().any(Option::is_none);
        told.extend(compared.into_iter().flatten().map(|peer| (peer, number)));
        drop(inner);
        let wait = async {
            tokio::select! {
                changed = arrivals.changed() => changed.is_ok(),
                changed = charters.changed() => changed.is_ok(),
            }
        };
        let gone = match silent {
            true => tokio::time::timeout(AGAIN, wait).await == Ok(false),
            false => !wait.await,
        };
        if gone {
            return;
        }
    }
}

impl Inner {
    /// Compares with a neighbour, which is answered if it was there.
    async fn tell(&self, peer: PeerId) -> Option<PeerId> {
        let ours = self.charter().map(|charter| Bytes::from(charter.encode()));
        let message = Message::Charter(ours);
        let mesh = self.mesh().ok()?;
        let asked = tokio::time::timeout(PATIENCE, send::<Option<Bytes>>(mesh, peer, &message)).await;
        match asked.ok()? {
            Ok(None) => Some(peer),
            Ok(Some(theirs)) => {
                let adopted = self.adopt(&theirs);
                let _ = adopted.inspect_err(|error| tracing::warn!(%peer, %error, "a charter"));
                Some(peer)
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "which keepers it knows is not known");
                None
            }
        }
    }
}
