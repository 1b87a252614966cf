//! Links that behave as a profile says, for rehearsals: everything that this node sends to another, on whatever protocol,
//! leaves by one line and takes its time there.
//!
//! The lines stand above the transports: what a stream carries is delayed, slowed, held back and lost (sent again, that is)
//! before it reaches QUIC or TCP, which find a perfect link below. So the figures are those of the link described, up to what
//! a transport's own congestion control would have made of it.

mod connection;
mod stream;

pub(crate) use connection::Emulated;
pub(crate) use stream::Slowed;

use crate::data::SILENCE;
use crate::membership::Member;
use karman_space::{Line, Link, LinkProfile, Outage};
use karman_types::{NodeId, Tier};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The lines that leave this node, one to each other node.
pub(crate) struct Lines {
    profile: RwLock<LinkProfile>,
    started: Instant,
    /// With the tier of the node, by which a profile may name it.
    lines: Mutex<HashMap<NodeId, (Tier, Arc<SharedLine>)>>,
}

/// One line, which all streams to the node share.
pub(crate) struct SharedLine {
    line: Mutex<Line>,
    started: Instant,
    changed: watch::Sender<()>,
}

/// When what is sent begins to leave, has left and arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) begins: Instant,
    pub(super) left: Instant,
    pub(super) arrives: Instant,
}

impl Lines {
    pub(crate) fn new(profile: LinkProfile) -> Self {
        Self {
            profile: RwLock::new(profile),
            started: Instant::now(),
            lines: Mutex::default(),
        }
    }

    /// The line to a node; nothing where the profile has none.
    pub(crate) fn to(&self, member: &Member) -> Option<Arc<SharedLine>> {
        let profile = self.profile.read();
        let link = profile.to(member.node, member.tier)?;
        let mut lines = self.lines.lock();
        let (_, line) = lines.entry(member.node).or_insert_with(|| {
            let seed = member
                .node
                .to_string()
                .bytes()
                .fold(0, |seed: u64, byte| seed.rotate_left(7) ^ u64::from(byte));
            (
                member.tier,
                Arc::new(SharedLine::new(link.clone(), seed, self.started)),
            )
        });
        Some(line.clone())
    }

    /// The links behave by another profile from now on. One that it does not describe stays as it was; one that was not described
    /// before begins with the next connection.
    pub(crate) fn change(&self, profile: LinkProfile) {
        let mut current = self.profile.write();
        for (node, (tier, line)) in self.lines.lock().iter() {
            if let Some(link) = profile.to(*node, *tier) {
                line.change(link.clone());
            }
        }
        *current = profile;
    }
}

impl SharedLine {
    fn new(link: Link, seed: u64, started: Instant) -> Self {
        Self {
            line: Mutex::new(Line::new(link, seed)),
            started,
            changed: watch::Sender::default(),
        }
    }

    /// When this many bytes, which were written at this time, leave and arrive.
    pub(super) fn send(&self, written: Instant, bytes: usize) -> Times {
        let written = written.saturating_duration_since(self.started);
        let passage = self.line.lock().send(written, bytes);
        Times {
            begins: self.started + passage.begins,
            left: self.started + passage.left,
            arrives: self.started + passage.arrived,
        }
    }

    fn change(&self, link: Link) {
        self.line.lock().change(self.started.elapsed(), link);
        self.changed.send_replace(());
    }

    /// Says when the link has become another one.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How long what is sent is on its way, at least.
    pub(crate) fn delay(&self) -> Duration {
        self.line.lock().link().delay
    }

    /// The outage that the link is in now.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.line.lock().link().outage(self.started.elapsed())
    }

    /// When connections over it break, if the link is in an outage that is long enough.
    pub(super) fn breaks_at(&self) -> Option<Instant> {
        let outage = self.outage().filter(|outage| outage.length > SILENCE)?;
        Some(self.started + outage.start + SILENCE)
    }
}
