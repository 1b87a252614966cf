//! The acts: before each pass the satellite goes on alone, in it something is done to the continuum. Captures are ordered by what is so:
//! alone once the satellite sees nobody, in contact while enough of the pass is left. A pass comes once the story has what it needs
//! before it; where that does not come about, the act says so.

use super::beside::Beside;
use super::captures::{Ordered, Taken, decisions, latency};
use super::continuum::{Continuum, Sent, Who, pause};
use super::mission::{capture, cut, is_looked_at, shot, slo, status};
use super::report::Act;
use super::sky;
use super::spoken::line;
use super::timetable::Timetable;
use crate::app::App;
use karman_mesh::wall_clock;
use karman_types::{Slo, TaskError, TaskId, Workflow, format_duration};
use std::time::{Duration, Instant};

/// How often to look whether something is so.
const LOOK: Duration = Duration::from_millis(50);
/// Captures in one pass at most.
const CAPTURES: usize = 3;
/// The least time that has to be left of a pass for a capture; more where the one before it in this pass took longer.
const LEAST: Duration = Duration::from_millis(1500);
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

const ACTS: [(&str, Blow); PASSES] = [
    ("all is well", Blow::Nothing),
    ("the fog node is killed in the middle", Blow::FogDies),
    ("the uplink is gone", Blow::NoUplink),
    ("the SLO is tightened", Blow::Tighter),
];
/// One pass for each act.
pub(super) const PASSES: usize = 4;

/// The acts as they go by.
pub(super) struct Acts<'a> {
    app: &'a App,
    continuum: &'a mut Continuum,
    beside: &'a Beside,
    workflow: Workflow,
    times: Timetable,
    ordered: Vec<Ordered>,
    acts: Vec<Act>,
    /// What the act that is to come, or goes on, did without.
    missing: Vec<String>,
    /// How far its pass was put off.
    put_off: Duration,
    sent_before: Sent,
}

/// What has gone by.
pub(super) struct Gone {
    pub(super) acts: Vec<Act>,
    pub(super) ordered: Vec<Ordered>,
    /// When the passes really were.
    pub(super) times: Timetable,
    /// What a node that was killed had sent.
    pub(super) sent_before: Sent,
}

impl<'a> Acts<'a> {
    pub(super) fn new(
        app: &'a App,
        continuum: &'a mut Continuum,
        beside: &'a Beside,
        (workflow, times): (Workflow, Timetable),
    ) -> Self {
        Self {
            app,
            continuum,
            beside,
            workflow,
            times,
            ordered: Vec::new(),
            acts: Vec::new(),
            missing: Vec::new(),
            put_off: Duration::ZERO,
            sent_before: Sent::new(),
        }
    }

    /// All passes, and what comes before each of them.
    ///
    /// # Errors
    /// What a node says that keeps the story from going on.
    pub(super) fn go_by(mut self) -> Result<Gone, TaskError> {
        for (act, (title, blow)) in ACTS.into_iter().enumerate().take(self.times.passes().len()) {
            self.alone(act)?;
            self.pass(act, title, blow)?;
        }
        Ok(Gone {
            acts: self.acts,
            ordered: self.ordered,
            times: self.times,
            sent_before: self.sent_before,
        })
    }

    /// What goes on before a pass: a capture of which nobody on the ground hears, and what the last pass is needed for.
    fn alone(&mut self, next: usize) -> Result<(), TaskError> {
        if self.until_so(next, |here| Ok(!here.continuum.sees()?))? {
            // It counts for the pass after which it is taken.
            let run = self.order(next.saturating_sub(1), Taken::Alone)?;
            let looked_at = self.until_so(next, |here| {
                Ok(is_looked_at(&status(here.continuum, run, Duration::ZERO)?))
            })?;
            if !looked_at {
                self.misses("the capture alone before it had not been looked at when it came");
                self.overtaken(run);
            }
        } else {
            self.misses("no capture alone before it: the satellite still reached the dish");
        }
        let is_last = next + 1 == self.times.passes().len();
        if is_last && !self.until_so(next, |here| Ok(here.beside.is_trained()))? {
            self.misses("the boards had not trained their model yet when the last pass came");
        }
        Ok(())
    }

    /// A pass, and what is done in it.
    fn pass(&mut self, act: usize, title: &str, blow: Blow) -> Result<(), TaskError> {
        let done = match blow {
            Blow::NoUplink => {
                self.continuum.uplink(self.app, false)?;
                Some("the edge's links to the cloud were cut before the pass".into())
            }
            Blow::Tighter => self.tighten(act)?,
            Blow::Nothing | Blow::FogDies => None,
        };
        // What has begun already would be less than a pass.
        if self.times.left(act, sky::now()).is_zero() {
            self.put_off(act)?;
        }
        pause(self.app, self.times.left(act, sky::now()))?;
        let pass = self.times.passes()[act];
        let end = Instant::now() + pass.end.since(sky::now());
        let since_ms = wall_ms();
        self.continuum.passes(self.app, true)?;
        self.beside.enters(act);
        self.app
            .output
            .note(format!("\npass {}: {}: {title}", act + 1, pass.words()));
        let acquired = self.continuum.acquire(self.app, end)?;
        self.acts.push(Act {
            title: title.into(),
            done,
            put_off: std::mem::take(&mut self.put_off),
            missing: Vec::new(),
            slo: slo(&self.workflow),
            acquired,
            cut: cut(self.continuum)?,
            cut_after: String::new(),
            moved: Vec::new(),
            since_ms,
        });
        if acquired {
            self.captures(act, blow, end)?;
        }
        // What the act is about happens also where the first capture took all of the time.
        if blow == Blow::FogDies && self.continuum.node(Who::Fog).is_up() {
            self.kill_fog("at the end of the pass, in which no second capture was ordered")?;
        }
        pause(self.app, end.saturating_duration_since(Instant::now()))?;
        // At once: who asks something first may connect the two anew.
        self.continuum.passes(self.app, false)?;
        let cut_after = cut(self.continuum)?;
        if let Some(act) = self.acts.last_mut() {
            act.cut_after = cut_after;
            act.missing = std::mem::take(&mut self.missing);
        }
        Ok(())
    }

    /// Captures one after the other, as long as there is time for one more.
    fn captures(&mut self, act: usize, blow: Blow, end: Instant) -> Result<(), TaskError> {
        let mut takes = LEAST;
        for capture in 0..CAPTURES {
            let (begun, left) = (Instant::now(), end.saturating_duration_since(Instant::now()));
            if left < takes {
                if capture == 0 {
                    let [left, least] = [whole_ms(left), LEAST].map(format_duration);
                    self.misses(&format!(
                        "no capture in contact: {left} were left of the pass, and one is taken to need {least}"
                    ));
                }
                break;
            }
            let run = self.order(act, Taken::InContact)?;
            if blow == Blow::FogDies && capture == 1 {
                self.kill_fog("while the second capture was on its way")?;
            }
            let left = end.saturating_duration_since(Instant::now());
            let status = status(self.continuum, run, left)?;
            if status.state.has_ended() {
                takes = LEAST.max(begun.elapsed());
            }
            self.app.output.note(line(&status));
        }
        Ok(())
    }

    /// Waits until something is so, and puts the pass off while it is not. Whether it is so; where it is not, the pass cannot wait.
    fn until_so(
        &mut self,
        pass: usize,
        is: impl Fn(&Self) -> Result<bool, TaskError>,
    ) -> Result<bool, TaskError> {
        while !is(self)? {
            if self.times.left(pass, sky::now()).is_zero() && !self.put_off(pass)? {
                return Ok(false);
            }
            pause(self.app, LOOK)?;
        }
        Ok(true)
    }

    /// Puts a pass off, and tells those who plan with it; whether that could be done.
    fn put_off(&mut self, pass: usize) -> Result<bool, TaskError> {
        let Some(by) = self.times.put_off(pass, sky::now()) else {
            return Ok(false);
        };
        self.put_off += by;
        self.continuum.plan(None, self.times.passes())?;
        Ok(true)
    }

    fn misses(&mut self, what: &str) {
        self.missing.push(what.into());
    }

    fn order(&mut self, act: usize, taken: Taken) -> Result<TaskId, TaskError> {
        let number = self.ordered.len();
        let run = capture(self.continuum, &self.workflow, &shot(number))?;
        self.ordered.push(Ordered {
            act,
            run,
            number,
            taken,
        });
        Ok(run)
    }

    /// A pass came before this capture had been looked at.
    fn overtaken(&mut self, run: TaskId) {
        if let Some(ordered) = self.ordered.iter_mut().find(|ordered| ordered.run == run) {
            ordered.taken = Taken::Overtaken;
        }
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

    /// From now on half of the time has to do that captures took in contact, in the mean: those of the pass before, or where none of
    /// them has ended, of the last pass in which one has. What was done.
    fn tighten(&mut self, act: usize) -> Result<Option<String>, TaskError> {
        let log = decisions(self.continuum)?;
        let times = |act: usize| -> Vec<Duration> {
            let in_contact = |one: &&Ordered| one.act == act && one.taken == Taken::InContact;
            let those = self.ordered.iter().filter(in_contact);
            those.filter_map(|one| latency(&log, one.run)).collect()
        };
        let last = (0..act).rev().find_map(|act| Some((act, half(&times(act))?)));
        let Some((before, limit)) = last else {
            self.misses("the SLO was not tightened: no capture that was taken in contact has ended");
            return Ok(None);
        };
        let slo = Slo {
            latency_p95: Some(limit),
            requests: FEW,
            ..slo(&self.workflow)
        };
        let workflow = self.workflow.clone().with_slo(slo);
        self.workflow = workflow.map_err(|wrong| TaskError::internal(wrong.to_string()))?;
        Ok(Some(format!(
            "the SLO was tightened to {}, half of what captures took in pass {}",
            format_duration(limit),
            before + 1
        )))
    }
}

/// Half of the mean, in whole milliseconds; nothing of nothing.
fn half(times: &[Duration]) -> Option<Duration> {
    let half = times
        .iter()
        .sum::<Duration>()
        .checked_div(2 * times.len() as u32)?;
    Some(whole_ms(half))
}

/// Without what nobody wants to read.
const fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}

fn wall_ms() -> u64 {
    wall_clock().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_limit_is_half_of_the_mean() {
        let ms = Duration::from_millis;
        assert_eq!(half(&[]), None);
        assert_eq!(half(&[ms(1001), ms(2000)]), Some(ms(750)));
    }
}
