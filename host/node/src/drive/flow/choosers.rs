use super::choose::Chooser;
use karman_types::Digest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Choosers that are kept; for one more that is forgotten which was asked for longest ago, of those that nobody uses.
const MOST: usize = 256;

/// Who chooses on this node, by what is asked for: all that ask for the same share one, and the next who asks finds what it knows.
#[derive(Default)]
pub(super) struct Choosers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by: HashMap<Digest, Used>,
    /// Counts up whenever one is asked for.
    turn: u64,
}

struct Used {
    turn: u64,
    chooser: Arc<Chooser>,
}

impl Choosers {
    /// The one for this, if it was made from these measurements and by this policy.
    pub(super) fn get(&self, of: &Digest, made_from: (u64, Option<Digest>)) -> Option<Arc<Chooser>> {
        self.0.lock().get(of, made_from)
    }

    /// Keeps a new one. Somebody may have been sooner: then that one is used. One that was made from newer measurements stays, and
    /// the new one serves only who made it.
    pub(super) fn keep(&self, of: Digest, chooser: Chooser) -> Arc<Chooser> {
        let mut kept = self.0.lock();
        let made_from = chooser.made_from();
        if let Some(known) = kept.get(&of, made_from) {
            return known;
        }
        let is_newer = |used: &Used| used.chooser.made_from().0 > made_from.0;
        if kept.by.get(&of).is_some_and(is_newer) {
            return Arc::new(chooser);
        }
        let (turn, chooser) = (kept.next_turn(), Arc::new(chooser));
        let used = Used {
            turn,
            chooser: chooser.clone(),
        };
        kept.by.insert(of, used);
        let over = kept.by.len().saturating_sub(MOST);
        let mut idle: Vec<(u64, Digest)> = kept.idle().map(|(of, used)| (used.turn, *of)).collect();
        idle.sort_unstable_by_key(|(turn, _)| *turn);
        for (_, of) in idle.iter().take(over) {
            kept.by.remove(of);
        }
        chooser
    }

    /// Lets the one that was asked for longest ago, of those that nobody uses, give up the instance of its plugin. Whether one did.
    /// Blocks for as long as that takes to save what it knows.
    pub(super) fn rest_one(&self) -> bool {
        let mut idle: Vec<(u64, Weak<Chooser>)> = {
            let kept = self.0.lock();
            let idle = kept
                .idle()
                .map(|(_, used)| (used.turn, Arc::downgrade(&used.chooser)));
            idle.collect()
        };
        idle.sort_unstable_by_key(|(turn, _)| *turn);
        let mut idle = idle.into_iter().filter_map(|(_, chooser)| chooser.upgrade());
        // Somebody may have asked for it meanwhile.
        idle.any(|chooser| Arc::strong_count(&chooser) == 2 && chooser.rest())
    }

    /// Forgets those that nobody uses whose plugins are not these any more.
    pub(super) fn retain(&self, here: &[Digest]) {
        let mut kept = self.0.lock();
        kept.by.retain(|_, used| {
            let (_, plugin) = used.chooser.made_from();
            !used.is_idle() || plugin.is_none_or(|plugin| here.contains(&plugin))
        });
    }
}

impl Kept {
    fn get(&mut self, of: &Digest, made_from: (u64, Option<Digest>)) -> Option<Arc<Chooser>> {
        let turn = self.next_turn();
        let used = self
            .by
            .get_mut(of)
            .filter(|used| used.chooser.made_from() == made_from)?;
        used.turn = turn;
        Some(used.chooser.clone())
    }

    fn idle(&self) -> impl Iterator<Item = (&Digest, &Used)> {
        self.by.iter().filter(|(_, used)| used.is_idle())
    }

    const fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }
}

impl Used {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.chooser) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_from_older_measurements_takes_the_place_of_none() {
        let (choosers, of) = (Choosers::default(), Digest::of(b"a workflow"));
        let first = choosers.keep(of, Chooser::of_nothing(1));
        let again = choosers.keep(of, Chooser::of_nothing(1));
        assert!(Arc::ptr_eq(&first, &again));
        let newer = choosers.keep(of, Chooser::of_nothing(2));
        let late = choosers.keep(of, Chooser::of_nothing(1));
        assert_eq!(late.made_from().0, 1);
        let kept = choosers.get(&of, (2, None));
        assert!(kept.is_some_and(|kept| Arc::ptr_eq(&kept, &newer)));
    }
}
