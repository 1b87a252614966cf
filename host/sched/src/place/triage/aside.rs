use super::TriageSettings;
use super::best::Best;
use crate::place::State;
use crate::place::draft::Draft;
use std::collections::{BTreeSet, BinaryHeap};

/// The jobs that are set aside so that the others are in time: of those that cannot all have begun in time, the one with the most work left
/// goes, until the others can (J. M. Moore, "An n job, one machine sequencing algorithm for minimizing the number of late jobs",
/// Management Science 15, 1968). All nodes together are the machine; what has a node already does not count; and a job must have begun when
/// what is left of it takes until its deadline.
pub(super) fn set_aside(draft: &Draft<'_>, settings: &TriageSettings) -> BTreeSet<u64> {
    let fastest = draft.fleet.fastest();
    let nodes = draft
        .fleet
        .nodes
        .iter()
        .filter(|node| settings.counts(node, fastest));
    let speed: f64 = nodes.map(|node| node.speed * node.slots.len() as f64).sum();
    let capacity = settings.capacity * speed;

    let mut jobs = Vec::new();
    for (place, job) in draft.jobs.iter().enumerate() {
        let best = Best::of(draft, place, fastest);
        if let Some(deadline) = job.deadline.filter(|_| !best.is_late(job)) {
            let begin = draft.now + deadline - best.end;
            let waits = job.tasks.iter().filter(|task| task.state == State::Waiting);
            let work: f64 = waits.map(|task| task.work).sum();
            if work > 0.0 {
                jobs.push((begin, job.id, work));
            }
        }
    }
    jobs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));

    let (mut kept, mut aside, mut work) = (BinaryHeap::new(), BTreeSet::new(), 0.0);
    for (begin, id, waits) in jobs {
        // Positive numbers order as their bits do.
        kept.push((waits.to_bits(), id));
        work += waits;
        while work > capacity * (begin - draft.now) {
            let Some((largest, id)) = kept.pop() else { break };
            work -= f64::from_bits(largest);
            aside.insert(id);
        }
    }
    aside
}
