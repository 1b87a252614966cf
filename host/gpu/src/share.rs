use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Whose turn it is on a device: the tenant that has had the least of its time. What cannot be split is one piece of work, so two
/// tenants that always have work stay within one piece of each other.
///
/// It is told how long each piece took; it looks at no clock. A tenant that was away comes back on a par with the one that is
/// furthest behind: idle time is not saved up.
///
/// ```
/// use karman_gpu::Share;
/// use std::time::Duration;
///
/// let mut share = Share::new(8);
/// share.push("large", 1).unwrap();
/// share.push("large", 2).unwrap();
/// share.push("small", 3).unwrap();
/// let first = share.next_turn().unwrap();
/// share.done(&first.tenant, Duration::from_millis(9));
/// assert_eq!((first.tenant.as_str(), share.next_turn().unwrap().work), ("large", 3));
/// ```
#[derive(Debug)]
pub struct Share<T> {
    tenants: BTreeMap<String, Tenant<T>>,
    most_waiting: usize,
}

#[derive(Debug)]
struct Tenant<T> {
    /// Time of the device that it has had, on a common scale.
    had: Duration,
    waiting: VecDeque<T>,
    running: bool,
}

/// A piece of work whose turn it is.
#[derive(Debug, Eq, PartialEq)]
pub struct Turn<T> {
    /// Whose it is.
    pub tenant: String,
    /// What.
    pub work: T,
}

impl<T> Share<T> {
    /// A device for which each tenant may have so much work waiting.
    pub const fn new(most_waiting: usize) -> Self {
        Self {
            tenants: BTreeMap::new(),
            most_waiting,
        }
    }

    /// Puts a piece of work behind the others of its tenant.
    ///
    /// # Errors
    /// The work, when as much is waiting as may.
    pub fn push(&mut self, tenant: &str, work: T) -> Result<(), T> {
        let behind = self
            .tenants
            .values()
            .filter(|tenant| tenant.is_busy())
            .map(|tenant| tenant.had)
            .min();
        let entry = self.tenants.entry(tenant.to_owned()).or_insert_with(|| Tenant {
            had: Duration::ZERO,
            waiting: VecDeque::new(),
            running: false,
        });
        if entry.waiting.len() >= self.most_waiting {
            return Err(work);
        }
        if !entry.is_busy() {
            entry.had = entry.had.max(behind.unwrap_or_default());
        }
        entry.waiting.push_back(work);
        Ok(())
    }

    /// Lets go of what waits of a tenant and is not to be kept.
    pub fn retain(&mut self, tenant: &str, keep: impl FnMut(&T) -> bool) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.waiting.retain(keep);
        }
    }

    /// How much work of one tenant may wait.
    pub const fn most_waiting(&self) -> usize {
        self.most_waiting
    }

    /// How much work waits, of all tenants together.
    pub fn waiting(&self) -> usize {
        self.tenants.values().map(|tenant| tenant.waiting.len()).sum()
    }

    /// The next piece of work; none when nothing waits.
    pub fn next_turn(&mut self) -> Option<Turn<T>> {
        let waiting = self
            .tenants
            .iter_mut()
            .filter(|(_, tenant)| !tenant.waiting.is_empty());
        let (name, tenant) = waiting.min_by_key(|(_, tenant)| tenant.had)?;
        let work = tenant.waiting.pop_front()?;
        tenant.running = true;
        Some(Turn {
            tenant: name.clone(),
            work,
        })
    }

    /// A piece of work of this tenant has kept the device for so long.
    pub fn done(&mut self, tenant: &str, took: Duration) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.had += took;
            entry.running = false;
        }
        // Names come from plugins: one that is away and not ahead of the others is nothing to remember.
        let behind = self
            .tenants
            .values()
            .filter(|tenant| tenant.is_busy())
            .map(|tenant| tenant.had)
            .min();
        self.tenants
            .retain(|_, tenant| tenant.is_busy() || behind.is_some_and(|behind| tenant.had > behind));
    }

    /// Time of the device that a tenant has had, on the scale on which they are compared.
    pub fn had(&self, tenant: &str) -> Duration {
        self.tenants
            .get(tenant)
            .map(|tenant| tenant.had)
            .unwrap_or_default()
    }
}

impl<T> Tenant<T> {
    fn is_busy(&self) -> bool {
        self.running || !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever their pieces take, two tenants that always have work differ by no more than the longest piece.
        #[test]
        fn two_busy_tenants_have_equal_time(
            one in prop::collection::vec(1u64..50, 200),
            two in prop::collection::vec(1u64..50, 200),
        ) {
            let mut share = Share::new(200);
            for (one, two) in one.iter().zip(&two) {
                share.push("one", *one).unwrap();
                share.push("two", *two).unwrap();
            }
            let (mut first, mut second) = (0, 0);
            for _ in 0..200 {
                let Turn { tenant, work } = share.next_turn().unwrap();
                share.done(&tenant, Duration::from_millis(work));
                *if tenant == "one" { &mut first } else { &mut second } += work;
                prop_assert!(first.abs_diff(second) <= 50, "{first} {second}");
            }
        }
    }

    #[test]
    fn who_comes_later_saves_nothing_up() {
        let mut share = Share::new(10);
        for n in 0..10 {
            share.push("early", n).unwrap();
        }
        for _ in 0..5 {
            let turn = share.next_turn().unwrap();
            share.done(&turn.tenant, Duration::from_secs(1));
        }
        (0..3).for_each(|n| share.push("late", n).unwrap());
        let turns: Vec<String> = (0..4)
            .map(|_| {
                let turn = share.next_turn().unwrap();
                share.done(&turn.tenant, Duration::from_secs(1));
                turn.tenant
            })
            .collect();
        assert_eq!(
            turns.iter().filter(|tenant| *tenant == "late").count(),
            2,
            "{turns:?}"
        );
    }

    #[test]
    fn a_full_queue_gives_the_work_back() {
        let mut share = Share::new(1);
        share.push("a", 1).unwrap();
        assert_eq!(share.push("a", 2), Err(2));
        share.retain("a", |work| *work != 1);
        share.push("a", 3).unwrap();
        assert_eq!(share.next_turn().unwrap().work, 3);
        assert!(share.next_turn().is_none());
    }
}
