use super::brought::decided;
use super::{BuiltIn, Candidate, Decision, Reason, Situation};
use crate::Why;
use crate::call::ByPlugin;
use crate::select::{Failed, Failure, Guests, PolicyPlugin};
use crate::strikes::Strikes;
use karman_types::{NodeId, format_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// Where a step of a workflow goes, with all that it was decided by.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Placed {
    /// The policy. Where a plugin brings one, the one that decides where that does not.
    pub policy: BuiltIn,
    /// What a plugin had to do with it, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_plugin: Option<ByPlugin>,
    /// What was known.
    pub known: Situation,
    /// Where it goes; nothing where the policy did not say.
    pub decision: Option<Decision>,
}

impl Placed {
    /// Places a step.
    pub fn by(policy: BuiltIn, known: Situation) -> Self {
        Self {
            policy,
            by_plugin: None,
            decision: decision(policy, &known),
            known,
        }
    }

    /// The same, decided once more.
    ///
    /// # Errors
    /// The plugin that it takes, which is not here.
    pub fn again(&self, guests: Option<&dyn Guests>) -> Result<Self, &PolicyPlugin> {
        let known = self.known.clone();
        let Some(ByPlugin { name, plugin, said }) = &self.by_plugin else {
            return Ok(Self::by(self.policy, known));
        };
        let decided = match (plugin, said) {
            // That is of the past, and not for the plugin to say again.
            (_, Err(failure)) if failure.is_of_the_node() => Err(failure.clone()),
            (None, _) => Err(Failure::NotHere),
            (Some(plugin), _) => {
                let guests = guests.filter(|guests| guests.has(plugin)).ok_or(plugin)?;
                asked(plugin, guests, &known)
            }
        };
        Ok(placed((name.clone(), plugin.clone()), decided, known))
    }

    /// By which name the policy is known.
    pub fn policy(&self) -> &str {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| self.policy.name(), |by_plugin| by_plugin.name.as_str())
    }

    /// The plugin that was asked, where one was.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.by_plugin.as_ref()?.plugin.as_ref()
    }

    /// Why the default decided in the place of a plugin, where it did.
    pub fn failed(&self) -> Option<Failed> {
        self.by_plugin.as_ref()?.failed()
    }

    /// The place of the node that it goes to, among those that were known.
    pub fn chosen(&self) -> Option<usize> {
        Some(self.decision.as_ref()?.chosen?.node)
    }

    /// The node that it goes to.
    pub fn node(&self) -> Option<NodeId> {
        self.node_at(self.chosen()?)
    }

    /// The decision in plain words.
    pub fn why(&self) -> Why {
        let question = format!("where `{}` runs", self.known.step);
        let Some(node) = self.node() else {
            return Why::new(question, "where a call of it goes", self.because());
        };
        let why = Why::new(question, node.short(), self.because());
        match self.runner_up().and_then(|other| self.node_at(other.node)) {
            Some(other) => why.rather_than(other.short()),
            None => why,
        }
    }

    /// The same, and what failed in a plugin.
    pub fn told(&self) -> String {
        let why = self.why();
        match self.failed() {
            Some(failed) => format!("{why}; {failed}"),
            None => why.to_string(),
        }
    }

    /// A log from elsewhere may name places that are not there.
    fn node_at(&self, place: usize) -> Option<NodeId> {
        self.known.fleet.nodes.get(place).map(|node| node.id)
    }

    fn runner_up(&self) -> Option<Candidate> {
        self.decision.as_ref()?.runner_up
    }

    fn because(&self) -> String {
        let Some(decision) = &self.decision else {
            return "the policy names no node for it now".into();
        };
        let other = self.runner_up();
        let other = other.and_then(|other| Some((self.node_at(other.node)?.short(), other)));
        match (&decision.reason, &decision.chosen, other) {
            (Reason::Said(words), ..) => words.clone(),
            (Reason::NoRoom, ..) => "no node that can be reached holds what it takes".into(),
            (Reason::Waits { node, until }, ..) => {
                let node = self
                    .node_at(*node)
                    .map_or_else(|| "the best".into(), |node| node.short());
                format!(
                    "{node}, which would be best, is busy for another {}",
                    time(*until)
                )
            }
            (Reason::FutureState { cost, future }, _, other) => {
                let there = format!("it is done there within {}", time(*cost));
                let after = format!("what comes after counts as {} more", time(*future));
                match other {
                    Some((other, candidate)) => format!(
                        "{there} and {after}, which is {} in all, and {} at {other}",
                        time(cost + future),
                        time(candidate.score)
                    ),
                    None => format!("{there}, {after}, and no other holds what it takes"),
                }
            }
            (Reason::LeastLoaded, ..) => "the least waits there".into(),
            (_, Some(chosen), Some((other, candidate))) => format!(
                "it is done there within {}, and within {} at {other}",
                time(chosen.finish),
                time(candidate.finish)
            ),
            (..) => "no other holds what it takes".into(),
        }
    }
}

fn time(seconds: f64) -> String {
    format_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The policy that a plugin of this name brings, with FATE in reserve: where it fails, that decides, and the decision says so.
///
/// It is asked in an instance of its own each time, so that nothing counts but what is known. One that has failed three times in a row
/// is not asked for ten seconds.
pub struct ByName {
    name: String,
    plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>,
    strikes: Strikes,
}

impl ByName {
    /// The policy of this name. FATE decides until there is a [plugin](Self::set_plugin).
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            plugin: None,
            strikes: Strikes::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin that brings it now.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.plugin.as_ref().map(|(plugin, _)| plugin)
    }

    /// From now on this plugin brings it, or none. What another one did is not held against it.
    pub fn set_plugin(&mut self, plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>) {
        *self = Self {
            plugin,
            ..Self::new(std::mem::take(&mut self.name))
        };
    }

    /// Places a step. `now` is since some start.
    pub fn place(&mut self, now: Duration, known: Situation) -> Placed {
        let decided = self.ask(now, &known);
        self.strikes.count(now, decided.as_ref().err());
        placed((self.name.clone(), self.plugin().cloned()), decided, known)
    }

    fn ask(&self, now: Duration, known: &Situation) -> Result<Option<Decision>, Failure> {
        let (plugin, guests) = self.plugin.as_ref().ok_or(Failure::NotHere)?;
        self.strikes.check(now)?;
        asked(plugin, &**guests, known)
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByName")
            .field("name", &self.name)
            .field("plugin", &self.plugin())
            .field("strikes", &self.strikes)
            .finish_non_exhaustive()
    }
}

/// What a built-in policy says of the step.
fn decision(policy: BuiltIn, known: &Situation) -> Option<Decision> {
    known.check().ok()?;
    let jobs = slice::from_ref(&known.job);
    let decisions = policy.policy().place(0.0, jobs, &known.fleet);
    decisions.into_iter().find(|decision| decision.task == 0)
}

/// What a plugin says of it, if that can be.
fn asked(plugin: &PolicyPlugin, guests: &dyn Guests, known: &Situation) -> Result<Option<Decision>, Failure> {
    known.check().map_err(|error| Failure::Host {
        why: error.to_string(),
    })?;
    let jobs = slice::from_ref(&known.job);
    let placements = guests.place(plugin, 0.0, jobs, &known.fleet)?;
    let decisions = decided(0.0, jobs, &known.fleet, placements)?;
    Ok(decisions.into_iter().next())
}

fn placed(
    (name, plugin): (String, Option<PolicyPlugin>),
    decided: Result<Option<Decision>, Failure>,
    known: Situation,
) -> Placed {
    let reserve = BuiltIn::default();
    let words = |decision: &Decision| match &decision.reason {
        Reason::Said(words) => words.clone(),
        _ => String::new(),
    };
    let (decision, said) = match decided {
        Ok(decision) => {
            let said = decision.as_ref().map(words).unwrap_or_default();
            (decision, Ok(said))
        }
        Err(failure) => (decision(reserve, &known), Err(failure)),
    };
    Placed {
        policy: reserve,
        by_plugin: Some(ByPlugin { name, plugin, said }),
        known,
        decision,
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::tests::{ahead, known, millis};
    use super::super::{Fleet, Job, Placement};
    use super::*;
    use crate::log::{Entry, explain, replay, replay_with};
    use crate::select::{Guest, Task};
    use karman_types::{ByteSize, Digest, Slo, TaskId};

    /// The node that places does not hold what the step takes; of two that do, the second is nearer.
    fn situation() -> Situation {
        let mut nodes = [known("here", 0, 2), known("far", 80, 2), known("near", 20, 2)];
        nodes[0].holds[0] = false;
        (nodes[1].takes[0], nodes[2].takes[0]) = (Some(millis(40)), Some(millis(40)));
        Situation::of("one", &ahead(), (1000, Some(millis(9000))), &nodes)
    }

    fn short(place: usize) -> String {
        situation().fleet.nodes[place].id.short()
    }

    fn request() -> TaskId {
        TaskId::from_parts(4, 4)
    }

    /// Answers the same whatever it is asked.
    struct Says(Result<Vec<Placement>, Failure>);

    impl Guests for Says {
        fn has(&self, _: &PolicyPlugin) -> bool {
            true
        }

        fn start(
            &self,
            plugin: &PolicyPlugin,
            _: &[Task],
            _: &Slo,
            _: Option<&[u8]>,
        ) -> Result<Box<dyn Guest>, Failure> {
            Err(Failure::Missing { id: plugin.id })
        }

        fn place(&self, _: &PolicyPlugin, _: f64, _: &[Job], _: &Fleet) -> Result<Vec<Placement>, Failure> {
            self.0.clone()
        }
    }

    fn says(said: Result<Vec<Placement>, Failure>) -> (ByName, Arc<dyn Guests>) {
        let plugin = PolicyPlugin {
            name: "says".into(),
            version: "1.0.0".into(),
            id: Digest::of(b"says"),
            fuel: 1000,
            memory: ByteSize::mib(1),
        };
        let guests: Arc<dyn Guests> = Arc::new(Says(said));
        let mut policy = ByName::new("says");
        policy.set_plugin(Some((plugin, guests.clone())));
        (policy, guests)
    }

    fn to(node: usize) -> Result<Vec<Placement>, Failure> {
        Ok(vec![Placement {
            job: 0,
            task: 0,
            node,
            because: "so it says".into(),
        }])
    }

    #[test]
    fn a_decision_is_told_with_what_came_of_it_and_made_again() {
        for policy in BuiltIn::ALL {
            let placed = Placed::by(policy, situation());
            assert_eq!((placed.chosen(), placed.policy()), (Some(2), policy.name()));
            let log = [
                Entry::placed(1, request(), placed.clone()),
                Entry::answered(2, request(), (policy.name(), 2), millis(70)),
            ];
            let told = explain(&log, request())[0].to_string();
            let begins = format!(
                "where `one` runs: {}, rather than {}, because ",
                short(2),
                short(1)
            );
            assert!(told.starts_with(&begins), "{told}");
            assert!(
                told.ends_with("; it was last heard of 300 ms before; it took 70 ms"),
                "{told}"
            );
            let written = cbor4ii::serde::to_vec(Vec::new(), &log[0]).unwrap();
            let read: Entry = cbor4ii::serde::from_slice(&written).unwrap();
            let replayed = replay([&read]);
            assert_eq!((replayed.same, replayed.holds()), (1, true));
        }
        let why = Placed::by(BuiltIn::Heft, situation()).why().to_string();
        let ends = format!("it is done there within 60 ms, and within 120 ms at {}", short(1));
        assert!(why.ends_with(&ends), "{why}");
    }

    #[test]
    fn who_ran_it_instead_is_told() {
        let placed = Placed::by(BuiltIn::Fate, situation());
        let log = [
            Entry::placed(1, request(), placed),
            Entry::answered(2, request(), ("fate", 1), millis(90)),
        ];
        let told = explain(&log, request())[0].to_string();
        let ends = format!("; {} answered instead, 90 ms after the call was made", short(1));
        assert!(told.ends_with(&ends), "{told}");
    }

    #[test]
    fn where_nobody_can_take_it_it_goes_where_calls_go() {
        let mut known = situation();
        for node in &mut known.fleet.nodes {
            node.resident.clear();
        }
        let placed = Placed::by(BuiltIn::Heft, known);
        assert_eq!((placed.chosen(), placed.node()), (None, None));
        assert_eq!(
            placed.told(),
            "where `one` runs: where a call of it goes because no node that can be reached holds what it takes"
        );
        let mut known = situation();
        for slot in known.fleet.nodes.iter_mut().flat_map(|node| &mut node.slots) {
            slot.free_at = 2.0;
        }
        let told = Placed::by(BuiltIn::Fate, known).told();
        assert!(told.ends_with("the policy names no node for it now"), "{told}");
    }

    #[test]
    fn a_plugin_decides_and_where_it_cannot_the_default_does() {
        let (mut policy, guests) = says(to(1));
        let placed = policy.place(millis(1), situation());
        assert_eq!((placed.chosen(), placed.policy()), (Some(1), "says"));
        assert_eq!(
            placed.told(),
            format!("where `one` runs: {} because so it says", short(1))
        );
        assert_eq!(placed.again(Some(&*guests)), Ok(placed.clone()));
        assert_eq!(placed.again(None).ok(), None);
        for said in [to(0), to(7), Err(Failure::Nobody)] {
            let (mut policy, guests) = says(said);
            let placed = policy.place(millis(1), situation());
            assert_eq!(placed.chosen(), Some(2));
            let told = placed.told();
            assert!(
                told.contains("; policy says 1.0.0 did not decide, the default did: "),
                "{told}"
            );
            assert_eq!(placed.again(Some(&*guests)), Ok(placed.clone()));
        }
        let placed = ByName::new("nobody").place(millis(1), situation());
        assert_eq!(
            placed.failed().map(|failed| failed.failure),
            Some(Failure::NotHere)
        );
        assert_eq!(placed.again(None), Ok(placed.clone()));
    }

    #[test]
    fn what_comes_out_different_is_found() {
        let (mut policy, guests) = says(to(1));
        let mut placed = policy.place(millis(1), situation());
        let entry = |placed: &Placed| Entry::placed(1, request(), placed.clone());
        assert_eq!(entry(&placed).plugin(), policy.plugin());
        assert_eq!(replay([&entry(&placed)]).without_plugin[0].plugin, "says 1.0.0");
        assert!(replay_with([&entry(&placed)], &guests).holds());
        let other = says(to(2)).1;
        let replayed = replay_with([&entry(&placed)], &other);
        let moved = &replayed.replaced[0];
        assert!(!replayed.holds());
        assert_eq!((moved.logged, moved.now), (Some(1), Some(2)));
        // A log from elsewhere may be anything.
        placed.known.fleet.nodes.clear();
        assert!(!replay_with([&entry(&placed)], &guests).holds());
        placed.by_plugin = None;
        assert!(!replay([&entry(&placed)]).holds());
        let _ = explain(&[entry(&placed)], request());
    }
}
