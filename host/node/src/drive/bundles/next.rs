//! What is next: of the bundles that wait here, which goes to a node now, and which is opened. To find that out all that waits is
//! read, so that of many small ones not each is looked for anew.

use super::{Busy, known};
use crate::contacts;
use crate::drive::chances::with_chances;
use crate::drive::mesh_of;
use crate::node::Node;
use crate::services::blocking;
use karman_space::{Contact, Priority, Time, Waiting, agenda};
use karman_store::{Bundle, BundleState};
use karman_types::{Digest, NodeId, TaskError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long what was found is gone by: an urgent one that comes meanwhile waits for so long, and for the one that is being sent.
const FOUND_FOR: Duration = Duration::from_secs(1);
/// How long nothing is opened after that failed: a disk that refuses is not there again within milliseconds.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What goes to a node now, the most urgent first, as it was found a moment ago.
#[derive(Default)]
pub(super) struct Going {
    bundles: VecDeque<Digest>,
    found: Option<Instant>,
}

impl Going {
    /// The next one that goes in this contact.
    pub(super) async fn next(&mut self, node: &Node, contact: &Contact) -> Result<Option<Digest>, TaskError> {
        if !self.is_known(Instant::now()) {
            self.bundles = going(node, contact).await?;
            self.found = Some(Instant::now());
        }
        Ok(self.bundles.pop_front())
    }

    /// The last one did not get through, and may be next again.
    pub(super) fn again(&mut self) {
        self.bundles.clear();
    }

    fn is_known(&self, now: Instant) -> bool {
        let lately = |found: Instant| now.saturating_duration_since(found) < FOUND_FOR;
        !self.bundles.is_empty() && self.found.is_some_and(lately)
    }
}

async fn going(node: &Node, contact: &Contact) -> Result<VecDeque<Digest>, TaskError> {
    let now = contacts::now();
    let waiting = waiting(node, now).await?;
    let plan = with_chances(mesh_of(node)?, &node.bundles().plan(now), contact.from, now);
    let todo = agenda(&plan, contact.from, now, &waiting).now.into_iter();
    let ours = todo.filter(|(_, way)| way.to == contact.to);
    Ok(ours.map(|(digest, _)| digest).collect())
}

/// What waits here, without what has expired.
pub(super) async fn waiting(node: &Node, now: Time) -> Result<Vec<Waiting<Digest>>, TaskError> {
    let store = node.runtime().home().store()?;
    let now_ms = now.unix_ms();
    let all = blocking(move || {
        for digest in store.bundles().expire(now_ms)? {
            tracing::warn!(bundle = %digest.short(), "a bundle has expired here");
        }
        store.bundles().waiting().map_err(TaskError::from)
    });
    let waiting = all.await?.into_iter();
    let not_now = node.bundles().not_now.nodes(Instant::now());
    let refused_by = |bundle: &Bundle| -> Vec<NodeId> {
        let not_now = not_now.get(&bundle.digest).into_iter().flatten();
        bundle.refused_by.iter().chain(not_now).copied().collect()
    };
    Ok(waiting
        .map(|bundle| Waiting {
            key: bundle.digest,
            destination: bundle.destination,
            bytes: bundle.size,
            priority: priority(bundle.priority),
            expires: Time::from_unix_ms(i64::try_from(bundle.expires_ms).unwrap_or(i64::MAX)),
            refused_by: refused_by(&bundle),
        })
        .collect())
}

pub(in crate::drive) const fn priority(number: u8) -> Priority {
    match number {
        0 => Priority::Bulk,
        1 => Priority::Normal,
        _ => Priority::Expedited,
    }
}

/// Opens what is here for this node.
pub(super) async fn open_all(node: Node, busy: Busy) {
    let opened = open_as_it_comes(&node).await;
    // A node that is asleep here can be shut down.
    drop(node);
    opened_all(opened, busy).await;
}

async fn open_as_it_comes(node: &Node) -> Result<(), TaskError> {
    while open_these(node, waiting(node, contacts::now()).await?).await? {}
    Ok(())
}

/// This node's turn is over. Where something failed it would fail again at once, so that nothing begins for a while.
async fn opened_all(opened: Result<(), TaskError>, busy: Busy) {
    if let Err(error) = opened {
        tracing::error!(%error, "what has come cannot be opened");
        tokio::time::sleep(AFTER_FAILURE).await;
    }
    drop(busy);
}

/// Opens those of them that are for this node, as long as they can be gone by; whether there were any.
async fn open_these(node: &Node, mut waiting: Vec<Waiting<Digest>>) -> Result<bool, TaskError> {
    let (here, store) = (node.runtime().id(), node.runtime().home().store()?);
    let (found, mut any) = (Instant::now(), false);
    let left = || FOUND_FOR.saturating_sub(found.elapsed());
    while !left().is_zero()
        && let Some(opening) = node.bundles().open_next_within(here, &waiting, left()).await
    {
        any = true;
        let bundle = opening.bundle();
        // Its time may be over by now.
        let still = known(&store, bundle).await?;
        if still.is_some_and(|still| still.state == BundleState::Waiting) {
            node.open(opening).await;
        }
        // An attempt that found no place is passed over until there is one.
        if !node.bundles().is_put_off(&bundle) {
            waiting.retain(|other| other.key != bundle);
        }
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::super::Bundles;
    use super::*;
    use crate::config::MeshConfig;
    use crate::contacts::Contacts;
    use futures::FutureExt;
    use std::pin::pin;
    use std::sync::Arc;

    #[tokio::test]
    async fn nothing_is_opened_for_a_while_where_that_failed() {
        let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
        let here = NodeId::of_key(b"here");
        let busy = bundles.begin(here).unwrap();
        {
            let mut failed = pin!(opened_all(Err(TaskError::internal("the disk is gone")), busy));
            assert!(failed.as_mut().now_or_never().is_none());
            assert!(bundles.begin(here).is_none());
        }
        let busy = bundles.begin(here).unwrap();
        opened_all(Ok(()), busy).now_or_never().unwrap();
        assert!(bundles.begin(here).is_some());
    }

    #[test]
    fn what_goes_is_found_out_once_for_many_and_anew_after_a_while_or_a_failure() {
        let start = Instant::now();
        let all: Vec<Digest> = [b"one", b"two"].map(|name| Digest::of(name)).to_vec();
        let mut going = Going::default();
        assert!(!going.is_known(start));
        let found = |going: &mut Going| {
            going.bundles = all.clone().into();
            going.found = Some(start);
        };
        found(&mut going);
        assert!(going.is_known(start));
        assert!(!going.is_known(start + FOUND_FOR));
        going.again();
        assert!(!going.is_known(start));
        found(&mut going);
        let taken = [going.bundles.pop_front(), going.bundles.pop_front()];
        assert_eq!(taken.map(Option::unwrap), all[..]);
        assert!(!going.is_known(start));
    }
}
