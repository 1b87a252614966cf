//! How long batches of a model take here. That its first dimension is open says nothing of what it does along it: whether a batch answers
//! what runs of one answer is found out, too.

use super::exits::Exits;
use super::together::{apart, join};
use crate::config::BatchConfig;
use crate::services::loaded::{MOST_TIMED, RUNS, WARM_UP, bytes_of};
use crate::services::{Loaded, Meanwhile};
use karman_infer::profile::sample;
use karman_infer::{Named, can_batch, differs};
use karman_sched::serve::{Exit, ServedModel};
use std::time::{Duration, Instant};

/// Inputs that differ; larger batches have each several times.
const DIFFERENT: usize = 8;

/// Sizes for which a GPU keeps the programs.
const MOST_ON_GPU: usize = 4;

/// A model as the policy sees it, with its exits, each measured with several sizes of batches up to the largest that is allowed; less
/// where that fails.
///
/// # Errors
/// Why it cannot run in batches, in words.
pub(super) async fn measured(
    loaded: &Loaded,
    allowed: &BatchConfig,
    exits: &Exits,
) -> Result<ServedModel, String> {
    let times = times_of(loaded, &sizes(allowed.at_most, loaded.is_on_gpu())).await?;
    let sizes: Vec<usize> = times.iter().map(|(size, _)| *size).collect();
    let mut all = Vec::new();
    for &(depth, accuracy) in exits.early() {
        match times_up_to(depth, exits, loaded, &sizes).await {
            Ok(times) => all.push(Exit {
                depth,
                accuracy,
                times,
            }),
            Err(why) => tracing::warn!(exit = depth, why, "an early exit of a model never answers"),
        }
    }
    let (depth, accuracy) = exits.whole();
    all.push(Exit {
        depth,
        accuracy,
        times,
    });
    let most = sizes.last().copied().unwrap_or(1);
    let served = ServedModel::new(allowed.within, most, Exit::pareto(all));
    Ok(served.map_err(|error| error.to_string())?.with_wait(allowed.wait))
}

/// How long batches of these sizes take, up to the largest that runs.
async fn times_of(loaded: &Loaded, sizes: &[usize]) -> Result<Vec<(usize, Duration)>, String> {
    let (takes, gives) = loaded.signature();
    if !can_batch(takes, gives) {
        return Err("the first dimension of what it takes and gives is not open".to_owned());
    }
    let items: Result<Vec<Named>, _> = (0..DIFFERENT as u64).map(|seed| sample(takes, 1, seed)).collect();
    let items = items.map_err(|error| error.to_string())?;
    let mut times: Vec<(usize, Duration)> = Vec::new();
    for &size in sizes {
        let batch: Vec<Named> = items.iter().cycle().take(size).cloned().collect();
        match timed(loaded, batch).await {
            Ok(time) => times.push((size, time)),
            Err(why) if times.len() < 2 => return Err(why),
            Err(why) => {
                tracing::warn!(
                    size,
                    why,
                    "a model runs in smaller batches than its operator allows"
                );
                break;
            }
        }
    }
    Ok(times)
}

/// The same up to an early exit, in batches of all the sizes that the whole model takes, and on its device.
async fn times_up_to(
    depth: u32,
    exits: &Exits,
    whole: &Loaded,
    sizes: &[usize],
) -> Result<Vec<(usize, Duration)>, String> {
    let early = exits.loaded(depth).await.map_err(|error| error.message)?;
    if early.is_on_gpu() != whole.is_on_gpu() {
        return Err("it runs on another device than the whole model".to_owned());
    }
    let times = times_of(&early, sizes).await?;
    match times.len() == sizes.len() {
        true => Ok(times),
        false => Err("it does not run in batches as large as the whole model does".to_owned()),
    }
}

/// From 1 to the largest, each about twice the one before; on a GPU only the largest of them besides 1.
fn sizes(most: usize, on_gpu: bool) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |size| Some(size * 2));
    let mut sizes: Vec<usize> = doubled.take_while(|size| *size < most).collect();
    sizes.push(most);
    if on_gpu && sizes.len() > MOST_ON_GPU {
        sizes.drain(1..=sizes.len() - MOST_ON_GPU);
    }
    sizes
}

/// The longest run of several, after the answers of the first were found to be those of each alone.
async fn timed(loaded: &Loaded, batch: Vec<Named>) -> Result<Duration, String> {
    let said = |error: karman_types::TaskError| error.message;
    let joined = join(loaded, batch.clone()).await.map_err(said)?;
    let bytes = bytes_of(joined.inputs());
    let (began, mut longest) = (Instant::now(), Duration::from_nanos(1));
    for run in 0..WARM_UP + RUNS {
        let inputs = joined.inputs().clone();
        let (outputs, took) = loaded
            .run_there(inputs, bytes, Meanwhile::Something)
            .await
            .map_err(said)?;
        if run == 0 && batch.len() > 1 {
            let answers = apart(joined.clone(), outputs).await.map_err(said)?;
            is_as_alone(loaded, &batch, &answers).await?;
        }
        if run >= WARM_UP {
            longest = longest.max(took);
            if began.elapsed() > MOST_TIMED {
                break;
            }
        }
    }
    Ok(longest)
}

/// The first and the last are looked at.
async fn is_as_alone(loaded: &Loaded, batch: &[Named], answers: &[Named]) -> Result<(), String> {
    let ends = [
        batch.first().zip(answers.first()),
        batch.last().zip(answers.last()),
    ];
    for (request, together) in ends.into_iter().flatten() {
        let ran = loaded
            .run_there(request.clone(), bytes_of(request), Meanwhile::Something)
            .await;
        let (alone, _) = ran.map_err(|error| error.message)?;
        if let Some((output, by)) = differs(&alone, together) {
            return Err(format!(
                "in a batch of {} its output `{output}` is another one than alone, by {by:.1e} of its largest number",
                batch.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_largest() {
        assert_eq!(sizes(2, false), [1, 2]);
        assert_eq!(sizes(8, false), [1, 2, 4, 8]);
        assert_eq!(sizes(12, false), [1, 2, 4, 8, 12]);
        assert_eq!(sizes(8, true), [1, 2, 4, 8]);
        assert_eq!(sizes(64, true), [1, 16, 32, 64]);
    }
}
