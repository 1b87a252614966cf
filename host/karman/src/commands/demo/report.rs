use super::captures::Taken;
use super::continuum::{Sent, Who};
use super::office::{Asked, Told};
use super::round::Outcome;
use super::sky::{Pass, STORY};
use crate::output::table;
use karman_node::Measured;
use karman_sched::log::Replay;
use karman_types::{Slo, TaskId, format_bytes};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What happened, as the nodes tell it.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    /// Until everything was in its place and measured.
    pub(super) setup: Duration,
    pub(super) passes: Vec<Pass>,
    /// How the dish was to run the large model at first, in words.
    pub(super) plan: String,
    pub(super) measured: Vec<Measured>,
    pub(super) acts: Vec<Act>,
    pub(super) runs: Vec<Run>,
    /// The federated round.
    pub(super) round: Option<Outcome>,
    /// Why there is none.
    pub(super) round_failed: Option<String>,
    /// What was asked of the gateway.
    pub(super) asked: Vec<Asked>,
    /// Bytes on each link since the launch, as its sender has counted.
    #[serde(serialize_with = "links")]
    pub(super) sent: Sent,
    /// Whether every decision comes out the same when it is made again.
    pub(super) replayed: Replay,
    pub(super) took: Duration,
}

/// One pass, and what was done to the continuum then.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Act {
    pub(super) title: String,
    /// What was really done; nothing where it could not be, and in an act in which nothing is to be done.
    pub(super) done: Option<String>,
    /// How much later than planned it came, for what was not so yet.
    pub(super) put_off: Duration,
    /// What the story was to have in it or before it, and could not have.
    pub(super) missing: Vec<String>,
    pub(super) slo: Slo,
    /// Whether the satellite and the dish met.
    pub(super) acquired: bool,
    /// How the dish ran the large model when it began, and when it was over.
    pub(super) cut: String,
    pub(super) cut_after: String,
    /// What the dish's log says of cuts that moved in between.
    pub(super) moved: Vec<String>,
    /// Milliseconds since 1970.
    #[serde(skip)]
    pub(super) since_ms: u64,
}

/// One capture.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Run {
    pub(super) run: TaskId,
    pub(super) act: usize,
    /// Whom the satellite reached meanwhile.
    pub(super) taken: Taken,
    /// Metres that the water stood over the lowest place.
    pub(super) level: f64,
    /// From the order to the end, as the policy was told.
    pub(super) latency: Option<Duration>,
    /// From the picture to the siren, where that was sounded or was not to be.
    pub(super) to_alert: Option<Duration>,
    pub(super) flooded_km2: Option<f64>,
    /// What the small model on board had seen.
    pub(super) seen_km2: Option<f64>,
    /// Intersection over union with the truth.
    pub(super) overlap: Option<f64>,
    /// What the siren answered.
    pub(super) siren: Option<Value>,
    /// How many tiles each implementation was chosen for. Where one does not answer, another is chosen for the same tile.
    pub(super) by: BTreeMap<String, usize>,
    /// Why, one after the other; what is said twice in a row is said once.
    pub(super) why: Vec<String>,
    pub(super) error: Option<String>,
}

fn links<S: Serializer>(sent: &Sent, serializer: S) -> Result<S::Ok, S::Error> {
    let link = |((from, to), bytes): (&(Who, Who), &u64)| serde_json::json!({ "from": from, "to": to, "bytes": bytes });
    serializer.collect_seq(sent.iter().map(link))
}

impl Report {
    /// How many captures ended within the limit of their act, and how many there were. One that has no end is late.
    fn kept(&self, runs: impl Iterator<Item = usize>) -> (usize, usize) {
        let (mut kept, mut all) = (0, 0);
        for run in runs {
            let run = &self.runs[run];
            all += 1;
            let limit = self.acts.get(run.act).and_then(|act| act.slo.latency_p95);
            let within = |latency: Duration| limit.is_none_or(|limit| latency <= limit);
            kept += usize::from(run.error.is_none() && run.latency.is_some_and(within));
        }
        (kept, all)
    }

    fn of_act(&self, act: usize) -> impl Iterator<Item = usize> {
        let runs = self.runs.iter().enumerate();
        runs.filter(move |(_, run)| run.act == act)
            .map(|(place, _)| place)
    }

    fn captures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "PASS",
            "CAPTURE",
            "LEVEL",
            "SEGMENTED BY",
            "FLOODED",
            "IOU",
            "PICTURE TO SIREN",
            "RUN",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.runs.iter().map(Run::row));
        writeln!(f, "{}", table(&rows))
    }

    fn act(&self, f: &mut fmt::Formatter<'_>, place: usize, act: &Act) -> fmt::Result {
        let (kept, all) = self.kept(self.of_act(place));
        let limit = act.slo.latency_p95.map_or_else(|| "none".into(), seconds);
        writeln!(f, "\npass {}: {}", place + 1, act.title)?;
        writeln!(f, "  done: {}", act.done.as_deref().unwrap_or("nothing"))?;
        if !act.put_off.is_zero() {
            let late = seconds(act.put_off);
            writeln!(
                f,
                "  it was put off by {late}, for what was to come before it took longer"
            )?;
        }
        act.missing
            .iter()
            .try_for_each(|missing| writeln!(f, "  missing: {missing}"))?;
        writeln!(f, "  SLO: {kept} of {all} within {limit}")?;
        if !act.acquired {
            writeln!(f, "  the satellite and the dish did not meet")?;
        }
        writeln!(f, "  the dish's large model at first: {}", act.cut)?;
        act.moved
            .iter()
            .try_for_each(|moved| writeln!(f, "    {moved}"))?;
        if act.cut_after != act.cut {
            writeln!(f, "  and in the end: {}", act.cut_after)?;
        }
        // Of what is the same but for its figures the first is told.
        let mut told: Vec<String> = Vec::new();
        for why in self.of_act(place).flat_map(|run| &self.runs[run].why) {
            let without: String = why.chars().filter(|sign| !sign.is_ascii_digit()).collect();
            if !told.contains(&without) {
                told.push(without);
                writeln!(f, "  why: {why}")?;
            }
        }
        Ok(())
    }

    fn bytes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![["LINK", "BYTES"].map(str::to_owned).to_vec()];
        let used = self.sent.iter().filter(|(_, bytes)| **bytes > 0);
        rows.extend(used.map(|((from, to), bytes)| vec![format!("{from} -> {to}"), format_bytes(*bytes)]));
        writeln!(f, "\n{}", table(&rows))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nReal passes of CBERS 2, {} times faster, at least {} s between them; models slowed down {} times on the \
             satellite, {} on the boards, {} on the fog node",
            STORY.faster,
            STORY.between.as_secs(),
            Who::Sat.slowdown(),
            Who::Dish.slowdown(),
            Who::Fog.slowdown()
        )?;
        writeln!(f, "\n{}", self.plan)?;
        writeln!(f)?;
        self.captures(f)?;
        for (place, act) in self.acts.iter().enumerate() {
            self.act(f, place, act)?;
        }
        match (&self.round, &self.round_failed) {
            (Some(round), _) => writeln!(f, "\n{round}")?,
            (None, why) => {
                let why = why.as_deref().unwrap_or("it did not come to its end");
                writeln!(f, "\nno federated round: {why}")?;
            }
        }
        writeln!(
            f,
            "\nasked of the cloud's gateway, for flood-l:\n{}",
            Told(&self.asked)
        )?;
        self.bytes(f)?;
        let (kept, all) = self.kept(0..self.runs.len());
        let Replay {
            different,
            repicked,
            replaced,
            ..
        } = &self.replayed;
        let not_the_same = different.len() + repicked.len() + replaced.len();
        write!(
            f,
            "\n{kept} of {all} captures within their SLO; {} decisions came out the same when made again, {} did not; {} for all, \
             {} of it to set up and to measure",
            self.replayed.same,
            not_the_same,
            seconds(self.took),
            seconds(self.setup)
        )
    }
}

impl Run {
    fn row(&self) -> Vec<String> {
        let by: Vec<String> = self
            .by
            .iter()
            .map(|(name, tiles)| format!("{tiles} by {name}"))
            .collect();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
        };
        vec![
            (self.act + 1).to_string(),
            match self.taken {
                Taken::Alone => "alone",
                Taken::Overtaken => "overtaken",
                Taken::InContact => "in contact",
            }
            .into(),
            format!("{:.0} m", self.level),
            match by.is_empty() {
                true => "nobody".into(),
                false => by.join(", "),
            },
            self.flooded_km2
                .map_or_else(|| "-".into(), |area| format!("{area:.1} km2")),
            number(self.overlap, 2),
            match (self.to_alert, self.flooded_km2) {
                (Some(time), _) => seconds(time),
                (None, Some(_)) => "not sounded".into(),
                (None, None) => "no alert".into(),
            },
            match &self.error {
                Some(error) => error.clone(),
                None => self.latency.map_or_else(|| "not ended".into(), seconds),
            },
        ]
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
