use super::plan::Plan;
use crate::ask::{Ask, CallHead};
use crate::calling::node_of;
use crate::mesh::Mesh;
use crate::offer;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{FuturesUnordered, unfold};
use karman_store::{GROUP, Partial, PutError};
use karman_types::{Digest, NodeId, TaskError, TaskId};
use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces that are asked of one node at once, so that the link does not wait for the next question. On a slow link they only
/// hold each other up, and a cut loses all that are under way.
const PER_SOURCE: usize = 4;
/// A piece that takes so long is asked for alone.
const SLOWLY: Duration = Duration::from_secs(5);
/// How long a node may take over a piece: 256 KiB at 5 kB/s.
const PATIENCE: Duration = Duration::from_secs(50);
/// Nodes that are asked at once.
const MOST_SOURCES: usize = 8;
/// How often more nodes are looked for that have the blob.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A slice is no longer than its groups and the hashes of a tree over 2^64 bytes.
const fn most_answer(groups: u64) -> u64 {
    groups * GROUP + 64 * (2 * groups + 64)
}

/// A blob to be fetched.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// The plugin that it is the file of, or what else it is called in errors.
    pub name: String,
    /// What allows this node to read it, shown to its holders.
    pub ticket: Bytes,
    /// Whether to look for other nodes that have it, besides those that are named.
    pub anywhere: bool,
}

/// How a blob was fetched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fetched {
    /// Bytes that came and were new.
    pub bytes: u64,
    /// Nodes that they came from.
    pub from: Vec<NodeId>,
    /// Nodes that sent bytes that do not belong to it, each dropped at the first.
    pub corrupt: Vec<NodeId>,
}

/// A node that may have the blob.
struct Source {
    id: PeerId,
    under_way: usize,
    /// How many pieces are asked of it at once.
    width: usize,
    /// The shortest that one took.
    fastest: Duration,
    gone: bool,
    bytes: u64,
}

impl Source {
    /// Asks for one piece more at once as long as that makes none slower: then the link is not full yet.
    fn widen(&mut self, took: Duration) {
        self.fastest = self.fastest.min(took);
        self.width = match took {
            _ if took > SLOWLY => 1,
            _ if took < self.fastest * 3 / 2 => PER_SOURCE.min(self.width + 1),
            _ => self.width,
        };
    }
}

/// What became of a piece that a source was asked for.
enum Outcome {
    Here(u64, Duration),
    Corrupt(String),
    Gone(TaskError),
    /// This node cannot go on.
    Stuck(TaskError),
}

impl Mesh {
    /// Who has announced this blob, this node left out.
    pub async fn holders(&self, digest: &Digest) -> HashSet<PeerId> {
        self.find([offer::blob_key(digest)]).await
    }

    /// Fetches what is missing of a blob, from these nodes and, where wanted, from all others that announce it, several at
    /// once. What was verified stays in `into`, whatever happens; a node that sends a bad chunk is asked for nothing more.
    /// Memory: 1 MiB for each node that is asked.
    ///
    /// # Errors
    /// `unavailable` when no node is left that has it; what the disk refused.
    pub async fn fetch(
        &self,
        wanted: &Wanted,
        into: &Arc<Mutex<Partial>>,
        named: &[PeerId],
    ) -> Result<Fetched, TaskError> {
        let missing = into.lock().missing();
        let mut fetch = Fetch {
            mesh: self,
            wanted,
            into,
            plan: Plan::of(&missing),
            sources: Vec::new(),
            fetched: Fetched::default(),
            last: None,
        };
        fetch.add(named.iter().copied());
        fetch.run().await
    }
}

struct Fetch<'a> {
    mesh: &'a Mesh,
    wanted: &'a Wanted,
    into: &'a Arc<Mutex<Partial>>,
    plan: Plan,
    sources: Vec<Source>,
    fetched: Fetched,
    last: Option<TaskError>,
}

impl Fetch<'_> {
    async fn run(mut self) -> Result<Fetched, TaskError> {
        let mut under_way = FuturesUnordered::new();
        let (mesh, wanted, into) = (self.mesh, self.wanted, self.into);
        let looks = unfold(Duration::ZERO, move |pause| async move {
            tokio::time::sleep(pause).await;
            let found = mesh.holders(&wanted.digest).await;
            Some((found, LOOK_AGAIN))
        });
        let mut looks = pin!(looks);
        // With nobody named, the first look decides.
        let mut looked = !wanted.anywhere;
        while !self.plan.is_done() {
            while let Some((source, piece, groups)) = self.next() {
                let id = self.sources[source].id;
                under_way.push(async move { (source, piece, ask(mesh, wanted, into, id, groups).await) });
            }
            if under_way.is_empty() && looked {
                return Err(self.nobody());
            }
            tokio::select! {
                Some((source, piece, outcome)) = under_way.next() => self.took(source, piece, outcome)?,
                Some(found) = looks.next(), if wanted.anywhere => {
                    self.add(found);
                    looked = true;
                }
            }
        }
        let gave = self.sources.iter().filter(|source| source.bytes > 0);
        self.fetched.from = gave.map(|source| node_of(&source.id)).collect();
        Ok(self.fetched)
    }

    fn add(&mut self, found: impl IntoIterator<Item = PeerId>) {
        for id in found {
            let known = self.sources.iter().any(|source| source.id == id);
            let live = self.sources.iter().filter(|source| !source.gone).count();
            if !known && id != self.mesh.me() && live < MOST_SOURCES {
                self.sources.push(Source {
                    id,
                    under_way: 0,
                    width: 1,
                    fastest: Duration::MAX,
                    gone: false,
                    bytes: 0,
                });
            }
        }
    }

    /// The next question, to the node that has the fewest.
    fn next(&mut self) -> Option<(usize, usize, Range<u64>)> {
        let free = |source: &&usize| {
            let source = &self.sources[**source];
            !source.gone && source.under_way < source.width
        };
        let numbers: Vec<usize> = (0..self.sources.len()).collect();
        let mut free: Vec<usize> = numbers.iter().filter(free).copied().collect();
        free.sort_by_key(|source| self.sources[*source].under_way);
        for source in free {
            if let Some((piece, groups)) = self.plan.next(source) {
                self.sources[source].under_way += 1;
                return Some((source, piece, groups));
            }
        }
        None
    }

    fn took(&mut self, number: usize, piece: usize, outcome: Outcome) -> Result<(), TaskError> {
        let source = &mut self.sources[number];
        source.under_way -= 1;
        self.plan
            .answered(piece, number, matches!(outcome, Outcome::Here(..)));
        match outcome {
            Outcome::Here(new, took) => {
                source.widen(took);
                source.bytes += new;
                self.fetched.bytes += new;
            }
            Outcome::Gone(error) => {
                source.gone = true;
                self.last = Some(error);
            }
            Outcome::Corrupt(says) => {
                let node = node_of(&source.id);
                if !source.gone {
                    tracing::warn!(%node, says, "a node sends what does not belong to the blob: it is asked no more");
                    self.mesh.standing().counts().count("corrupt-blob");
                    self.fetched.corrupt.push(node);
                }
                source.gone = true;
            }
            Outcome::Stuck(error) => return Err(error),
        }
        Ok(())
    }

    fn nobody(&self) -> TaskError {
        let partial = self.into.lock();
        let why = match &self.last {
            Some(error) => format!(": {}", error.message),
            None => String::new(),
        };
        TaskError::unavailable(format!(
            "{} of {} bytes of `{}` are here, and no node in reach gives the rest{why}",
            partial.verified(),
            partial.size(),
            self.wanted.name
        ))
        .with_hint("what is here stays; the next try goes on from there")
    }
}

/// Asks a node for these groups, and takes in what it sends.
async fn ask(
    mesh: &Mesh,
    wanted: &Wanted,
    into: &Arc<Mutex<Partial>>,
    source: PeerId,
    groups: Range<u64>,
) -> Outcome {
    let (asked, count) = (Instant::now(), groups.end - groups.start);
    let ask = Ask::ReadBlob {
        digest: wanted.digest,
        size: wanted.size,
        first: groups.start,
        count,
    };
    let head = CallHead {
        within_ms: Some(PATIENCE.as_millis() as u64),
        ..CallHead::new(ask, &*wanted.name, TaskId::from_parts(0, 0))
    };
    let answer = mesh.call_for(source, head, wanted.ticket.clone().into(), most_answer(count));
    let slice = match answer.await {
        Ok((response, _)) => response.body,
        Err(error) => return Outcome::Gone(error),
    };
    let into = into.clone();
    // Hashing and writing are no work for a thread that others wait for.
    let put = tokio::task::spawn_blocking(move || into.lock().put(groups, &slice)).await;
    match put {
        Ok(Ok(new)) => Outcome::Here(new, asked.elapsed()),
        Ok(Err(corrupt @ PutError::Corrupt { .. })) => Outcome::Corrupt(corrupt.to_string()),
        Ok(Err(error)) => Outcome::Stuck(TaskError::internal(error.to_string())),
        Err(error) => Outcome::Stuck(TaskError::internal(format!("a slice was not taken in: {error}"))),
    }
}
