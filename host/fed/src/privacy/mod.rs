//! What a trained model may give away of one client, bounded and added up: differential privacy.
//!
//! Each client's update is clipped to a norm ([`Bound::clip`]), the sum gets Gaussian noise in proportion to it, and the
//! [`Accountant`] adds up what the rounds together give away, (ε, δ). *Central*: the coordinator sees the sum ([`Central`], with or
//! without [`crate::secure`]) and adds the noise. *Local*: each client adds so much noise that its update may be seen ([`Local`]).
//!
//! **Arithmetic.** Clipped updates are integers, [`Bound::UNITS`] of them to the norm, rounded towards zero, so the bound holds
//! exactly and not up to rounding; noise is the discrete Gaussian, sampled exactly from ChaCha20 ([`noise`]). Floating-point noise
//! leaks through the gaps between numbers (Mironov, CCS 2012); this does not. For integer vectors the discrete Gaussian has the Rényi
//! divergences of the continuous one (Canonne, Kamath, Steinke, NeurIPS 2020), at every order without subsampling. With it the moments of
//! integer order are equal, term by term of the binomial sum, since a Gaussian on the integers that is shifted by an integer keeps its
//! norm; at orders between integers the difference is below e^(-2π²σ), σ in units, which is nothing: σ is in the thousands.
//!
//! **Amplification.** That nobody knows who took part in a round hides some more, but only if each client was drawn on its own with
//! the same chance. [`Participants::poisson`] is the only way to participants that count so; a set that was chosen by speed, bandit,
//! utility or availability comes through [`Participants::chosen`] and is accounted for in full. A rule that is checked by the types
//! cannot be forgotten.
//!
//! **Displacement.** A set of so many that is chosen has one client less when another one comes: the sum moves by both of their updates,
//! twice the norm, and that is what is accounted for. It holds of a choice in which a client displaces one other at most.
//!
//! **Adjacency** is printed with every figure ([`Spent`]): central figures are for a client that is there or not, local ones for any
//! two updates of the same client. Each update counts the same; a weight would multiply what one client can do.
//!
//! | file | what |
//! |---|---|
//! | `participants` | who takes part, drawn or chosen |
//! | `clip` | updates as integers of bounded norm; the bound, fixed or adaptive |
//! | `noise` | the discrete Gaussian |
//! | `central`, `local` | the two mechanisms |
//! | `renyi`, `accountant` | what a round gives away, and all rounds together |
//!
//! ```
//! use karman_fed::privacy::{Central, CentralSettings, Clipping, Participants, Rate};
//! use karman_types::NodeId;
//!
//! let population: Vec<NodeId> = (0..100_u8).map(|n| NodeId::of_key(&[n])).collect();
//! let rate = Rate::new(0.1)?;
//! let mut central = Central::new(CentralSettings {
//!     noise_multiplier: 1.0,
//!     clipping: Clipping::Fixed { norm: 0.5 },
//!     expected: rate.share() * population.len() as f64,
//!     delta: 1e-5,
//! })?;
//! // Seeds and entropy come from the operating system, in earnest.
//! let drawn = Participants::poisson(&population, rate, &[1; 32], 1);
//! let mut sum = central.sum(3);
//! for _ in drawn.nodes() {
//!     sum.add(&central.bound().clip(&[0.3, -0.4, 1.2])?)?;
//! }
//! let released = central.release(sum, &drawn, [2; 32])?;
//! assert!(released.spent.epsilon < 2.2);
//! println!("{}", released.spent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accountant;
mod central;
mod clip;
mod local;
pub mod noise;
mod participants;
mod renyi;

pub use accountant::{Accountant, AccountantError, Adjacency, Spent, noise_multiplier_for};
pub use central::{Central, CentralError, CentralSettings, ClippedSum, Clipping, Released};
pub use clip::{Bound, ClipError, Clipped};
pub use local::Local;
pub use participants::{Participants, Rate, RateError};
