//! Everything from the first plugin to the report.

use super::acts::{Acts, Gone, PASSES};
use super::beside::Beside;
use super::captures::{decisions, outcomes};
use super::continuum::{Continuum, Who};
use super::days::Days;
use super::mission::{self, Plugins, workflow};
use super::office::Office;
use super::report::{Act, Report, Run};
use super::round::{self, Round};
use super::sky::{self, STORY, Sky};
use super::spoken::words;
use super::timetable::Timetable;
use crate::app::App;
use karman_node::{LogEvent, MeasureOrder};
use karman_sched::log::replay;
use karman_types::{TaskError, Workflow};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Time until the first pass, in which the satellite is alone for the first time.
const ALONE: Duration = Duration::from_secs(3);

/// Everything from the first plugin to the report.
///
/// # Errors
/// What a node says that keeps it from going on. What goes wrong with captures is told.
pub(super) fn tell(
    app: &App,
    continuum: &mut Continuum,
    plugins: &Plugins,
    started: Instant,
) -> Result<Report, TaskError> {
    mission::furnish(continuum, plugins)?;
    app.output
        .note("plugins and models are in their places; measuring");
    let plan = mission::plan(continuum)?;
    let examples = mission::examples(continuum)?;
    let measured = mission::measure(app, continuum, &examples)?;
    for one in &measured {
        app.output.note(continuum.named(&words(one)));
    }
    let (days, office) = ready(continuum, plugins, &examples)?;
    let (sat, dish) = (continuum.node(Who::Sat).id(), continuum.node(Who::Dish).id());
    let first = sky::now() + ALONE;
    let passes = Sky::over(sat, dish)?.passes(0, PASSES, first, STORY);
    continuum.launch(app, None, &passes)?;
    let sent_at_first = continuum.sent()?;
    let setup = started.elapsed();
    let beside = Beside::default();
    let round = Round::new(app, continuum, (&beside, &days), &examples)?;
    let script = (workflow()?, Timetable::new(passes));
    let (gone, trained, asked) = std::thread::scope(|scope| {
        let round = scope.spawn(|| round.run());
        let asked = scope.spawn(|| office.run(app, &beside));
        let gone = {
            let _over = beside.until_dropped();
            gone_by(app, continuum, &beside, script)
        };
        (gone, joined(round), joined(asked))
    });
    let (gone, runs) = gone?;
    let Gone {
        mut acts,
        times,
        sent_before,
        ..
    } = gone;
    let (round, round_failed) = match trained {
        Ok(trained) => (Some(trained), None),
        Err(why) => (None, Some(continuum.named(&why.message))),
    };
    tell_of_cuts(continuum, &mut acts)?;
    let mut sent = continuum.sent()?;
    sent.extend(sent_before);
    for (link, bytes) in &mut sent {
        *bytes -= sent_at_first.get(link).copied().unwrap_or(0).min(*bytes);
    }
    let log = decisions(continuum)?;
    Ok(Report {
        setup,
        passes: times.passes().to_vec(),
        plan: continuum.named(plan.explanation.trim_end()),
        measured,
        acts,
        runs,
        round,
        round_failed,
        asked: asked?.into_iter().map(|asked| asked.named(continuum)).collect(),
        sent,
        replayed: replay(&log),
        took: started.elapsed(),
    })
}

/// All passes from the launch on, and what became of every capture.
fn gone_by(
    app: &App,
    continuum: &mut Continuum,
    beside: &Beside,
    script: (Workflow, Timetable),
) -> Result<(Gone, Vec<Run>), TaskError> {
    let gone = Acts::new(app, continuum, beside, script).go_by()?;
    let runs = outcomes(continuum, &gone.ordered)?;
    Ok((gone, runs))
}

/// What is judged by, who asks, and who trains: made ready at once, for each is about other nodes.
fn ready(
    continuum: &Continuum,
    plugins: &Plugins,
    examples: &MeasureOrder,
) -> Result<(Days, Office), TaskError> {
    std::thread::scope(|scope| {
        let days = scope.spawn(|| Days::take(continuum));
        let deployed = scope.spawn(|| round::deploy(continuum, plugins));
        let office = Office::open(continuum, examples);
        joined(deployed)?;
        Ok((joined(days)?, office?))
    })
}

/// What a thread came to.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, TaskError>>) -> Result<T, TaskError> {
    let panicked = |_| Err(TaskError::internal("a thread panicked"));
    thread.join().unwrap_or_else(panicked)
}

/// What the dish's log says of cuts, in the act in which it happened.
fn tell_of_cuts(continuum: &Continuum, acts: &mut [Act]) -> Result<(), TaskError> {
    let logs: Vec<LogEvent> = continuum.node(Who::Dish).control().get("/logs")?;
    for event in logs.iter().filter(|event| event.message.starts_with("a cut")) {
        if let Some(act) = acts.iter_mut().rfind(|act| act.since_ms <= event.unix_ms) {
            act.moved.push(continuum.named(&event.message));
        }
    }
    // A node keeps only the last events of its log.
    let lost = |since_ms: u64| {
        let first = logs.first().filter(|first| first.number > 1);
        first.is_some_and(|first| first.unix_ms > since_ms)
    };
    for act in acts.iter_mut().filter(|act| lost(act.since_ms)) {
        let why = "the dish's log does not reach back to its beginning: cuts may have moved untold";
        act.missing.push(why.into());
    }
    Ok(())
}
