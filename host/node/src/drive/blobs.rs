//! Plugins' files between nodes: what this one lends while it deploys, what it gives to those who may read it, and what it
//! fetches.

use super::mesh_of;
use crate::contacts;
use crate::node::Node;
use crate::plugins::{DeployOptions, Deployed};
use crate::services::blocking;
use bytes::Bytes;
use karman_mesh::membership::Member;
use karman_mesh::{Ask, CallHead, MOST_GROUPS, PeerId, Ticket, Wanted};
use karman_store::{Partial, Slices, StoreError};
use karman_types::{Digest, NodeId, TaskError, TaskResponse};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest component that a member may deploy.
const MOST_COMPONENT: u64 = 64 << 20;
/// How long nodes may read a component after it was deployed, from this node and from each other.
const TICKET: Duration = Duration::from_secs(86_400);

/// The field of an error that says that too much is being received now.
pub(super) const RECEIVING: &str = "partial";

/// Components that this node deploys elsewhere, and need not run itself.
#[derive(Default)]
pub(crate) struct Lent(Mutex<HashMap<Digest, Component>>);

struct Component {
    name: String,
    slices: Arc<Slices>,
    /// Deployments that are under way.
    loans: usize,
}

/// Lends a component as long as it is there.
pub(super) struct Loan<'a> {
    node: &'a Node,
    pub(super) name: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut lent = self.node.lent().0.lock();
        if let Some(component) = lent.get_mut(&self.digest) {
            component.loans -= 1;
            if component.loans == 0 {
                lent.remove(&self.digest);
            }
        }
    }
}

impl Loan<'_> {
    /// Lets a node read it.
    pub(super) fn ticket(&self, reader: NodeId) -> Result<Bytes, TaskError> {
        let standing = mesh_of(self.node)?.standing();
        let ticket = Ticket {
            name: self.name.clone(),
            digest: self.digest,
            reader,
            not_after: standing.now().after(TICKET),
        };
        ticket.sign(standing)
    }
}

impl Node {
    /// Lends a component of this name.
    pub(super) async fn lend(&self, name: String, component: Bytes) -> Result<Loan<'_>, TaskError> {
        let slices = blocking(move || Ok(Arc::new(Slices::of(component)))).await?;
        let (digest, size) = (slices.digest(), slices.size());
        let mut lent = self.lent().0.lock();
        let new = || Component {
            name: name.clone(),
            slices,
            loans: 0,
        };
        lent.entry(digest).or_insert_with(new).loans += 1;
        drop(lent);
        Ok(Loan {
            node: self,
            name,
            digest,
            size,
        })
    }

    /// Gives a member the part of a component that it asks for, if its ticket allows that.
    pub(super) async fn give(
        &self,
        reader: &Member,
        head: &CallHead,
        ticket: &[u8],
    ) -> Result<TaskResponse, TaskError> {
        let &Ask::ReadBlob {
            digest,
            size,
            first,
            count,
        } = &head.ask
        else {
            return Err(TaskError::internal("no blob is asked for"));
        };
        let end = first.checked_add(count).filter(|_| count <= MOST_GROUPS);
        let end = end.ok_or_else(|| {
            TaskError::invalid(format!("{count} groups; at most {MOST_GROUPS} are sent")).with_field("count")
        })?;
        let slices = match ticket.is_empty() {
            true => self.offered(digest, reader.node).await?,
            false => {
                let ticket = Ticket::judge(ticket, reader, mesh_of(self)?.standing())?;
                if ticket.digest != digest {
                    return Err(TaskError::denied("the ticket is for another file").with_field("ticket"));
                }
                self.slices(ticket).await?
            }
        };
        if slices.size() != size {
            let has = slices.size();
            return Err(
                TaskError::invalid(format!("blob {} has {has} bytes, not {size}", digest.short()))
                    .with_field("size"),
            );
        }
        let slice = blocking(move || {
            let disk = |error: std::io::Error| TaskError::internal(error.to_string());
            slices.slice(first..end).map_err(disk)
        });
        Ok(TaskResponse::from(slice.await?))
    }

    /// The bundle that this node offers to the one that asks.
    async fn offered(&self, digest: Digest, to: NodeId) -> Result<Arc<Slices>, TaskError> {
        let denied = || TaskError::denied("it was offered no such bundle").with_field("digest");
        if self.bundles().is_offered(digest, to).ok_or_else(denied)? {
            let now = contacts::now();
            let plan = self.bundles().plan(now);
            let since = plan
                .open(self.runtime().id(), to, now)
                .map(|contact| now.since(contact.start).as_millis() as u64);
            tracing::info!(bundle = %digest.short(), %to, since_contact_ms = since, "a bundle leaves");
        }
        self.slices_of(digest).await
    }

    /// The file that a ticket names, under the name that the ticket is for: a right to deploy one plugin opens no other.
    async fn slices(&self, ticket: Ticket) -> Result<Arc<Slices>, TaskError> {
        if let Some(component) = self.lent().0.lock().get(&ticket.digest)
            && component.name == ticket.name
        {
            return Ok(component.slices.clone());
        }
        if self.split().knows_as(&ticket.name, ticket.digest)? {
            return self.slices_of(ticket.digest).await;
        }
        let plugin = self.plugins().find(&ticket.name)?.current();
        if plugin.package().id != ticket.digest {
            return Err(TaskError::unavailable(format!(
                "this node has another file of `{}`",
                ticket.name
            )));
        }
        self.slices_of(ticket.digest).await
    }

    async fn slices_of(&self, digest: Digest) -> Result<Arc<Slices>, TaskError> {
        self.runtime()
            .home()
            .with(move |store| store.blobs().slices(&digest))
            .await
    }

    /// Takes a plugin into service that a member deploys, with its file from that member and from all who have it.
    pub(super) async fn deploy_from(
        &self,
        deployer: PeerId,
        head: &CallHead,
        ticket: Bytes,
    ) -> Result<Deployed, TaskError> {
        let Ask::Deploy {
            downgrade,
            digest,
            size,
        } = head.ask
        else {
            return Err(TaskError::internal("nothing is deployed"));
        };
        if size > MOST_COMPONENT {
            return Err(TaskError::limit(format!(
                "the component has {size} bytes; {MOST_COMPONENT} are the most"
            ))
            .with_field("size"));
        }
        let wanted = Wanted {
            digest,
            size,
            name: head.name.clone(),
            ticket,
            anywhere: true,
        };
        let component = self.fetch(wanted, deployer).await?;
        self.deploy_as(&head.name, component, downgrade).await
    }

    /// Takes a component that a member sent into service, if it is what the member says that it is: its right to deploy is for
    /// that name.
    pub(super) async fn deploy_as(
        &self,
        name: &str,
        component: Bytes,
        downgrade: bool,
    ) -> Result<Deployed, TaskError> {
        let found = self.plugins().name_of(&component, name)?;
        if found != name {
            return Err(
                TaskError::denied(format!("the component is `{found}`, not `{name}`")).with_field("name"),
            );
        }
        let options = DeployOptions {
            downgrade,
            ..DeployOptions::default()
        };
        let deployed = self.deploy(component.into(), name, options).await;
        deployed.map_err(for_its_operator)
    }

    /// A blob: from the disk where it is there, else from others, as far as it has not come before.
    pub(super) async fn fetch(&self, wanted: Wanted, from: PeerId) -> Result<Bytes, TaskError> {
        let (digest, size) = (wanted.digest, wanted.size);
        let store = self.runtime().home().store()?;
        let here = blocking(move || match store.blobs().read(&digest) {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(_) => received(store.blobs().receive(digest, size)).map(Err),
        });
        let partial = match here.await? {
            Ok(bytes) => return Ok(bytes),
            Err(partial) => Arc::new(Mutex::new(partial)),
        };
        let before = partial.lock().verified();
        let fetched = mesh_of(self)?.fetch(&wanted, &partial, &[from]).await?;
        let from: Vec<String> = fetched.from.iter().map(NodeId::short).collect();
        tracing::info!(
            blob = wanted.name,
            bytes = fetched.bytes,
            before,
            from = from.join(" "),
            "fetched"
        );
        blocking(move || partial.lock().read().map_err(TaskError::from)).await
    }
}

/// What became of beginning to receive a blob; that too much is being received can be told from all else.
fn received(begun: Result<Partial, StoreError>) -> Result<Partial, TaskError> {
    begun.map_err(|error| match error {
        StoreError::Limit { field: RECEIVING, .. } => TaskError::from(error).with_field(RECEIVING),
        error => TaskError::from(error),
    })
}

/// Who deploys from elsewhere can pass neither option: that is for the operator of this node.
fn for_its_operator(error: TaskError) -> TaskError {
    let is_for = |hint: &&String| {
        ["--grant-asked", "--replace"]
            .iter()
            .any(|option| hint.contains(option))
    };
    match error.hint.as_ref().filter(is_for) {
        Some(hint) => {
            let hint = format!("deploy it on that node itself: {hint}");
            error.with_hint(hint)
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parcels::{not_received, wants_room};
    use super::*;
    use karman_store::{Store, StoreLimits};
    use karman_types::ByteSize;

    #[test]
    fn a_bundle_for_which_too_much_is_being_received_is_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            partial: ByteSize(100),
            blob: ByteSize(200),
            ..StoreLimits::default()
        };
        let store = Store::open_with(folder.path(), limits).unwrap();
        let begin = |name: &[u8], size| {
            let begun = received(store.blobs().receive(Digest::of(name), size));
            begun.map_err(|error| wants_room(&not_received(error)))
        };
        let first = begin(b"first", 80).unwrap();
        assert_eq!(begin(b"second", 40).err(), Some(true));
        assert_eq!(begin(b"too long", 201).err(), Some(false));
        drop(first);
        begin(b"second", 40).unwrap();
    }
}
