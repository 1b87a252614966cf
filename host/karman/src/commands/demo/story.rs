use super::continuum::{Continuum, Sent, Who, pause};
use super::mission::{self, Plugins, capture, cut, shot, slo, status, workflow};
use super::report::{Act, Report, Run};
use super::sky::{self, Pass, passes};
use super::truth::{Marked, known};
use crate::app::App;
use bytes::Bytes;
use http::Method;
use karman_node::{FlowStatus, LogEvent, Measured, read_decisions};
use karman_sched::log::{Entry, What, explain, replay};
use karman_types::{Slo, TaskError, TaskId, Workflow};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So long before a pass the link is there: the dish looks for the satellite before the plan says that it comes.
const EARLY: Duration = Duration::from_millis(400);
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
    let measured = mission::measure(app, continuum)?;
    for one in &measured {
        app.output.note(continuum.named(&words(one)));
    }
    let (sat, dish) = (continuum.node(Who::Sat).id(), continuum.node(Who::Dish).id());
    let first = sky::now() + ALONE;
    let passes = passes(ACTS.len(), sat, dish, first)?;
    continuum.launch(&passes)?;
    let sent_at_first = continuum.sent()?;
    let mut story = Story {
        app,
        continuum,
        workflow: workflow()?,
        ordered: Vec::new(),
        acts: Vec::new(),
        sent_before: Sent::new(),
    };
    let setup = started.elapsed();
    // What is left of the connection from before would take an alert with it.
    while story.continuum.sees()? {
        pause(app, EARLY / 4)?;
    }
    story.order(0, true)?;
    for (act, pass) in passes.iter().enumerate() {
        story.act(act, pass)?;
    }
    let runs = story.runs()?;
    let Story {
        mut acts,
        sent_before,
        ..
    } = story;
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
        sent,
        replayed: replay(&log),
        took: started.elapsed(),
    })
}

impl Story<'_> {
    fn act(&mut self, act: usize, pass: &Pass) -> Result<(), TaskError> {
        let (title, blow) = ACTS[act];
        match blow {
            Blow::NoUplink => self.continuum.uplink(false)?,
            Blow::Tighter => self.tighten(act)?,
            Blow::Nothing | Blow::FogDies => {}
        }
        let end = Instant::now() + pass.end.since(sky::now());
        pause(self.app, pass.start.since(sky::now()).saturating_sub(EARLY))?;
        self.continuum.passes(true)?;
        self.app
            .output
            .note(format!("\npass {}: {}: {title}", act + 1, pass.words()));
        let acquired = self.continuum.acquire(self.app, end)?;
        self.acts.push(Act {
            title: title.into(),
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
                self.sent_before = self.continuum.sent()?;
                self.sent_before.retain(|(from, _), _| *from == Who::Fog);
                self.continuum.kill(Who::Fog);
                self.app.output.note("the fog node is killed");
            }
            let left = end.saturating_duration_since(Instant::now());
            let status = status(self.continuum, run, left)?;
            self.app.output.note(line(&status));
        }
        pause(self.app, end.saturating_duration_since(Instant::now()))?;
        if let Some(act) = self.acts.last_mut() {
            act.cut_after = cut(self.continuum)?;
        }
        self.continuum.passes(false)?;
        if act + 1 < ACTS.len() {
            // Out of reach the satellite goes on by itself.
            self.order(act, true)?;
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

    /// From now on half of the time has to do that captures took in the pass before, in the mean.
    fn tighten(&mut self, act: usize) -> Result<(), TaskError> {
        let log = decisions(self.continuum)?;
        let before = self.ordered.iter().filter(|one| one.act + 1 == act && !one.alone);
        let times: Vec<Duration> = before.filter_map(|one| latency(&log, one.run)).collect();
        if let Some(limit) = times.iter().sum::<Duration>().checked_div(2 * times.len() as u32) {
            let limit = Duration::from_millis(limit.as_millis() as u64);
            let slo = Slo {
                latency_p95: Some(limit),
                requests: FEW,
                ..slo(&self.workflow)
            };
            self.workflow = self.workflow.clone().with_slo(slo);
        }
        Ok(())
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
        let alert: Option<Alert> = status
            .output
            .and_then(|output| serde_json::from_value(output).ok());
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
            to_alert: alert.as_ref().map(Alert::time),
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

/// What the dish tells.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Alert {
    captured_ms: u64,
    known_ms: u64,
    flooded_km2: f64,
    seen_km2: f64,
    #[serde(default)]
    siren: Option<Value>,
    tiles: Vec<Marked>,
}

impl Alert {
    /// From the picture to the siren; where that was not to be sounded, to the edge board that knows.
    fn time(&self) -> Duration {
        let sounded = self.siren.as_ref().and_then(|siren| siren["sounded-ms"].as_u64());
        Duration::from_millis(sounded.unwrap_or(self.known_ms).saturating_sub(self.captured_ms))
    }
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
    read_decisions(answer.body())
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

fn words(measured: &Measured) -> String {
    match (&measured.implementation, &measured.error) {
        (Some(known), _) => format!(
            "  {}   IoU {:.3}   p50 {:.0} ms   p95 {:.0} ms",
            measured.name,
            known.profile.accuracy.unwrap_or_default(),
            known.profile.p50.as_secs_f64() * 1e3,
            known.profile.p95.as_secs_f64() * 1e3
        ),
        (None, Some(error)) => format!("  {}   {error}", measured.name),
        (None, None) => format!("  {}", measured.name),
    }
}

/// A capture that has ended or goes on, for those who watch.
fn line(status: &FlowStatus) -> String {
    let state = serde_json::to_value(status.state).unwrap_or_default();
    let state = state.as_str().unwrap_or_default().to_owned();
    let alert: Option<Alert> = status
        .output
        .clone()
        .and_then(|output| serde_json::from_value(output).ok());
    match alert {
        Some(alert) => format!(
            "  {:.1} square kilometres under water, {:.1} s from the picture to the alert",
            alert.flooded_km2,
            alert.time().as_secs_f64()
        ),
        None => format!("  a capture is {state}"),
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
