use super::alert::Alert;
use super::beside::Beside;
use super::continuum::{Continuum, Sent, Who, pause};
use super::days::Days;
use super::mission::{self, Plugins, capture, cut, shot, slo, status, workflow};
use super::office::Office;
use super::report::{Act, Report, Run};
use super::round::{self, Round};
use super::sky::{self, Pass, STORY, Sky};
use super::spoken::{line, words};
use super::truth::known;
use crate::app::App;
use bytes::Bytes;
use http::Method;
use karman_node::{DecisionLog, FlowStatus, LogEvent, MeasureOrder};
use karman_sched::log::{Entry, What, explain, replay};
use karman_types::{Slo, TaskError, TaskId, Workflow, format_duration};
use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long after a pass nodes may take to notice that it is over. What is captured later comes to be looked at in the next one.
const NOTICED: Duration = Duration::from_millis(1800);
/// So long before a pass the link is there: the dish looks for the satellite before the plan says that it comes.
pub(super) const EARLY: Duration = Duration::from_millis(400);
/// Time until the first pass, in which the satellite is alone for the first time.
const ALONE: Duration = Duration::from_secs(3);
/// Captures in one pass at most.
const CAPTURES: usize = 3;
/// A capture that is ordered later than this before the end of a pass would not come through.
const LATE: Duration = Duration::from_millis(1500);
/// How long the last capture may take after all passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Captures of a batch with a tighter SLO, one of which may be late.
const FEW: u64 = 20;

/// What is done to the continuum in a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Blow {
    Nothing,
    FogDies,
    NoUplink,
    Tighter,
}

const ACTS: [(&str, Blow); 4] = [
    ("all is well", Blow::Nothing),
    ("the fog node is killed in the middle", Blow::FogDies),
    ("the uplink is gone", Blow::NoUplink),
    ("the SLO is tightened", Blow::Tighter),
];

/// A capture that was ordered.
struct Ordered {
    act: usize,
    run: TaskId,
    number: usize,
    /// Whether there was a contact when it was ordered.
    alone: bool,
}

struct Story<'a> {
    app: &'a App,
    continuum: &'a mut Continuum,
    beside: &'a Beside,
    workflow: Workflow,
    ordered: Vec<Ordered>,
    acts: Vec<Act>,
    /// What a node that was killed had sent.
    sent_before: Sent,
}

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
    let passes = Sky::over(sat, dish)?.passes(0, ACTS.len(), first, STORY);
    continuum.launch(None, &passes)?;
    let sent_at_first = continuum.sent()?;
    let setup = started.elapsed();
    let beside = Beside::default();
    let round = Round::new(app, continuum, (&beside, &days), &examples)?;
    let (told, trained, asked) = std::thread::scope(|scope| {
        let round = scope.spawn(|| round.run());
        let asked = scope.spawn(|| office.run(app, &beside));
        let told = {
            let _over = beside.until_dropped();
            goes_by(app, continuum, &beside, &passes)
        };
        (told, joined(round), joined(asked))
    });
    let (mut acts, runs, sent_before) = told?;
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
        passes: passes.to_vec(),
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

/// All passes from the launch on: what was done in them, what became of every capture, and what a node that was killed had sent.
fn goes_by(
    app: &App,
    continuum: &mut Continuum,
    beside: &Beside,
    passes: &[Pass],
) -> Result<(Vec<Act>, Vec<Run>, Sent), TaskError> {
    let mut story = Story {
        app,
        continuum,
        beside,
        workflow: workflow()?,
        ordered: Vec::new(),
        acts: Vec::new(),
        sent_before: Sent::new(),
    };
    // What is left of the connection from before would take an alert with it.
    while story.continuum.sees()? {
        pause(app, EARLY / 4)?;
    }
    story.order(0, true)?;
    for (act, pass) in passes.iter().enumerate() {
        story.act(act, pass)?;
    }
    let runs = story.runs()?;
    Ok((story.acts, runs, story.sent_before))
}

impl Story<'_> {
    fn act(&mut self, act: usize, pass: &Pass) -> Result<(), TaskError> {
        let (title, blow) = ACTS[act];
        let done = match blow {
            Blow::NoUplink => {
                self.continuum.uplink(false)?;
                Some("the edge's links to the cloud were cut before the pass".into())
            }
            Blow::Tighter => self.tighten(act)?,
            Blow::Nothing | Blow::FogDies => None,
        };
        let end = Instant::now() + pass.end.since(sky::now());
        pause(self.app, pass.start.since(sky::now()).saturating_sub(EARLY))?;
        self.continuum.passes(true)?;
        self.beside.enters(act);
        self.app
            .output
            .note(format!("\npass {}: {}: {title}", act + 1, pass.words()));
        let acquired = self.continuum.acquire(self.app, end)?;
        self.acts.push(Act {
            title: title.into(),
            done,
            slo: slo(&self.workflow),
            acquired,
            cut: cut(self.continuum)?,
            cut_after: String::new(),
            moved: Vec::new(),
            since_ms: wall_ms(),
        });
        for capture in 0..CAPTURES {
            if !acquired || Instant::now() + LATE > end {
                break;
            }
            let run = self.order(act, false)?;
            if blow == Blow::FogDies && capture == 1 {
                self.kill_fog("while the second capture was on its way")?;
            }
            let left = end.saturating_duration_since(Instant::now());
            let status = status(self.continuum, run, left)?;
            self.app.output.note(line(&status));
        }
        // What the act is about happens also where the first capture took all of the time.
        if blow == Blow::FogDies && self.continuum.node(Who::Fog).is_up() {
            self.kill_fog("at the end of the pass, in which no second capture was ordered")?;
        }
        pause(self.app, end.saturating_duration_since(Instant::now()))?;
        if let Some(act) = self.acts.last_mut() {
            act.cut_after = cut(self.continuum)?;
        }
        self.continuum.passes(false)?;
        if act + 1 < ACTS.len() {
            // Out of reach the satellite goes on by itself.
            let alone = self.is_alone()?;
            self.order(act, alone)?;
        }
        Ok(())
    }

    /// Whether the satellite is out of reach, once it has had the time to notice.
    fn is_alone(&self) -> Result<bool, TaskError> {
        let until = Instant::now() + NOTICED;
        while self.continuum.sees()? {
            if Instant::now() > until {
                return Ok(false);
            }
            pause(self.app, EARLY / 4)?;
        }
        Ok(true)
    }

    /// Kills the fog node in this act.
    fn kill_fog(&mut self, when: &str) -> Result<(), TaskError> {
        self.sent_before = self.continuum.sent()?;
        self.sent_before.retain(|(from, _), _| *from == Who::Fog);
        self.continuum.kill(Who::Fog);
        let done = format!("the fog node was killed {when}");
        self.app.output.note(&done);
        if let Some(act) = self.acts.last_mut() {
            act.done = Some(done);
        }
        Ok(())
    }

    fn order(&mut self, act: usize, alone: bool) -> Result<TaskId, TaskError> {
        let number = self.ordered.len();
        let run = capture(self.continuum, &self.workflow, &shot(number))?;
        self.ordered.push(Ordered {
            act,
            run,
            number,
            alone,
        });
        Ok(run)
    }

    /// From now on half of the time has to do that captures took in contact, in the mean: those of the pass before, or where none of
    /// them has ended, of the last pass in which one has. What was done.
    fn tighten(&mut self, act: usize) -> Result<Option<String>, TaskError> {
        let log = decisions(self.continuum)?;
        let times = |act: usize| -> Vec<Duration> {
            let those = self.ordered.iter().filter(|one| one.act == act && !one.alone);
            those.filter_map(|one| latency(&log, one.run)).collect()
        };
        let Some((before, limit)) = (0..act).rev().find_map(|act| Some((act, half(&times(act))?))) else {
            return Ok(None);
        };
        let slo = Slo {
            latency_p95: Some(limit),
            requests: FEW,
            ..slo(&self.workflow)
        };
        self.workflow = self.workflow.clone().with_slo(slo);
        Ok(Some(format!(
            "the SLO was tightened to {}, half of what captures took in pass {}",
            format_duration(limit),
            before + 1
        )))
    }

    /// What became of every capture.
    fn runs(&mut self) -> Result<Vec<Run>, TaskError> {
        let until = Instant::now() + PATIENCE;
        let mut ended = Vec::new();
        for ordered in &self.ordered {
            let left = until.saturating_duration_since(Instant::now());
            ended.push(status(self.continuum, ordered.run, left)?);
        }
        let log = decisions(self.continuum)?;
        let runs = self.ordered.iter().zip(ended);
        runs.map(|(ordered, status)| self.run(ordered, status, &log))
            .collect()
    }

    fn run(&self, ordered: &Ordered, status: FlowStatus, log: &[Entry]) -> Result<Run, TaskError> {
        let told = explain(log, ordered.run);
        let mut by = BTreeMap::new();
        for told in &told {
            *by.entry(self.continuum.named(&told.why.chosen)).or_insert(0) += 1;
        }
        let mut why: Vec<String> = told
            .iter()
            .map(|told| self.continuum.named(&told.why.to_string()))
            .collect();
        why.dedup();
        let alert = Alert::of(status.output);
        let taken = shot(ordered.number);
        let overlap = match &alert {
            Some(alert) => Some(known(self.continuum, &taken)?.overlap(&alert.tiles)),
            None => None,
        };
        Ok(Run {
            run: ordered.run,
            act: ordered.act,
            alone: ordered.alone,
            level: taken.level,
            latency: latency(log, ordered.run),
            to_alert: alert.as_ref().and_then(Alert::time),
            flooded_km2: alert.as_ref().map(|alert| alert.flooded_km2),
            seen_km2: alert.as_ref().map(|alert| alert.seen_km2),
            overlap,
            siren: alert.as_ref().and_then(|alert| alert.siren.clone()),
            by,
            why,
            error: status.error.map(|error| error.message),
        })
    }
}

/// Half of the mean, in whole milliseconds; nothing of nothing.
fn half(times: &[Duration]) -> Option<Duration> {
    let half = times
        .iter()
        .sum::<Duration>()
        .checked_div(2 * times.len() as u32)?;
    Some(Duration::from_millis(half.as_millis() as u64))
}

/// The time that the policy was told a run took.
fn latency(log: &[Entry], run: TaskId) -> Option<Duration> {
    log.iter().find_map(|entry| match &entry.what {
        What::Served { request, heard } if *request == run => Some(heard.latency),
        _ => None,
    })
}

/// The satellite's log of decisions.
fn decisions(continuum: &Continuum) -> Result<Vec<Entry>, TaskError> {
    let control = continuum.node(Who::Sat).control();
    let answer = control.send(Method::GET, "/decisions", &[], Bytes::new())?;
    Ok(DecisionLog::read(answer.body())?.entries)
}

/// What the dish's log says of cuts, in the act in which it happened.
fn tell_of_cuts(continuum: &Continuum, acts: &mut [Act]) -> Result<(), TaskError> {
    let logs: Vec<LogEvent> = continuum.node(Who::Dish).control().get("/logs")?;
    for event in logs.iter().filter(|event| event.message.starts_with("a cut")) {
        if let Some(act) = acts.iter_mut().rfind(|act| act.since_ms <= event.unix_ms) {
            act.moved.push(continuum.named(&event.message));
        }
    }
    Ok(())
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
