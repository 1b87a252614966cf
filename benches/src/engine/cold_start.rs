use super::Setting;
use super::server::Contender;
use anyhow::Result;
use karman_study::pairs;
use karman_study::report::{Report, Target};

/// Process start to first response, code compiled beforehand on both sides.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let key = "cold_start_vs_wasmtime_serve";
    let wasmtime = match &setting.wasmtime {
        Ok(program) => program,
        Err(reason) => {
            report.void(key, reason);
            return Ok(());
        }
    };
    let guest = setting.guest("hello-http02")?;
    let folder = tempfile::tempdir()?;
    let ours = Contender::karman(setting, &guest, folder.path());
    let theirs = Contender::wasmtime(wasmtime, &guest, folder.path(), None)?;
    // The first start fills the compile cache.
    ours.start()?;
    let once = |contender: &Contender| Ok(contender.start()?.1.as_secs_f64() * 1e3);
    let pairs = pairs::measure(setting.blocks(), || once(&ours), || once(&theirs))?;
    report.figure(
        "cold_start_ms",
        pairs::median(pairs.iter().map(|pair| pair.ours).collect()),
        "ms",
        Target::Shown,
    );
    report.ratio(key, pairs, Target::AtMost(1.0));
    Ok(())
}
