//! Why this node does not meet others, or meets them by a worse path: the commonest question about any mesh. And what else of its
//! configuration does not hold now.

use crate::contacts;
use crate::node::Node;
use karman_mesh::membership::{MembershipError, UnixTime};
use karman_mesh::{Mesh, Path, Peer, Situation, wall_clock};
use karman_store::{MOST_AHEAD, Store};
use karman_types::{TaskError, format_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of one check of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Diagnosis {
    /// What.
    pub check: String,
    /// Whether it is as it should be.
    pub works: bool,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Diagnosis {
    /// Looks at this machine's clock, beside the newest time that the node of this store has seen.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn of_clock(store: &Store) -> Result<Self, TaskError> {
        let clock = wall_clock();
        let seen = store.mesh().time_floor(0)?;
        Ok(of_clock(
            UnixTime::from_seconds(clock.as_secs()),
            UnixTime::from_seconds(seen),
        ))
    }

    fn good(check: &str, found: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            works: true,
            found: found.into(),
            hint: None,
        }
    }

    fn bad(check: &str, found: impl Into<String>, hint: &str) -> Self {
        Self {
            check: check.into(),
            works: false,
            found: found.into(),
            hint: Some(hint.into()),
        }
    }
}

impl Node {
    /// Looks at its clock, its policies, the servers of others and the contacts that it names, its membership, who reaches it and whom it
    /// reaches.
    ///
    /// # Errors
    /// When its store cannot be read.
    pub async fn diagnose(&self) -> Result<Vec<Diagnosis>, TaskError> {
        let clock = Diagnosis::of_clock(&self.runtime().home().store()?)?;
        let mut found = vec![clock, self.policy(), self.route(), self.place()];
        found.extend(self.endpoints_ready().await.into_iter().map(endpoint));
        found.extend(self.planned());
        let Some(mesh) = self.mesh() else {
            found.push(Diagnosis::good("mesh", "none; this node is alone"));
            return Ok(found);
        };
        let (situation, peers) = (mesh.situation().await, mesh.peers());
        let listen = self.runtime().config().mesh.listen;
        let port = situation.port().unwrap_or_else(|| listen.port());
        found.push(membership(mesh));
        found.push(listening(&situation, port));
        found.extend(entrances(&situation, &peers));
        found.extend(paths(&peers, port));
        found.push(reached(&situation, port));
        found.extend(refusals(mesh));
        Ok(found)
    }

    fn policy(&self) -> Diagnosis {
        match self.tasks().check_policy() {
            Ok(()) => Diagnosis::good("policy", &*self.runtime().config().policies.select),
            Err(error) => Diagnosis::bad(
                "policy",
                format!("{}: what names no policy itself fails", error.message),
                error.hint.as_deref().unwrap_or("see `[policies]` in node.toml"),
            ),
        }
    }

    fn route(&self) -> Diagnosis {
        match self.tasks().check_route() {
            Ok(()) => Diagnosis::good("route", &*self.runtime().config().policies.route),
            Err(error) => Diagnosis::bad(
                "route",
                format!("{}: the default decides", error.message),
                error.hint.as_deref().unwrap_or("see `[policies]` in node.toml"),
            ),
        }
    }

    fn place(&self) -> Diagnosis {
        match self.tasks().check_place() {
            Ok(()) => Diagnosis::good("place", &*self.runtime().config().policies.place),
            Err(error) => Diagnosis::bad(
                "place",
                format!("{}: FATE decides", error.message),
                error.hint.as_deref().unwrap_or("see `[policies]` in node.toml"),
            ),
        }
    }

    /// The contacts, where its configuration names some.
    fn planned(&self) -> Option<Diagnosis> {
        if !self.runtime().config().mesh.plans_contacts() {
            return None;
        }
        Some(match self.bundles().planned(contacts::now()) {
            Ok(number) => Diagnosis::good("contacts", format!("{number} ahead")),
            Err(error) => Diagnosis::bad(
                "contacts",
                format!("{}: the plan stays as it was", error.message),
                "see `contacts` and `[mesh.orbits]` in node.toml; what they name is read again by itself",
            ),
        })
    }
}

/// What a clock shows, beside the newest time that the node has seen.
fn of_clock(clock: UnixTime, seen: UnixTime) -> Diagnosis {
    if clock < seen {
        Diagnosis::bad(
            "clock",
            format!("it shows {clock}, and this node has seen {seen} already"),
            "set it (`timedatectl set-ntp true`): until then tasks with a deadline are held, and memberships are judged by the later \
             time; if it is right, stop the node and run `karman node reset-clock`",
        )
    } else if clock > seen.after(MOST_AHEAD) {
        Diagnosis::bad(
            "clock",
            format!("it shows {clock}, and the newest time that this node has seen is {seen}"),
            "if it is wrong, set it (`timedatectl set-ntp true`): tasks and memberships end by it",
        )
    } else {
        Diagnosis::good("clock", "in line with the times that this node has seen")
    }
}

fn endpoint((name, ready): (String, Result<(), TaskError>)) -> Diagnosis {
    let check = format!("endpoint {name}");
    match ready {
        Ok(()) => Diagnosis::good(&check, "ready"),
        Err(error) => Diagnosis::bad(
            &check,
            error.message,
            error
                .hint
                .as_deref()
                .unwrap_or("see its table below `[endpoints]` in node.toml"),
        ),
    }
}

fn membership(mesh: &Mesh) -> Diagnosis {
    let (standing, again) = (
        mesh.standing(),
        "ask for a new invitation (`karman mesh invite`), and start with --join",
    );
    let name = standing.mesh().short();
    if let Some(why) = standing.put_out() {
        return Diagnosis::bad("membership", format!("put out of mesh {name}: {why}"), again);
    }
    match (standing.own_or_why(), mesh.refusal()) {
        (Some(Ok(member)), _) => {
            let until = member.not_after;
            Diagnosis::good(
                "membership",
                format!("{} node of mesh {name} until {until}", member.tier),
            )
        }
        (Some(Err(why)), _) => {
            let hint = match why {
                MembershipError::ClockBehind { .. } => "see the clock above",
                _ => again,
            };
            Diagnosis::bad(
                "membership",
                format!("that of mesh {name} does not hold: {why}"),
                hint,
            )
        }
        (None, Some(why)) => Diagnosis::bad(
            "membership",
            format!("mesh {name} does not let this node in: {why}"),
            again,
        ),
        (None, None) => Diagnosis::bad(
            "membership",
            format!("none of mesh {name} yet"),
            "a node that may issue has to be in reach: see the entrances below",
        ),
    }
}

fn listening(situation: &Situation, port: u16) -> Diagnosis {
    let places: Vec<String> = situation.listens.iter().map(ToString::to_string).collect();
    let local = |place: &String| place.contains("/127.0.0.1/") || place.contains("/ip6/::1/");
    if places.is_empty() {
        return Diagnosis::bad(
            "listens",
            "nowhere",
            "is the port of `mesh.listen` taken by another program?",
        );
    }
    match places.iter().all(local) {
        false => Diagnosis::good("listens", places.join("\n")),
        true => Diagnosis::bad(
            "listens",
            places.join("\n"),
            &format!("only this machine gets there: set `mesh.listen` to 0.0.0.0:{port}"),
        ),
    }
}

/// What was dialled in vain, while nobody or hardly anybody is in reach.
fn entrances(situation: &Situation, peers: &[Peer]) -> Vec<Diagnosis> {
    let connected = peers.iter().filter(|peer| peer.path.is_some()).count();
    let mut found = vec![match connected {
        0 => Diagnosis::bad(
            "peers",
            nobody(situation),
            "name a node that can be reached under `mesh.entrances` of node.toml, such as /ip4/192.0.2.7/udp/7117/quic-v1",
        ),
        1 => Diagnosis::good("peers", "1 node in reach"),
        number => Diagnosis::good("peers", format!("{number} nodes in reach")),
    }];
    if connected == 0 {
        let failures = situation.failures.iter();
        found.extend(
            failures.map(|(address, why)| Diagnosis::bad("dial", format!("{address}: {why}"), advice(why))),
        );
    }
    found
}

/// Since when nobody is there, and what the node does about it.
fn nobody(situation: &Situation) -> String {
    match &situation.search {
        Some(search) if search.tries > 0 => format!(
            "nobody is in reach for {}; looked {} times where {} members and the entrances were, and on this network; again in {}",
            seconds(search.alone),
            search.tries,
            search.known,
            seconds(search.next),
        ),
        _ => "nobody is in reach".to_owned(),
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => "less than 1 s".to_owned(),
        whole => format_duration(Duration::from_secs(whole)),
    }
}

fn advice(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    if why.contains("refused") && !why.contains("refused us") {
        "nothing listens there: is the node up, and is that its port?"
    } else if why.contains("timed out") || why.contains("timeout") {
        "nothing comes back: a firewall on the way, or the machine is off; UDP and TCP must pass to that port, and UDP to the next"
    } else if why.contains("unreachable") {
        "no way leads there: is the address right, and this machine's network up?"
    } else if why.contains("version") {
        "update the older of the two"
    } else {
        "`karman node logs` says more"
    }
}

/// UDP that does not pass shows in paths over TCP whose better ones were tried.
fn paths(peers: &[Peer], port: u16) -> Option<Diagnosis> {
    let by = |path| peers.iter().filter(move |peer| peer.path == Some(path));
    let (direct, tcp, relayed) = (
        by(Path::Direct).count(),
        by(Path::Tcp).count(),
        by(Path::Relayed).count(),
    );
    if direct + tcp + relayed == 0 {
        return None;
    }
    let found = format!("{direct} direct, {tcp} over TCP, {relayed} relayed");
    let why = by(Path::Tcp)
        .chain(by(Path::Relayed))
        .find_map(|peer| peer.obstacle.clone());
    let found = match why {
        Some(why) => format!("{found}\n{why}"),
        None => found,
    };
    Some(match (direct, tcp) {
        (0, 1..) => Diagnosis::bad(
            "paths",
            found,
            "let UDP out to the ports of other nodes (7117 and 7118, if they say nothing else) and the answers in: calls over TCP wait \
             for each other's lost packets",
        ),
        (0, 0) => Diagnosis::bad(
            "paths",
            found,
            &format!("forward UDP {port} to this machine at the router, if it is yours: relays are slower"),
        ),
        // Where some are reached directly, what keeps the others is on their side.
        _ => Diagnosis::good("paths", found),
    })
}

fn reached(situation: &Situation, port: u16) -> Diagnosis {
    let Situation {
        reached,
        translated,
        relayed,
        ..
    } = situation;
    match (reached, translated, relayed) {
        (true, _, _) => Diagnosis::good("reachable", "others reach this node where it listens"),
        (false, true, true) => Diagnosis::good(
            "reachable",
            "behind a router that translates; others come over a relay, and directly where a hole can be punched",
        ),
        (false, false, true) => Diagnosis::good("reachable", "over a relay; nobody has come directly yet"),
        (false, true, false) => Diagnosis::bad(
            "reachable",
            "behind a router that translates, and no relay has a place",
            &format!(
                "one node of the mesh has to be reachable from everywhere (a cloud node, or UDP port {port} forwarded to this one)"
            ),
        ),
        (false, false, false) => Diagnosis::bad(
            "reachable",
            "nobody has dialled this node yet",
            &format!(
                "a node that came a moment ago is tried within seconds; else open UDP and TCP {port} in its firewall"
            ),
        ),
    }
}

/// Who was turned away: of the reasons only these are for the operator to mend.
fn refusals(mesh: &Mesh) -> Vec<Diagnosis> {
    let mendable = |reason: &str| match reason {
        "version" => Some("update the older of the two"),
        "expired" => Some("bring that node into reach of an issuer, or invite it again"),
        "revoked" => Some("a revoked node needs a new key and a new invitation"),
        "old-root" => Some("it was away for longer than the old root key held: invite it again"),
        "forked-root" => Some("somebody else has the old root key: make the mesh anew"),
        "false-root" => Some("somebody claims to have the mesh's new root key; it has not"),
        "used-invitation" => Some("each invitation is for one node: make another"),
        "withdrawn-invitation" => Some("its invitation was withdrawn: make another if it is to come"),
        _ => None,
    };
    let refusals = mesh.standing().refusals().into_iter();
    refusals
        .filter_map(|(reason, count)| {
            let hint = mendable(reason)?;
            Some(Diagnosis::bad(
                "turned away",
                format!("{count} times: {reason}"),
                hint,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_bad_behind_what_was_seen_and_far_ahead_of_it() {
        let seen = UnixTime::from_seconds(1_700_000_000);
        for (clock, says) in [
            (seen, "in line"),
            (seen.after(MOST_AHEAD), "in line"),
            (
                UnixTime::from_seconds(1_699_999_997),
                "shows 2023-11-14 22:13:17 UTC, and this node has seen 2023-11-14 22:13:20 UTC",
            ),
            (
                seen.after(MOST_AHEAD * 2),
                "the newest time that this node has seen",
            ),
        ] {
            let found = of_clock(clock, seen);
            assert!(found.found.contains(says), "{}", found.found);
            assert_eq!(found.works, says == "in line");
        }
    }
}
