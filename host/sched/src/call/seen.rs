use karman_types::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// What was measured longer ago than this says nothing any more: then the node may be tried again.
const LATELY: Duration = Duration::from_secs(60);
/// For how long a node that did not answer is tried last.
const AWAY: Duration = Duration::from_secs(5);
/// Tasks that something is remembered of, and nodes for each.
const MOST_TASKS: usize = 1024;
const MOST_NODES: usize = 256;

/// What calls took on each node lately, by task, and who did not answer. Times are since some start.
///
/// It is bounded: for one task or node too many those are forgotten of which nothing is of use any more, and where that is none, nothing
/// is remembered of the new one.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    tasks: BTreeMap<String, BTreeMap<NodeId, Last>>,
}

/// What is remembered of a node, as far as it is of use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lately {
    /// What calls took that were answered.
    pub takes: Option<Duration>,
    /// How long a call was waited for that was given up, where none was answered since.
    pub outlasted: Option<Duration>,
    /// How long ago one was not answered.
    pub failed: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// What calls took that were answered, smoothed, and when the last one ended.
    took: Option<(Duration, Duration)>,
    /// The longest that was waited in vain since, and when.
    outlasted: Option<(Duration, Duration)>,
    failed: Option<Duration>,
}

impl Seen {
    /// A call was answered, after this time without the round trip. A quarter of what is known is then from this call, and what was waited
    /// for others in vain says nothing any more.
    pub fn answered(&mut self, now: Duration, task: &str, node: NodeId, took: Duration) {
        if let Some(last) = self.last(now, task, node) {
            let smoothed = |before: Duration| before.saturating_mul(3).saturating_add(took) / 4;
            last.took = Some((last.takes(now).map_or(took, smoothed), now));
            last.outlasted = None;
            last.failed = None;
        }
    }

    /// A call was given up that had not been answered after this time: it takes no less, and nobody knows what it takes. Where so much is
    /// known, nothing was learned, and what is known gets no younger.
    pub fn given_up(&mut self, now: Duration, task: &str, node: NodeId, after: Duration) {
        if let Some(last) = self.last(now, task, node)
            && last
                .takes(now)
                .max(last.outlasted(now))
                .is_none_or(|least| least < after)
        {
            last.outlasted = Some((after, now));
        }
    }

    /// The node could not be reached, or does not run the task now.
    pub fn failed(&mut self, now: Duration, task: &str, node: NodeId) {
        if let Some(last) = self.last(now, task, node) {
            last.failed = Some(now);
        }
    }

    /// What is known of calls of the task on the node.
    pub fn of(&self, now: Duration, task: &str, node: NodeId) -> Lately {
        let nodes = self.tasks.get(task);
        let last = nodes.and_then(|nodes| nodes.get(&node));
        let of = |last: &Last| Lately {
            takes: last.takes(now),
            outlasted: last.outlasted(now),
            failed: last.failed_ago(now),
        };
        last.map(of).unwrap_or_default()
    }

    fn last(&mut self, now: Duration, task: &str, node: NodeId) -> Option<&mut Last> {
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(task) {
            self.tasks
                .retain(|_, nodes| nodes.values().any(|last| last.is_of_use(now)));
            if self.tasks.len() >= MOST_TASKS {
                return None;
            }
        }
        let nodes = self.tasks.entry(task.to_owned()).or_default();
        if nodes.len() >= MOST_NODES && !nodes.contains_key(&node) {
            nodes.retain(|_, last| last.is_of_use(now));
            if nodes.len() >= MOST_NODES {
                return None;
            }
        }
        Some(nodes.entry(node).or_default())
    }
}

impl Last {
    fn takes(&self, now: Duration) -> Option<Duration> {
        lately(self.took, now)
    }

    fn outlasted(&self, now: Duration) -> Option<Duration> {
        lately(self.outlasted, now)
    }

    fn failed_ago(&self, now: Duration) -> Option<Duration> {
        let ago = now.saturating_sub(self.failed?);
        (ago < AWAY).then_some(ago)
    }

    fn is_of_use(&self, now: Duration) -> bool {
        self.takes(now).is_some() || self.outlasted(now).is_some() || self.failed_ago(now).is_some()
    }
}

fn lately(known: Option<(Duration, Duration)>, now: Duration) -> Option<Duration> {
    let (time, when) = known?;
    (now.saturating_sub(when) < LATELY).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn node(name: &str) -> NodeId {
        NodeId::of_key(name.as_bytes())
    }

    #[test]
    fn what_calls_took_is_smoothed_and_forgotten() {
        let mut seen = Seen::default();
        let of = |seen: &Seen, now| seen.of(seconds(now), "echo", node("a")).takes;
        assert_eq!(of(&seen, 0), None);
        seen.answered(seconds(1), "echo", node("a"), seconds(8));
        assert_eq!(of(&seen, 1), Some(seconds(8)));
        seen.answered(seconds(2), "echo", node("a"), seconds(4));
        assert_eq!(of(&seen, 61), Some(seconds(7)));
        assert_eq!(of(&seen, 62), None);
        // What was forgotten does not count in what is measured next.
        seen.answered(seconds(70), "echo", node("a"), seconds(1));
        assert_eq!(of(&seen, 70), Some(seconds(1)));
        assert_eq!(seen.of(seconds(70), "echo", node("b")), Lately::default());
        assert_eq!(seen.of(seconds(70), "other", node("a")), Lately::default());
    }

    #[test]
    fn a_call_that_was_given_up_takes_no_less() {
        let mut seen = Seen::default();
        let of = |seen: &Seen| seen.of(seconds(3), "echo", node("a")).outlasted;
        seen.given_up(seconds(1), "echo", node("a"), seconds(2));
        assert_eq!(of(&seen), Some(seconds(2)));
        seen.given_up(seconds(2), "echo", node("a"), seconds(1));
        assert_eq!(of(&seen), Some(seconds(2)));
        seen.given_up(seconds(3), "echo", node("a"), seconds(5));
        assert_eq!(of(&seen), Some(seconds(5)));
        // A node is tried again however often calls to it are given up early.
        seen.given_up(seconds(40), "echo", node("a"), seconds(1));
        let later = |now| seen.of(seconds(now), "echo", node("a")).outlasted;
        assert_eq!((later(62), later(63)), (Some(seconds(5)), None));
    }

    #[test]
    fn what_was_waited_in_vain_is_kept_apart_from_what_was_measured() {
        let mut seen = Seen::default();
        let of = |seen: &Seen| {
            let Lately { takes, outlasted, .. } = seen.of(seconds(9), "echo", node("a"));
            (takes, outlasted)
        };
        seen.answered(seconds(1), "echo", node("a"), seconds(4));
        seen.given_up(seconds(2), "echo", node("a"), seconds(3));
        assert_eq!(of(&seen), (Some(seconds(4)), None));
        seen.given_up(seconds(3), "echo", node("a"), seconds(20));
        assert_eq!(of(&seen), (Some(seconds(4)), Some(seconds(20))));
        // The next answer is smoothed with answers only.
        seen.answered(seconds(4), "echo", node("a"), seconds(8));
        assert_eq!(of(&seen), (Some(seconds(5)), None));
    }

    #[test]
    fn who_did_not_answer_is_away_until_it_does_or_for_a_while() {
        let mut seen = Seen::default();
        let of = |seen: &Seen, now| seen.of(seconds(now), "echo", node("a")).failed;
        seen.failed(seconds(10), "echo", node("a"));
        assert_eq!((of(&seen, 14), of(&seen, 15)), (Some(seconds(4)), None));
        seen.answered(seconds(12), "echo", node("a"), seconds(1));
        assert_eq!(of(&seen, 12), None);
    }

    #[test]
    fn it_remembers_no_more_than_it_may() {
        let mut seen = Seen::default();
        let name = |n: usize| format!("task {n}");
        for n in 0..=MOST_TASKS {
            seen.answered(seconds(0), &name(n), node("a"), seconds(1));
        }
        let takes = |seen: &Seen, now, task: &str| seen.of(seconds(now), task, node("a")).takes;
        assert_eq!(takes(&seen, 0, &name(0)), Some(seconds(1)));
        // No room was left for the last one, until the others are of no use.
        assert_eq!(takes(&seen, 0, &name(MOST_TASKS)), None);
        seen.answered(seconds(100), &name(MOST_TASKS), node("a"), seconds(1));
        assert_eq!(takes(&seen, 100, &name(MOST_TASKS)), Some(seconds(1)));
        assert_eq!(seen.tasks.len(), 1);
        for n in 0..=MOST_NODES {
            seen.failed(seconds(100), "echo", node(&n.to_string()));
        }
        assert_eq!(seen.tasks["echo"].len(), MOST_NODES);
    }
}
