//! Whom a node keeps in touch with. One that knows a single other member is lost to it as soon as both have moved, so a node
//! gets to know a few more, whose addresses survive a restart, and goes on looking for them while it is alone or nearly so.
//! It listens to these few at all times, and to those that it calls as long as it does, which keeps their connections; others end when
//! they are idle. Who these few are changes now and then: nodes that heard of no others would be lost to the mesh with one another.

use crate::acquaintances::MOST_ADDRESSES;
use crate::mesh::{Inner, Mesh};
use crate::reports::UNUSED;
use crate::swarm::Order;
use futures::future::join_all;
use karman_types::Backoff;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Weak;
use std::time::{Duration, Instant};
use tokio::select;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Members that a node is connected with, where it knows as many.
pub(crate) const ENOUGH: usize = 3;
/// How often a node looks whether it has been let in.
const ROUNDS: Duration = Duration::from_secs(1);
/// How often it looks whether it listens to as many.
const LISTENS: Duration = Duration::from_secs(15);
/// How often it listens to another one in the place of the one that it has listened to for longest; from half of that to one and a
/// half.
const DRAWN_AGAIN: Duration = Duration::from_secs(3600);
/// Members that are asked at a time whom they know.
const ASKED: usize = 2;

/// A node that was invited waits to be let in, and its operator with it.
const INVITED: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(5),
};
/// A member that is alone: what it dials in vain costs some kilobytes.
const ALONE: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(20),
};
/// One that has some company, if little. Perhaps there is nobody else.
const FEW: Backoff = Backoff {
    first: Duration::from_secs(2),
    longest: Duration::from_secs(300),
};

/// How many members a node is connected with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Company {
    /// None, and it is no member yet.
    Invited,
    /// None.
    Alone,
    /// Fewer than it wants.
    Few,
    /// As many as it wants.
    Enough,
}

impl Company {
    const fn of(member: bool, with: usize) -> Self {
        match (member, with) {
            (false, 0) => Self::Invited,
            (true, 0) => Self::Alone,
            (_, 1..ENOUGH) => Self::Few,
            _ => Self::Enough,
        }
    }
}

/// The state of a node's search for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Search {
    /// For how long nobody has been there.
    pub alone: Duration,
    /// How often it has looked since.
    pub tries: u32,
    /// When it looks again.
    pub next: Duration,
    /// Members whose addresses it remembers.
    pub known: usize,
}

/// When a node looks for others. Pure: time and luck are arguments.
pub(crate) struct Looking {
    company: Company,
    with: usize,
    since: Instant,
    tries: u32,
    looked: Option<Instant>,
    due: Instant,
}

impl Looking {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            company: Company::Invited,
            with: 0,
            since: now,
            tries: 0,
            looked: None,
            due: now,
        }
    }

    /// Whether to look now, and how many there are.
    pub(crate) fn round(&mut self, now: Instant, member: bool, with: usize, luck: f64) -> Option<Company> {
        let company = Company::of(member, with);
        if company != self.company {
            (self.company, self.since, self.tries, self.due) = (company, now, 0, now);
        }
        if with > self.with {
            // Who has just come may know others. One that comes and goes all the time does not make this node ask all the time.
            let rested = self.looked.map_or(now, |looked| looked + FEW.first);
            self.due = self.due.min(rested.max(now));
        }
        self.with = with;
        let pauses = match company {
            Company::Enough => return None,
            Company::Invited => INVITED,
            Company::Alone => ALONE,
            Company::Few => FEW,
        };
        if now < self.due {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        self.looked = Some(now);
        self.due = now + pauses.pause(self.tries, luck);
        Some(company)
    }

    /// When it may look next, unless somebody comes or goes; nothing while there are enough.
    fn next(&self, now: Instant) -> Option<Duration> {
        match self.company {
            Company::Enough => None,
            Company::Invited => Some(ROUNDS),
            Company::Alone | Company::Few => Some(self.due.saturating_duration_since(now)),
        }
    }

    /// How far it is; nothing while somebody is there.
    pub(crate) fn search(&self, now: Instant, known: usize) -> Option<Search> {
        (self.with == 0).then(|| Search {
            alone: now.duration_since(self.since),
            tries: self.tries,
            next: self.due.saturating_duration_since(now),
            known,
        })
    }
}

/// What is done so that those change to whom a node listens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Draw {
    /// Nothing now.
    Rest,
    /// Another member is met that was met before.
    Meet,
    /// One of those that are there takes another's place.
    Swap,
}

/// When a node listens to others. Pure: time and luck are arguments.
struct Drawing {
    due: Instant,
    met: bool,
}

impl Drawing {
    fn new(now: Instant, luck: f64) -> Self {
        let (due, met) = (now + Self::pause(luck), false);
        Self { due, met }
    }

    fn pause(luck: f64) -> Duration {
        DRAWN_AGAIN.mul_f64(0.5 + luck)
    }

    fn round(&mut self, now: Instant, luck: f64) -> Draw {
        match (now < self.due, self.met) {
            (true, _) => Draw::Rest,
            (false, false) => {
                self.met = true;
                Draw::Meet
            }
            (false, true) => {
                *self = Self::new(now, luck);
                Draw::Swap
            }
        }
    }
}

/// Looks for others while there are too few. It sleeps until it is to look again, or somebody comes or goes.
pub(crate) async fn keep_company(mesh: Weak<Inner>) {
    let seen = mesh.upgrade();
    let Some((mut arrivals, mut partings)) = seen.map(|it| (it.peers.arrivals(), it.peers.partings())) else {
        return;
    };
    loop {
        let Some(inner) = mesh.upgrade() else { return };
        let mesh_now = Mesh(inner);
        mesh_now.look_around().await;
        let next = mesh_now.0.looking.lock().next(Instant::now());
        drop(mesh_now);
        let due = async {
            match next {
                Some(next) => sleep(next).await,
                None => pending().await,
            }
        };
        let goes_on = select! {
            () = due => true,
            // Whoever lets a node in is asked at once whom it knows: were both started again before that, they would have lost each other.
            arrived = arrivals.changed() => arrived.is_ok(),
            parted = partings.changed() => parted.is_ok(),
        };
        if !goes_on {
            return;
        }
    }
}

/// Listens to some of those that are there. Apart from the search for others, which does not wait for one that says nothing.
pub(crate) async fn keep_listening(mesh: Weak<Inner>) {
    let mut rounds = interval(LISTENS);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drawing = Drawing::new(Instant::now(), fastrand::f64());
    loop {
        rounds.tick().await;
        let Some(inner) = mesh.upgrade() else { return };
        let mesh = Mesh(inner);
        let draw = drawing.round(Instant::now(), fastrand::f64());
        if draw == Draw::Meet {
            let _ = mesh.0.orders.send(Order::Look(Some(1))).await;
        }
        mesh.listen_to_some(draw == Draw::Swap).await;
    }
}

impl Mesh {
    async fn look_around(&self) {
        let with = self.0.peers.there();
        let member = self.0.standing.membership().is_some();
        let now = Instant::now();
        let due = self
            .0
            .looking
            .lock()
            .round(now, member, with.len(), fastrand::f64());
        let most = match due {
            None | Some(Company::Enough) => return,
            Some(Company::Invited | Company::Alone) => {
                self.tell_of_search(now);
                None
            }
            Some(Company::Few) => {
                self.meet_acquaintances_of(with).await;
                Some(ENOUGH)
            }
        };
        let _ = self.0.orders.send(Order::Look(most)).await;
    }

    /// Has some of those that are there say what changes: those that this node calls, and others, up to [`ENOUGH`]. Where another is
    /// wanted among these, one gives way.
    async fn listen_to_some(&self, another: bool) {
        let mut asked = self.0.peers.called(UNUSED);
        let gone = another.then(|| self.0.peers.gives_way(UNUSED)).flatten();
        let (mut silent, missing) = self.0.peers.silent(ENOUGH);
        silent.retain(|peer| !asked.contains(peer) && gone != Some(*peer));
        fastrand::shuffle(&mut silent);
        silent.truncate(missing.saturating_sub(asked.len()));
        asked.extend(silent);
        join_all(asked.into_iter().map(|peer| self.ask(peer))).await;
    }

    /// Asks some whom they know, and meets these; from then on it knows them, too.
    async fn meet_acquaintances_of(&self, mut members: Vec<PeerId>) {
        fastrand::shuffle(&mut members);
        members.truncate(ASKED);
        let asked = members.into_iter().map(|member| self.ask_whom_it_knows(member));
        let told = join_all(asked).await.into_iter().flatten();
        let mut whom: BTreeMap<PeerId, Vec<Multiaddr>> = BTreeMap::new();
        for address in told.flatten() {
            if let Some(Protocol::P2p(peer)) = address.iter().last()
                && peer != self.0.me
                && !self.is_connected(&peer)
            {
                let addresses = whom.entry(peer).or_default();
                if addresses.len() < MOST_ADDRESSES {
                    addresses.push(address);
                }
            }
        }
        let mut whom: Vec<Vec<Multiaddr>> = whom.into_values().collect();
        fastrand::shuffle(&mut whom);
        whom.truncate(ENOUGH);
        if !whom.is_empty() {
            let _ = self.0.orders.send(Order::Dial(whom.concat())).await;
        }
    }

    /// Says in the log that nobody is there; more and more seldom.
    fn tell_of_search(&self, now: Instant) {
        if let Some(search) = self.search_at(now)
            && search.known > 0
            && search.tries > 1
            && search.tries.is_power_of_two()
        {
            tracing::warn!(
                alone = ?search.alone,
                tries = search.tries,
                members = search.known,
                "no member is where it was; this node goes on looking"
            );
        }
    }

    pub(crate) fn search_at(&self, now: Instant) -> Option<Search> {
        if !self.0.peers.there().is_empty() {
            return None;
        }
        let known = self.0.standing.acquaintances().located();
        self.0.looking.lock().search(now, known)
    }
}

/// Shared by the loop and those who ask how far it is.
pub(crate) type SharedLooking = Mutex<Looking>;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// At which seconds a node looks that has this many others around it.
    fn looks(looking: &mut Looking, start: Instant, seconds: u32, with: usize) -> Vec<u32> {
        let at = |second: &u32| {
            let now = start + *second * SECOND;
            looking.round(now, true, with, 1.0).is_some()
        };
        (0..seconds).filter(at).collect()
    }

    #[test]
    fn who_is_alone_looks_more_and_more_seldom_but_always_again() {
        let start = Instant::now();
        let mut looking = Looking::new(start);
        let at = looks(&mut looking, start, 120, 0);
        assert_eq!(at[..6], [0, 1, 3, 7, 15, 31]);
        assert!(
            at.windows(2).skip(5).all(|pair| pair[1] - pair[0] == 20),
            "{at:?}"
        );
        let next = looking.next(start + 120 * SECOND).unwrap();
        assert!(next > Duration::ZERO && next <= 20 * SECOND, "{next:?}");
        let search = looking.search(start + 120 * SECOND, 4).unwrap();
        assert_eq!((search.alone, search.known), (120 * SECOND, 4));
        assert!(search.next <= 20 * SECOND && search.tries as usize == at.len());
    }

    #[test]
    fn who_comes_is_asked_at_once_and_who_goes_leaves_nobody_waiting() {
        let start = Instant::now();
        let mut looking = Looking::new(start);
        looks(&mut looking, start, 60, 0);
        assert_eq!(looks(&mut looking, start + 60 * SECOND, 8, 1), [0, 2, 6]);
        let later = start + 68 * SECOND;
        assert_eq!(looking.round(later, true, 2, 1.0), Some(Company::Few), "one more");
        // One that comes and goes does not make it ask all the time.
        looking.round(later, true, 1, 1.0);
        assert_eq!(looking.round(later, true, 2, 1.0), None);
        assert_eq!(looking.round(later, true, ENOUGH, 1.0), None);
        assert_eq!((looking.search(later, 4), looking.next(later)), (None, None));
        assert_eq!(
            looking.round(later, true, 0, 1.0),
            Some(Company::Alone),
            "all are gone"
        );
    }

    #[test]
    fn another_is_met_and_then_listened_to_once_in_a_while() {
        let start = Instant::now();
        let mut drawing = Drawing::new(start, 0.5);
        let mut draw = |seconds: u32| drawing.round(start + seconds * SECOND, 0.0);
        assert_eq!([draw(0), draw(3599)], [Draw::Rest; 2]);
        assert_eq!([draw(3600), draw(3615)], [Draw::Meet, Draw::Swap]);
        assert_eq!([draw(3630), draw(3615 + 1799)], [Draw::Rest; 2]);
        assert_eq!(draw(3615 + 1800), Draw::Meet);
    }

    #[test]
    fn luck_shortens_a_pause_by_no_more_than_half() {
        assert_eq!(ALONE.pause(1, 0.0), SECOND / 2);
        assert_eq!(ALONE.pause(u32::MAX, 1.0), ALONE.longest);
        assert_eq!(INVITED.pause(40, 1.0), INVITED.longest);
    }
}
