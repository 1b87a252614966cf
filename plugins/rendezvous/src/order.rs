//! Whose turn it is: the task's own order of the nodes, without those that carry too much.

use crate::exports::karman::policy::router::{Order, Provider};

/// What a node may carry over its share of all calls: a quarter more.
const OVER_SHARE: f64 = 1.25;

/// Why a node is not asked in its turn; the later ones are asked later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Passed {
    Not,
    Full,
    Away,
}

/// In which order the providers of a task are asked.
pub(crate) fn order(task: &str, providers: &[Provider]) -> Order {
    let passed = passed(providers);
    let mut places: Vec<usize> = (0..providers.len()).collect();
    // The greatest hash first, as long as nothing speaks against it.
    let turn = |place: &usize| std::cmp::Reverse(hash(task, &providers[*place].node));
    places.sort_by_key(|place| (turn(place), *place));
    let own = places.first().copied();
    places.sort_by_key(|place| passed[*place]);
    let first = places.first().copied();
    let because = match own.map(|own| passed[own]) {
        _ if own == first => "the calls of this task are kept there",
        Some(Passed::Full) => "where the calls of this task are kept more are under way than its share",
        _ => "where the calls of this task are kept nobody answered",
    };
    Order {
        places: places.into_iter().map(|place| place as u32).collect(),
        because: because.into(),
    }
}

/// Of each provider, whether it is passed over.
fn passed(providers: &[Provider]) -> Vec<Passed> {
    let cores = |provider: &Provider| f64::from(provider.cores.max(1));
    let all: f64 = providers.iter().map(cores).sum();
    // The call that comes counts, too.
    let calls: f64 = providers
        .iter()
        .map(|provider| f64::from(provider.busy))
        .sum::<f64>()
        + 1.0;
    let of = |provider: &Provider| {
        let share = (OVER_SHARE * calls * cores(provider) / all).ceil();
        // Where a core is free nobody waits.
        let most = share.max(cores(provider));
        match f64::from(provider.busy) + 1.0 > most {
            _ if provider.failed.is_some() => Passed::Away,
            true => Passed::Full,
            false => Passed::Not,
        }
    };
    providers.iter().map(of).collect()
}

/// The 64 bits of FNV-1a over both names, mixed so that the last letters count in all of them.
fn hash(task: &str, node: &str) -> u64 {
    let bytes = task.bytes().chain([0]).chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(node: &str) -> Provider {
        Provider {
            node: node.into(),
            round_trip: None,
            cores: 4,
            busy: 0,
            takes: None,
            outlasted: None,
            failed: None,
            heard: None,
        }
    }

    fn providers() -> Vec<Provider> {
        ["a0", "b1", "c2", "d3", "e4"].into_iter().map(provider).collect()
    }

    /// The nodes in the order in which they are asked.
    fn asked(task: &str, providers: &[Provider]) -> Vec<String> {
        let order = order(task, providers);
        let node = |place: u32| providers[place as usize].node.clone();
        order.places.into_iter().map(node).collect()
    }

    #[test]
    fn a_task_has_the_same_order_whoever_asks_and_other_tasks_have_others() {
        let mut turned = providers();
        turned.reverse();
        for task in ["echo", "classify", "model/digits-m"] {
            assert_eq!(asked(task, &providers()), asked(task, &turned));
        }
        let firsts = (0..100).map(|n| asked(&format!("task {n}"), &providers()).remove(0));
        let mut firsts: Vec<String> = firsts.collect();
        firsts.sort();
        firsts.dedup();
        assert_eq!(firsts.len(), 5);
    }

    #[test]
    fn only_the_calls_of_a_node_that_goes_move() {
        for n in 0..100 {
            let task = format!("task {n}");
            let before = asked(&task, &providers());
            let rest: Vec<Provider> = providers().into_iter().filter(|one| one.node != "c2").collect();
            let stay: Vec<String> = before.into_iter().filter(|node| node != "c2").collect();
            assert_eq!(asked(&task, &rest), stay);
        }
    }

    #[test]
    fn who_carries_more_than_its_share_is_passed_over_and_who_did_not_answer_comes_last() {
        let mut all = providers();
        let own = asked("echo", &all);
        let place = |node: &str, all: &[Provider]| all.iter().position(|one| one.node == node).unwrap();
        let first = place(&own[0], &all);
        all[first].busy = 3;
        assert_eq!(asked("echo", &all), own);
        all[first].busy = 4;
        assert_eq!(asked("echo", &all)[0], own[1]);
        assert!(order("echo", &all).because.contains("more are under way"));
        for one in &mut all {
            one.busy = 4;
        }
        assert_eq!(asked("echo", &all), own);
        assert!(order("echo", &all).because.contains("are kept there"));
        all[first].failed = Some(1);
        assert_eq!(asked("echo", &all).last(), Some(&own[0]));
        assert!(order("echo", &all).because.contains("nobody answered"));
    }
}
