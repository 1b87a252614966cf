//! FLTorrent in slots of a second: what hiding whose update is whose costs a round, and how well it hides.
//!
//! Everything is simulated with the coordinator and the exchanges that nodes run; links are ideal within a slot. Links, sizes, overlay and
//! defaults are those of arXiv 2605.10499: 206 chunks of 256 KiB, uplinks of 15.5 to 25.3 Mbit/s, downlinks of 36.5 to 121 Mbit/s (drawn
//! evenly, in whole chunks a slot), at least 10 neighbours, a spray of 0.2, lags of 0 to 2 s, a cover of 10 % of the swarm's chunks. Seeds
//! 0 to 29 draw links, overlay, spray, lags and the order of chunks; contenders share them. Whole rounds of more than 100 clients take minutes
//! each: they are run with fewer seeds ([`WHOLE`]) and shown, not judged. What the paper found stands in brackets.
//!
//! | key | what |
//! |---|---|
//! | `warmup_share.nN` | spray and warm-up over the whole round \[0.115 to 0.124\] |
//! | `warmup_s.nN`, `round_s.nN` | their lengths. Absolute seconds depend on the links' mean, which the paper does not state |
//! | `utilisation.nN` | chunks moved in the warm-up over what the uplinks could \[0.75 to 0.81\] |
//! | `unprotected_share.nN` | transfers outside the gate over those of the warm-up; no bound applies to them |
//! | `round_overhead.nN` | the round over that of plain BitTorrent on the same links and overlay \[1.04 at 100 clients\] |
//! | `flow_share.SCHEDULER` | transfers over the largest number that the slot's holdings, gate and links allow (a maximum flow), summed over every tenth slot \[greedy: 0.92\] |
//! | `flow_share_ungated.SCHEDULER` | the same if any holder might send anything: what the gate costs |
//! | `warmup_vs_time_bound` | the warm-up over what the links need at least: max((k - K) / least downlink, n (k - K) / all uplinks). The flow bound is of each slot along the run's own way and says nothing of that |
//! | `warmup_s.kP` | the warm-up with a cover of P % \[99.5, 238.8, 1084.7 s at 5, 10, 50 %\] |
//! | `attribution.DEFENCE.ATTACK` | the share of its senders that a receiver attributes to their own update, largest over all receivers, mean over seeds. `none`, `lags`, `spray` and `both` are the defences; without a spray there is no gate |
//! | `attribution.both.{m,r,n}X` | the largest of the three attacks for X neighbours, a spray of X %, X clients \[0.27, 0.043 at 5, 25 neighbours; near 1/m\] |
//! | `coalition.A.{any,each}` | A receivers pool what they see: the chance that at least one sender is found out, and the share of senders that are \[0.14, 0.31 for any at 5, 25\] |
//!
//! Attacks, each on what one receiver sees in the warm-up. *Sequential*: the first chunk of a sender is of its own update. *Amount*: the
//! update it sends most of in its first tenth is. *Weighted*: the update with the largest sum of 1/(1 + place) over all it sends is.

mod attack;
mod bound;
mod round;

use attack::{Attack, Coalition};
use karman_fed::swarm::{Cover, Gate, Scheduler, SwarmSettings};
use karman_study::interval::{self, Estimate, bootstrap};
use karman_study::pairs::Pair;
use karman_study::report::{Kind, Report, Target};
use round::{Extent, Round, simulate};
use std::sync::Mutex;

const SEEDS: u64 = 30;
/// Numbers of clients, and for how many seeds whole rounds are run.
const WHOLE: [(usize, u64); 5] = [(100, SEEDS), (200, 6), (300, 3), (400, 2), (500, 2)];
const SCHEDULERS: [(&str, Scheduler); 4] = [
    ("greedy-fastest-first", Scheduler::GreedyFastestFirst),
    ("random-fastest-first", Scheduler::RandomFastestFirst),
    ("random-fifo", Scheduler::RandomFifo),
    ("flooding", Scheduler::Flooding),
];
const ATTACKS: [(&str, Attack); 4] = [
    ("sequential", Attack::Sequential),
    ("amount", Attack::Amount),
    ("weighted", Attack::Weighted),
    ("absent", Attack::Absent),
];
const COALITIONS: [usize; 2] = [5, 25];

/// Runs the study.
///
/// # Errors
///
/// The settings make no round, or the report cannot be written.
pub(crate) fn run(quick: bool) -> anyhow::Result<()> {
    let seeds = if quick { 2 } else { SEEDS };
    let whole = if quick { &[(100, 2)][..] } else { &WHOLE[..] };
    let mut report = Report::new("fltorrent");
    report.kind(Kind::Simulated);
    report.register(registered(whole));
    for (clients, of_whole) in whole {
        warm_ups(&mut report, *clients, seeds)?;
        rounds(&mut report, *clients, *of_whole, *of_whole == seeds)?;
    }
    schedulers(&mut report, seeds)?;
    covers(&mut report, seeds)?;
    attributions(&mut report, seeds, quick)?;
    report.write_and_print()
}

fn registered(whole: &[(usize, u64)]) -> Vec<String> {
    let of_warm_ups = ["warmup_s", "utilisation", "unprotected_share"];
    let warm_ups = whole
        .iter()
        .flat_map(|(clients, _)| of_warm_ups.map(|key| format!("{key}.n{clients}")));
    let rounds = ["warmup_share", "round_overhead"].map(|key| format!("{key}.n100"));
    let flows = SCHEDULERS.map(|(name, _)| format!("flow_share.{name}"));
    let attributions = ["none", "lags", "spray", "both", "gate"]
        .into_iter()
        .flat_map(|defence| ATTACKS.map(|(attack, _)| format!("attribution.{defence}.{attack}")));
    let sweeps = ["m5", "m10", "m25", "r10", "r50"].map(|cell| format!("attribution.both.{cell}"));
    warm_ups
        .chain(rounds)
        .chain(flows)
        .chain(attributions)
        .chain(sweeps)
        .collect()
}

fn warm_ups(report: &mut Report, clients: usize, seeds: u64) -> anyhow::Result<()> {
    let done = repeat(SwarmSettings::default(), clients, seeds, Extent::WarmUp)?;
    let figures: Vec<_> = done.iter().map(Round::figures).collect();
    let mut row = |name: &str, unit, figure: &dyn Fn(&round::Figures) -> f64| {
        let values: Vec<_> = figures.iter().map(figure).collect();
        report.estimate(&format!("{name}.n{clients}"), mean(&values), unit, Target::Shown);
    };
    row("warmup_s", "s", &|figures| figures.warm_slots);
    row("utilisation", "share", &|figures| {
        figures.moved / figures.capacity
    });
    row("unprotected_share", "share", &|figures| {
        figures.unprotected / figures.moved
    });
    report.keep_raw(&format!("warm_ups.n{clients}"), &figures);
    Ok(())
}

/// Whole rounds, protected and plain, in pairs.
fn rounds(report: &mut Report, clients: usize, seeds: u64, judged: bool) -> anyhow::Result<()> {
    let both = [SwarmSettings::default(), SwarmSettings::unprotected()];
    let jobs: Vec<_> = (0..seeds)
        .flat_map(|seed| both.map(|settings| (settings, seed)))
        .collect();
    let done = in_parallel(&jobs, |(settings, seed)| {
        simulate(settings, clients, *seed, Extent::Whole)
    })?;
    let pairs: Vec<_> = done
        .chunks_exact(2)
        .map(|both| [both[0].figures(), both[1].figures()])
        .collect();
    let [share, slots] = [
        |ours: &round::Figures| ours.warm_slots / ours.slots,
        |ours: &round::Figures| ours.slots,
    ]
    .map(|figure| mean(&pairs.iter().map(|[ours, _]| figure(ours)).collect::<Vec<_>>()));
    let key = |name: &str| format!("{name}.n{clients}");
    let at_most = |bound| {
        if judged {
            Target::AtMost(bound)
        } else {
            Target::Shown
        }
    };
    report.estimate(&key("warmup_share"), share, "share", at_most(0.13));
    report.estimate(&key("round_s"), slots, "s", Target::Shown);
    let overhead = pairs.iter().map(|[ours, plain]| Pair {
        ours: ours.slots,
        theirs: plain.slots,
    });
    report.ratio(&key("round_overhead"), overhead.collect(), at_most(1.10));
    report.keep_raw(&key("rounds"), &pairs);
    Ok(())
}

fn schedulers(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    for (name, scheduler) in SCHEDULERS {
        let settings = SwarmSettings {
            scheduler,
            ..SwarmSettings::default()
        };
        let done = repeat(settings, 100, seeds, Extent::WarmUpWithBound)?;
        let share = |bound: &dyn Fn(&round::Flow) -> f64| {
            let of = |round: &Round| {
                let sent: f64 = round.flows.iter().map(|flow| flow.sent).sum();
                sent / round.flows.iter().map(bound).sum::<f64>()
            };
            mean(&done.iter().map(of).collect::<Vec<_>>())
        };
        let greedy = matches!(scheduler, Scheduler::GreedyFastestFirst);
        let target = if greedy {
            Target::AtLeast(0.92)
        } else {
            Target::Shown
        };
        report.estimate(
            &format!("flow_share.{name}"),
            share(&|flow| flow.gated),
            "share",
            target,
        );
        let ungated = share(&|flow| flow.ungated);
        report.estimate(
            &format!("flow_share_ungated.{name}"),
            ungated,
            "share",
            Target::Shown,
        );
        if greedy {
            let over = |round: &Round| round.figures().warm_slots / round.time_bound;
            let over = mean(&done.iter().map(over).collect::<Vec<_>>());
            report.estimate("warmup_vs_time_bound", over, "ratio", Target::Shown);
        }
    }
    Ok(())
}

fn covers(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    for percent in [5, 10, 50] {
        let cover = Cover::OfSwarm(f64::from(percent) / 100.0);
        let done = repeat(
            SwarmSettings {
                cover,
                ..SwarmSettings::default()
            },
            100,
            seeds,
            Extent::WarmUp,
        )?;
        let of = |figure: &dyn Fn(&round::Figures) -> f64| {
            mean(
                &done
                    .iter()
                    .map(|round| figure(&round.figures()))
                    .collect::<Vec<_>>(),
            )
        };
        report.estimate(
            &format!("warmup_s.k{percent}"),
            of(&|round| round.warm_slots),
            "s",
            Target::Shown,
        );
        let unprotected = of(&|round| round.unprotected / round.moved);
        report.estimate(
            &format!("unprotected_share.k{percent}"),
            unprotected,
            "share",
            Target::Shown,
        );
    }
    Ok(())
}

fn attributions(report: &mut Report, seeds: u64, quick: bool) -> anyhow::Result<()> {
    let both = SwarmSettings::default();
    let none = SwarmSettings {
        spray: 0.0,
        lags: 1,
        gate: Gate::Open,
        ..both
    };
    let defences = [
        ("none", none),
        (
            "lags",
            SwarmSettings {
                lags: both.lags,
                ..none
            },
        ),
        ("spray", SwarmSettings { lags: 1, ..both }),
        ("both", both),
        (
            "gate",
            SwarmSettings {
                gate: Gate::Fallback,
                ..both
            },
        ),
    ];
    for (defence, settings) in defences {
        let done = repeat(settings, 100, seeds, Extent::WarmUp)?;
        let judged = defence == "both";
        for (name, attack) in ATTACKS {
            let found = done
                .iter()
                .map(|round| attack.largest_share(round))
                .collect::<Vec<_>>();
            let key = format!("attribution.{defence}.{name}");
            let target = if judged {
                near_one_over(both.neighbours)
            } else {
                Target::Shown
            };
            report.estimate(&key, mean(&found), "share", target);
            coalitions(report, &format!("{defence}.{name}"), attack, &done);
        }
        if judged {
            worst(report, "m10", both.neighbours, &done);
        }
    }
    let mut cells = vec![
        (
            "m5",
            SwarmSettings {
                neighbours: 5,
                ..both
            },
            100,
        ),
        (
            "m25",
            SwarmSettings {
                neighbours: 25,
                ..both
            },
            100,
        ),
        ("r10", SwarmSettings { spray: 0.1, ..both }, 100),
        ("r50", SwarmSettings { spray: 0.5, ..both }, 100),
    ];
    if !quick {
        cells.push(("n500", both, 500));
    }
    for (cell, settings, clients) in cells {
        let done = repeat(settings, clients, seeds, Extent::WarmUp)?;
        worst(report, cell, settings.neighbours, &done);
    }
    Ok(())
}

/// The best of the attacks, seed by seed.
fn worst(report: &mut Report, cell: &str, neighbours: usize, done: &[Round]) {
    let largest = |round: &Round| {
        let shares = ATTACKS.map(|(_, attack)| attack.largest_share(round));
        shares.into_iter().fold(0.0, f64::max)
    };
    let found = mean(&done.iter().map(largest).collect::<Vec<_>>());
    let key = format!("attribution.both.{cell}");
    report.estimate(&key, found, "share", near_one_over(neighbours));
}

/// As near to 1/m as the paper's worst figure is.
fn near_one_over(neighbours: usize) -> Target {
    Target::AtMost(1.35 / neighbours as f64)
}

fn coalitions(report: &mut Report, cell: &str, attack: Attack, done: &[Round]) {
    for size in COALITIONS {
        let found: Vec<Coalition> = (0..)
            .zip(done)
            .map(|(seed, round)| Coalition::of(round, attack, size, seed))
            .collect();
        let any = mean(&found.iter().map(|coalition| coalition.any).collect::<Vec<_>>());
        let each = mean(&found.iter().map(|coalition| coalition.each).collect::<Vec<_>>());
        report.estimate(
            &format!("coalition.{cell}.{size}.any"),
            any,
            "share",
            Target::Shown,
        );
        report.estimate(
            &format!("coalition.{cell}.{size}.each"),
            each,
            "share",
            Target::Shown,
        );
    }
}

fn repeat(settings: SwarmSettings, clients: usize, seeds: u64, extent: Extent) -> anyhow::Result<Vec<Round>> {
    let seeds: Vec<_> = (0..seeds).collect();
    in_parallel(&seeds, |seed| simulate(&settings, clients, *seed, extent))
}

fn mean(values: &[f64]) -> Estimate {
    bootstrap(values, interval::mean)
}

/// Does all jobs on as many threads as there are cores; results are in the jobs' order.
fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = Mutex::new(jobs.iter().enumerate());
    let done = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let job = next.lock().ok().and_then(|mut next| next.next());
            let Some((place, job)) = job else { break };
            let result = work(job);
            if let Ok(mut done) = done.lock() {
                done.push((place, result));
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| {
            scope.spawn(worker);
        });
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    let done: anyhow::Result<Vec<R>> = done.into_iter().map(|(_, result)| result).collect();
    done.and_then(|done| {
        anyhow::ensure!(done.len() == jobs.len(), "a simulation ended early");
        Ok(done)
    })
}
