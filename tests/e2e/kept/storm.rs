//! Everything at once: tasks come while nodes are killed and the network is cut.

use super::sites::{PATIENCE, Sites, networks};
use crate::internet::Place;
use crate::support::pause;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What is done to the nodes while tasks come.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A node is killed, and started again.
    Kill,
    /// The same, but it stays away until another owns its tasks.
    Lose,
    /// The network is cut in two, and is whole again.
    Cut,
}

const KILLS: usize = 20;
/// Of which so many are lost.
const LOST: usize = 4;
const CUTS: usize = 10;
/// How long a node stays away if nobody takes anything over.
const AWAY: Duration = Duration::from_secs(15);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `KARMAN_KEPT_TASKS` says how many tasks; `KARMAN_SEED` repeats a run.
#[test]
fn whatever_is_killed_or_cut_nothing_is_lost_or_done_twice() {
    let tasks = number("KARMAN_KEPT_TASKS").unwrap_or(60) as usize;
    let seed = number("KARMAN_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}, {tasks} tasks");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sites = Sites::new(5, networks(5));
    // The one that made the mesh runs nothing: what it owns runs elsewhere.
    (1..5).for_each(|n| sites[n].deploy("tally"));
    sites.name_keepers();

    let mut blows = [
        &[Blow::Kill; KILLS - LOST][..],
        &[Blow::Lose; LOST],
        &[Blow::Cut; CUTS],
    ]
    .concat();
    rng.shuffle(&mut blows);
    let started = Instant::now();
    let mut accepted: BTreeMap<String, String> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for (number, blow) in blows.iter().enumerate() {
        let share = tasks * number / blows.len()..tasks * (number + 1) / blows.len();
        let keys: Vec<String> = share.map(|key| format!("key-{key}")).collect();
        let before = Instant::now();
        let handed_in = match blow {
            Blow::Kill => under_a_kill(&mut sites, &mut rng, &keys),
            Blow::Lose => under_a_loss(&mut sites, &mut rng, &keys),
            Blow::Cut => under_a_cut(&sites, &mut rng, &keys),
        };
        longest = longest.max(before.elapsed());
        accepted.extend(handed_in);
    }
    println!(
        "{} accepted while {KILLS} were killed and {CUTS} cuts made, in {:.1?}; the longest blow took {longest:.1?}; {} times an owner was taken for lost",
        accepted.len(),
        started.elapsed(),
        sites.lost.load(Ordering::Relaxed)
    );
    assert_eq!(accepted.len(), tasks);

    let started = Instant::now();
    for (key, task) in &accepted {
        let asked = &sites[rng.usize(..5)];
        asked.soon(|site| site.state(task).as_deref() == Some("done"));
        let result = asked.ask("GET", &format!("/accepted/{task}/result?wait=9s"), &[], b"");
        assert_eq!(result.map(|result| result.text()).as_deref(), Some("1"), "{key}");
    }
    println!("all are done after {:.1?} more", started.elapsed());
    sites[0].deploy("tally");
    for key in accepted.keys() {
        let counted: Vec<u64> = sites.sites.iter().map(|site| site.counted(key)).collect();
        assert_eq!(
            counted.iter().sum::<u64>(),
            1,
            "{key} was counted {counted:?} times"
        );
    }
}

type Accepted = Vec<(String, String)>;

/// A node goes, tasks come, the node comes back.
fn under_a_kill(sites: &mut Sites, rng: &mut fastrand::Rng, keys: &[String]) -> Accepted {
    let victim = rng.usize(..sites.sites.len());
    let (early, late) = keys.split_at(keys.len() / 2);
    let mut accepted = hand_in(sites, rng, early, &[0, 1, 2, 3, 4]);
    sites.kill(victim);
    let others: Vec<usize> = (0..5).filter(|n| *n != victim).collect();
    accepted.extend(hand_in(sites, rng, late, &others));
    sites.up(victim, None);
    accepted
}

/// A node takes tasks and goes; tasks come; another takes its tasks over; it comes back.
fn under_a_loss(sites: &mut Sites, rng: &mut fastrand::Rng, keys: &[String]) -> Accepted {
    let victim = rng.usize(..sites.sites.len());
    let (early, late) = keys.split_at(keys.len().div_ceil(2));
    let mut accepted = hand_in(sites, rng, early, &[victim]);
    let lost = sites.lost.load(Ordering::Relaxed);
    sites.kill(victim);
    let gone = Instant::now();
    let others: Vec<usize> = (0..5).filter(|n| *n != victim).collect();
    accepted.extend(hand_in(sites, rng, late, &others));
    while sites.lost.load(Ordering::Relaxed) == lost && gone.elapsed() < AWAY {
        pause();
    }
    sites.up(victim, None);
    accepted
}

/// The network is cut in two; tasks come on both sides; it is whole again.
fn under_a_cut(sites: &Sites, rng: &mut fastrand::Rng, keys: &[String]) -> Accepted {
    let Some(internet) = &sites.internet else {
        return hand_in(sites, rng, keys, &[0, 1, 2, 3, 4]);
    };
    let alone = rng.usize(..3);
    let (mut few, mut many) = (vec![alone], Vec::new());
    for n in (0..5).filter(|n| *n != alone) {
        match n >= 3 && rng.bool() {
            true => few.push(n),
            false => many.push(n),
        }
    }
    let places = |side: &[usize]| -> Vec<Place> { side.iter().map(|n| sites[*n].place).collect() };
    internet.cut(&places(&few), &places(&many)).unwrap();
    let nobodys = format!("nobody's-{}", rng.u32(..));
    let accepted = std::thread::scope(|scope| {
        let on_the_wrong_side = scope.spawn(|| sites[alone].accept(&nobodys, "0"));
        let accepted = hand_in(sites, rng, keys, &many);
        let refused = on_the_wrong_side.join().unwrap();
        assert_eq!(refused, None, "a minority has accepted a task");
        accepted
    });
    internet.mend().unwrap();
    accepted
}

/// Hands each key in until it is accepted, at some of these nodes.
fn hand_in(sites: &Sites, rng: &mut fastrand::Rng, keys: &[String], at: &[usize]) -> Accepted {
    let seeded: Vec<(&String, fastrand::Rng)> = keys.iter().map(|key| (key, rng.fork())).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = seeded
            .into_iter()
            .map(|(key, mut rng)| {
                scope.spawn(move || {
                    // Some take long enough to be killed in the middle.
                    let sleep = ["0", "100", "400"][rng.usize(..3)];
                    let started = Instant::now();
                    loop {
                        if let Some(task) = sites[at[rng.usize(..at.len())]].accept(key, sleep) {
                            return (key.clone(), task);
                        }
                        assert!(
                            started.elapsed() < PATIENCE,
                            "{key} is not accepted: {}",
                            sites.explain()
                        );
                        pause();
                    }
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
