//! Sums of vectors that nobody sees: SecAgg and SecAgg+.
//!
//! The coordinator learns the sum of the clients' vectors and nothing else of them, although clients come and go. Each client adds
//! to its vector a mask of its own and, for each neighbour, one that the neighbour subtracts; in the sum the latter cancel. Secrets
//! from which masks can be made again are shared among the neighbours, so that what a client that drops out leaves behind can be
//! taken off. Of each client, either its own mask is laid open (its vector is in the sum) or its pair masks are (it is not):
//! **never both**, or its vector would be laid open.
//!
//! | step | a client sends | the coordinator answers with |
//! |---|---|---|
//! | before it | a number that it uses for this round only ([`Pass`]) | settings, and the roster with all keys and numbers |
//! | keys | two X25519 keys of this round, signed (Ed25519) | who takes part, the neighbours' keys |
//! | shares | two Shamir shares for each neighbour, sealed; what each hashes to | the shares for it |
//! | masked vectors | its vector, masked by ChaCha20 | who survived |
//! | signatures | a signature of the survivors | the survivors, the dropped, the signatures |
//! | unmasking | for each neighbour one share, of either kind | |
//!
//! A [`Client`] refuses lists that overlap, lists that are not those it signed, lists that more than two thirds of its holders have
//! not signed, and any second request. Its [`Pass`] admits it to one round, and every key and signature is bound to the passes of all
//! its members. A [`Server`] takes nothing that is not signed, in turn and of the right length; a share that
//! was changed on the way is named ([`Fault`]) and does without; a round that cannot be finished ends with its reason ([`Failure`]).
//! What no secure sum can tell is whether a vector is an honest one: bound what one client can do by [`FixedPoint`]'s clip.
//!
//! Sources: SecAgg, Bonawitz et al., CCS 2017, with the steps against a coordinator that lies; SecAgg+, Bell et al., CCS 2020, for the
//! ring of neighbours. `docs/secure-sums.md` says what is assumed and what the parameters withstand ([`margin`]).
//!
//! | file | what |
//! |---|---|
//! | `roster`, `session` | who is invited, what is agreed on |
//! | `graph`, `margin` | who is whose neighbour, and what that withstands |
//! | `ring`, `fixed` | integers to sum in, numbers as such integers |
//! | `keys`, `shamir` | derived keys, sealed messages, signatures; secrets in shares |
//! | `message` | what is sent |
//! | `pass`, `time` | what admits a client to one round; how long each step may take |
//! | `client`, `refusal` | the client's side, and what it refuses |
//! | `server`, `unmask`, `failure` | the coordinator's, and what goes wrong there |
//!
//! ```
//! use ed25519_compact::{KeyPair, Seed};
//! use karman_fed::secure::{Client, Closed, Graph, Member, Pass, Ring, Server, Session, Settings};
//! use karman_types::{Digest, NodeId};
//! use std::sync::Arc;
//!
//! let identities = [1, 2, 3].map(|n| KeyPair::from_seed(Seed::new([n; 32])));
//! let nodes = [1, 2, 3].map(|n| NodeId::of_key(&[n]));
//! // Numbers that each draws for this round, and shows before it begins: from the operating system, in earnest.
//! let passes = [1, 2, 3].map(|n| Pass::new([n; 32]));
//! let members = nodes.iter().zip(&identities).zip(&passes).map(|((node, identity), pass)| Member {
//!     node: *node,
//!     key: *identity.pk,
//!     once: pass.shown(),
//! });
//! let settings = Settings {
//!     round: Digest::of(b"a run, round 1"),
//!     graph: Graph::Complete,
//!     seed: Digest::of(b"drawn before"),
//!     length: 2,
//!     ring: Ring::BITS_32,
//!     least: 2,
//! };
//! let session = Arc::new(Session::new(settings, members.collect())?);
//! let mut server = Server::new(session.clone());
//! let mut clients = Vec::new();
//! for (number, ((node, identity), pass)) in nodes.into_iter().zip(identities).zip(passes).enumerate() {
//!     let entropy = [number as u8; 32]; // From the operating system, in earnest.
//!     let (client, keys) = Client::join(session.clone(), node, identity, pass, entropy)?;
//!     server.receive(node, keys)?;
//!     clients.push((node, client, [number as u64, 10]));
//! }
//! let sum = loop {
//!     match server.close()? {
//!         Closed::Sum(sum) => break sum,
//!         Closed::Next(messages) => for (to, message) in messages {
//!             let (node, client, vector) = clients.iter_mut().find(|(node, ..)| *node == to).unwrap();
//!             let answer = match client.handle(message)? {
//!                 Some(answer) => answer,
//!                 None => client.mask(vector)?,
//!             };
//!             server.receive(*node, answer)?;
//!         },
//!     }
//! };
//! assert_eq!(sum.elements, [0 + 1 + 2, 30]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod failure;
mod fixed;
mod graph;
mod keys;
pub mod margin;
mod message;
mod pass;
mod refusal;
mod ring;
mod roster;
mod server;
mod session;
mod shamir;
#[cfg(test)]
mod tests;
mod time;
mod unmask;

pub use client::Client;
pub use failure::{Failure, Fault, FaultKind, Rejected};
pub use fixed::{FixedPoint, FixedPointError, WeightedMean};
pub use graph::{Degree, Graph, threshold};
pub use message::{Keys, Revealed, Shares, Step, ToClient, ToServer, UnmaskRequest};
pub use pass::Pass;
pub use refusal::Refusal;
pub use ring::{Ring, WidthError};
pub use roster::{Member, Members, Position, Roster, RosterError};
pub use server::{Closed, SecureSum, Server};
pub use session::{Session, Settings, SettingsError};
