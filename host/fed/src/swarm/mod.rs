//! Updates without a server in the middle: FLTorrent.
//!
//! Each client cuts its update into chunks ([`Layout`], [`Descriptor`]) and everybody gets everybody's, as in BitTorrent; then each
//! takes the mean of what it could rebuild ([`Mean`]). Plain BitTorrent would tell the neighbours whose update is whose, as whoever sends a
//! chunk first made it. So before that
//!
//! 1. each owner *sprays* a share of its chunks to clients that are no neighbours,
//! 2. everybody is silent for a random *lag*, and
//! 3. in the *warm-up* a [`Coordinator`], which sees no chunk, says who sends what to whom, so that a client's own chunks go out from
//!    others first, and only hidden among a cover of others' ([`Gate`]).
//!
//! When everybody holds its cover, the swarm goes on by itself ([`Exchange`]). A transfer outside the gate is counted
//! ([`Ground::Unprotected`]); a warm-up that runs out of time goes on all the same, and says that its promise is void
//! ([`Phase::Swarming`]). Afterwards clients say who gave them what is no chunk of the round, and whom enough of them name is found out
//! ([`audit()`]).
//!
//! What it hides is whose update is whose, from curious neighbours. The coordinator knows. Who may join is the mesh's
//! affair: each client shows the others that it is a member.
//!
//! Source: Li, Dogani, Wang, Liang, Laoutaris, arXiv 2605.10499, written from its text. Ours are the deterministic schedule, the three
//! gates (as stated, nothing but sprayed chunks could move until the cover is full), what happens to clients that fall silent, what clients do
//! whom their leader neglects ([`Attention`]), and the audit. The paper has the coordinator show its seed and its schedule after the round, for
//! everybody to check. They name the owner of every sprayed chunk, so that the round would have hidden nothing: here they are shown to nobody.
//! Clients check what they are told, at the time, and each other.
//!
//! | file | what |
//! |---|---|
//! | `settings` | what a round is set to |
//! | `chunk`, `inventory` | updates in chunks; sets of chunks |
//! | `overlay` | who is whose neighbour |
//! | `coordinator`, `board`, `schedule` | spray and warm-up: the machine, what it knows, how it chooses |
//! | `peer`, `exchange` | a client: its own rules; the swarm after the warm-up |
//! | `mean` | what comes out |
//! | `message`, `list` | what nodes say to each other, and how much of it is read |
//! | `company` | who may be in a round together |
//! | `neglect` | how long a client waits for its leader |
//! | `audit` | whether the clients kept to the rules, by what they say of each other |
//!
//! ```
//! use karman_fed::swarm::{Coordinator, Layout, Link, Phase, SwarmSettings};
//! use karman_types::Digest;
//!
//! let settings = SwarmSettings { layout: Layout { chunk: 1024, chunks: 40 }, neighbours: 4, ..Default::default() };
//! let links = [Link { up: 10, down: 40 }; 12];
//! let descriptors: Vec<Digest> = (0..12_u8).map(|n| Digest::of(&[n])).collect();
//! let mut round = Coordinator::new(settings, &links, &descriptors, [7; 32])?;
//! while !matches!(round.phase(), Phase::Swarming { .. }) {
//!     for transfer in round.next_slot() {
//!         // Here it would be sent; its receiver acknowledges it.
//!         round.delivered(transfer.to, transfer.chunk);
//!     }
//! }
//! assert_eq!(round.phase(), Phase::Swarming { covered: true });
//! assert!((0..12).all(|client| round.held(client).unwrap().len() >= settings.cover(12)));
//! # Ok::<(), karman_fed::swarm::SwarmError>(())
//! ```

mod audit;
mod board;
mod chunk;
mod company;
mod coordinator;
mod exchange;
mod inventory;
mod list;
mod mean;
mod message;
mod neglect;
mod overlay;
mod peer;
mod schedule;
mod settings;
#[cfg(test)]
mod tests;

pub use audit::audit;
pub use board::{Ground, Transfer};
pub use chunk::{Chunk, ChunkError, Descriptor, Layout};
pub use company::CompanyError;
pub use coordinator::{Coordinator, Phase};
pub use exchange::{Exchange, ExchangeError};
pub use inventory::Inventory;
pub use mean::{Mean, MeanError, MeanRule};
pub use message::{Answer, Beginning, Letter, Message, MessageError, Neighbourhood, Opening, Place, Shown};
pub use neglect::{Attention, Neglect};
pub use overlay::{Client, Overlay};
pub use peer::{Peer, PeerError};
pub use settings::{Cover, Gate, Link, Scheduler, SwarmError, SwarmSettings};
