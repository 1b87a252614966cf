//! 256 MiB in one call.

use super::Setting;
use super::contender::{Contender, times};
use super::karman::Karman;
use super::quinn::Quinn;
use super::serve::Serve;
use anyhow::Result;
use bytes::Bytes;
use karman_study::machine::processor_time_of;
use karman_study::pairs::{self, Pair, median};
use karman_study::report::{Report, Target};
use std::cell::RefCell;
use std::sync::Arc;

const BYTES: usize = 256 << 20;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let runtime = &setting.runtime;
    let ours: Arc<dyn Contender> = Arc::new(runtime.block_on(Karman::tensor(setting))?);
    let theirs: Arc<dyn Contender> = Arc::new(runtime.block_on(Quinn::start(setting, Serve::QuinnTensor))?);
    let tensor = Bytes::from(vec![7; BYTES]);
    let (our_time, their_time) = (RefCell::default(), RefCell::default());
    let send = |contender: &Arc<dyn Contender>, used: &RefCell<Vec<f64>>| {
        let before = used_by(contender.as_ref())?;
        let took = runtime.block_on(times(contender.clone(), tensor.clone(), 1))?;
        let seconds = used_by(contender.as_ref())? - before;
        used.borrow_mut().push(seconds / (BYTES as f64 / 1e9));
        Ok(BYTES as f64 / 1e6 / took[0])
    };
    let measure = |blocks| pairs::measure(blocks, || send(&ours, &our_time), || send(&theirs, &their_time));
    measure(2)?;
    let pairs = measure(setting.blocks())?;
    for (name, rate, used) in [
        ("karman", (|pair: &Pair| pair.ours) as fn(&Pair) -> f64, &our_time),
        ("raw_quinn", |pair: &Pair| pair.theirs, &their_time),
    ] {
        let rate = median(pairs.iter().map(rate).collect());
        report.figure(&format!("tensor_mb_per_s.{name}"), rate, "MB/s", Target::Shown);
        let used = median(used.borrow()[2..].to_vec());
        report.figure(
            &format!("tensor_cpu_s_per_gb.{name}"),
            used,
            "s/GB",
            Target::Shown,
        );
    }
    report.ratio("tensor_throughput_vs_raw_quinn", pairs, Target::AtLeast(0.85));
    Ok(())
}

/// Seconds of processor time that this process and the other side have used.
fn used_by(contender: &dyn Contender) -> Result<f64> {
    let all = contender.others().into_iter().chain([std::process::id()]);
    all.map(processor_time_of).sum()
}
