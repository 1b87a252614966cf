//! Runs whose strategy a plugin brings: what it is is played by a few lines here.

use super::*;
use crate::strategy::{Aggregator, Brought, Made, Round, Strategy};

const PLUGIN: &str = "name = 'plugin'\nplugin = 'plays'";

/// Weighs each update more than those before it, so that their order shows, and adds half of what the last round added.
#[derive(Debug)]
struct Plays {
    /// The version that it makes no more.
    fails_at: u64,
}

impl Aggregator for Plays {
    fn name(&self) -> &str {
        "plays"
    }

    fn aggregate(&self, round: &Round<'_>) -> Result<Made, String> {
        if round.version + 1 == self.fails_at {
            return Err("it does not want to".into());
        }
        assert!(round.facts.is_sorted_by_key(|facts| facts.client));
        assert_eq!(round.facts.len(), round.updates.len());
        let (before, _) = round.state.as_chunks::<4>();
        let mut added: Vec<f32> = before.iter().map(|it| 0.5 * f32::from_le_bytes(*it)).collect();
        added.resize(round.model.len(), 0.0);
        for (place, update) in round.updates.iter().enumerate() {
            for (sum, number) in added.iter_mut().zip(update) {
                *sum = *sum * 1.01 + number / (place + round.population) as f32;
            }
        }
        Ok(Made {
            model: round.model.iter().zip(&added).map(|(w, by)| w + by).collect(),
            state: added.iter().flat_map(|number| number.to_le_bytes()).collect(),
        })
    }
}

fn plays(fails_at: u64) -> Box<dyn Strategy> {
    Box::new(Brought::new(Box::new(Plays { fails_at })))
}

fn begun(fails_at: u64) -> Coordinator {
    coordinator_by(described(PLUGIN, "random", SYNCHRONOUS), plays(fails_at))
}

#[test]
fn the_order_in_which_updates_come_has_no_influence() {
    let ended = |seed| World::new(begun(0), 12, seed).finish();
    let first = ended(1);
    assert_eq!(first.coordinator.status().version, 5);
    assert!(first.bits().iter().any(|bits| *bits != 0));
    for seed in 2..6 {
        assert_eq!(ended(seed).bits(), first.bits());
    }
}

#[test]
fn a_run_that_goes_on_from_any_checkpoint_comes_to_the_same() {
    let whole = World::new(begun(0), 12, 1).finish();
    assert!(whole.checkpoints.len() >= 5);
    for (heard, checkpoint) in &whole.checkpoints {
        assert_eq!(checkpoint.model().len(), LENGTH);
        let mut coordinator = resume_by(checkpoint.clone(), plays(0));
        assert_eq!(coordinator.status(), checkpoint.status());
        for (now, event) in &whole.log[*heard..] {
            coordinator.handle(*now, event.clone());
        }
        assert_eq!(coordinator.model(), whole.coordinator.model());
    }
}

/// It is told at once, without rounds that would end the same, and what was durable before stays so.
#[test]
fn a_plugin_that_fails_ends_the_run_which_goes_on_once_it_is_mended() {
    let whole = World::new(begun(0), 12, 1).finish();
    let broken = World::new(begun(3), 12, 1).finish();
    let why = "the strategy `plays` made no version 3: it does not want to";
    let failure = Some(Failure::Strategy(why.into()));
    let status = broken.coordinator.status();
    assert_eq!(
        (status.version, status.ended, &status.failure),
        (2, true, &failure)
    );
    let finished = Action::Finished { version: 2, failure };
    assert_eq!(broken.seen.last(), Some(&finished));
    assert!(broken.failures().is_empty());

    let (_, last) = broken.checkpoints.last().unwrap();
    assert!(!last.status().ended);
    let mut mended = World::new(resume_by(last.clone(), plays(0)), 0, 7);
    mended.now = broken.now;
    mended.feed(Event::Severed {
        windows: Windows::default(),
    });
    let mended = mended.finish();
    assert_eq!(mended.coordinator.status().version, 5);
    assert_eq!(mended.bits(), whole.bits());
    assert_eq!(mended.reports().first().map(|report| report.version), Some(3));
    let all: Vec<ClientId> = mended
        .reports()
        .iter()
        .flat_map(|report| report.clients.clone())
        .collect();
    assert_eq!(all.len(), 3 * 9);
}
