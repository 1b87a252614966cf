//! Why this node does not meet others, or meets them by a worse path: the commonest question about any mesh. And what else of its
//! configuration does not hold now.

use crate::node::Node;
use crate::services::store_error;
use karman_mesh::{Mesh, Path, Peer, Situation};
use karman_store::MOST_AHEAD;
use karman_types::{TaskError, format_duration};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    /// Looks at its clock, its policies, the servers of others that it names, its membership, who reaches it and whom it reaches.
    ///
    /// # Errors
    /// When its store cannot be read.
    pub async fn diagnose(&self) -> Result<Vec<Diagnosis>, TaskError> {
        let mut found = vec![self.clock()?, self.policy(), self.route(), self.place()];
        found.extend(self.endpoints_ready().await.into_iter().map(endpoint));
        let Some(mesh) = self.mesh() else {
            found.push(Diagnosis::good("mesh", "none; this node is alone"));
            return Ok(found);
        };
        let (situation, peers) = (mesh.situation().await, mesh.peers());
        found.push(membership(mesh));
        found.push(listening(&situation));
        found.extend(entrances(&situation, &peers));
        found.extend(paths(&peers));
        found.push(reached(&situation));
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

    fn clock(&self) -> Result<Diagnosis, TaskError> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let store = self.runtime().home().store()?;
        let floor = store.mesh().time_floor(0).map_err(store_error)?;
        Ok(of_clock(clock, Duration::from_secs(floor)))
    }
}

/// What a clock shows, beside the newest time that the node has seen.
fn of_clock(clock: Duration, seen: Duration) -> Diagnosis {
    let (behind, ahead) = (seen.saturating_sub(clock).as_secs(), clock.saturating_sub(seen));
    if behind > 0 {
        Diagnosis::bad(
            "clock",
            format!("{behind} s behind a time that this node has already seen"),
            "set it (`timedatectl set-ntp true`): until then tasks with a deadline are held",
        )
    } else if ahead > MOST_AHEAD {
        Diagnosis::bad(
            "clock",
            format!(
                "{} ahead of any time that this node has seen",
                format_duration(ahead)
            ),
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
    let name = mesh.standing().mesh().short();
    match (mesh.standing().own(), mesh.refusal()) {
        (Some(member), _) => {
            let until = member.not_after;
            Diagnosis::good(
                "membership",
                format!("{} node of mesh {name} until {until}", member.tier),
            )
        }
        (None, Some(why)) => Diagnosis::bad(
            "membership",
            format!("mesh {name} does not let this node in: {why}"),
            "ask for a new invitation (`karman mesh invite`), and start with --join",
        ),
        (None, None) => Diagnosis::bad(
            "membership",
            format!("none of mesh {name} yet, or none that still holds"),
            "a node that may issue has to be in reach: see the entrances below",
        ),
    }
}

fn listening(situation: &Situation) -> Diagnosis {
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
            "only this machine gets there: set `mesh.listen` to 0.0.0.0:7117",
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
    format_duration(Duration::from_secs(time.as_secs()))
}

fn advice(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    if why.contains("refused") && !why.contains("refused us") {
        "nothing listens there: is the node up, and is that its port?"
    } else if why.contains("timed out") || why.contains("timeout") {
        "nothing comes back: a firewall on the way, or the machine is off; UDP and TCP 7117 and UDP 7118 must pass"
    } else if why.contains("unreachable") {
        "no way leads there: is the address right, and this machine's network up?"
    } else if why.contains("version") {
        "update the older of the two"
    } else {
        "`karman node logs` says more"
    }
}

/// UDP that does not pass shows in paths over TCP whose better ones were tried.
fn paths(peers: &[Peer]) -> Option<Diagnosis> {
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
            "let UDP 7117 and 7118 out and their answers in: calls over TCP wait for each other's lost packets",
        ),
        (0, 0) => Diagnosis::bad(
            "paths",
            found,
            "forward UDP 7117 to this machine at the router, if it is yours: relays are slower",
        ),
        // Where some are reached directly, what keeps the others is on their side.
        _ => Diagnosis::good("paths", found),
    })
}

fn reached(situation: &Situation) -> Diagnosis {
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
            "one node of the mesh has to be reachable from everywhere (a cloud node, or a forwarded UDP port 7117)",
        ),
        (false, false, false) => Diagnosis::bad(
            "reachable",
            "nobody has dialled this node yet",
            "a node that came a moment ago is tried within seconds; else open UDP and TCP 7117 in its firewall",
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
        let seen = Duration::from_secs(1_700_000_000);
        for (clock, says) in [
            (seen, "in line"),
            (seen + MOST_AHEAD, "in line"),
            (seen - Duration::from_secs(3), "3 s behind"),
            (seen + MOST_AHEAD * 2, "ahead of any time"),
        ] {
            let found = of_clock(clock, seen);
            assert!(found.found.contains(says), "{}", found.found);
            assert_eq!(found.works, says == "in line");
        }
    }
}
