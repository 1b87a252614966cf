//! The rows of a study: written as JSON, printed as a table, judged against their targets.

use crate::interval::Estimate;
use crate::machine;
use crate::pairs::{Pair, ratio};
use anyhow::ensure;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What a study found.
pub struct Report {
    name: &'static str,
    kind: Kind,
    registered: Option<BTreeSet<String>>,
    rows: Vec<Row>,
    raw: BTreeMap<String, Value>,
}

/// How the rows came about.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// In the simulator.
    Simulated,
    /// From a recording.
    Replayed,
    /// On this machine, in real time.
    Measured,
}

/// The share of a study's registered cells that may be void.
const MOST_VOID: f64 = 0.2;

#[derive(Serialize)]
struct Row {
    key: String,
    value: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
    unit: &'static str,
    target: Option<String>,
    holds: Option<bool>,
    kind: Kind,
    reason: Option<String>,
}

/// What a row has to be, judged at the worse end of its interval.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The lower end has to reach this.
    AtLeast(f64),
    /// The upper end must not pass this.
    AtMost(f64),
    /// Shown, not judged.
    Shown,
}

impl Target {
    fn text(self) -> Option<String> {
        match self {
            Self::AtLeast(bound) => Some(format!(">= {bound}")),
            Self::AtMost(bound) => Some(format!("<= {bound}")),
            Self::Shown => None,
        }
    }

    fn holds(self, lo: f64, hi: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(lo >= bound),
            Self::AtMost(bound) => Some(hi <= bound),
            Self::Shown => None,
        }
    }
}

impl Report {
    /// A study whose rows are [`Kind::Measured`] until [`Report::kind`] says otherwise.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Measured,
            registered: None,
            rows: Vec::new(),
            raw: BTreeMap::new(),
        }
    }

    /// The cells (`key.cell`) that were written down before the study ran. One that is missing, or there twice, fails the
    /// study at its end; rows that are not registered are context.
    pub fn register(&mut self, cells: impl IntoIterator<Item = String>) {
        self.registered = Some(cells.into_iter().collect());
    }

    /// How the rows that follow came about.
    pub const fn kind(&mut self, kind: Kind) {
        self.kind = kind;
    }

    /// A measured ratio of paired blocks.
    pub fn ratio(&mut self, key: &str, pairs: Vec<Pair>, target: Target) {
        self.estimate(key, ratio(&pairs), "ratio", target);
        self.keep_raw(key, &pairs);
    }

    /// A figure without an interval.
    pub fn figure(&mut self, key: &str, value: f64, unit: &'static str, target: Target) {
        self.estimate(key, Estimate::exact(value), unit, target);
    }

    /// What a row was computed from, written beside the report.
    pub fn keep_raw(&mut self, key: &str, raw: &impl Serialize) {
        let raw = serde_json::to_value(raw).unwrap_or_else(|why| Value::String(why.to_string()));
        self.raw.insert(key.into(), raw);
    }

    /// A row that means nothing here, with the reason.
    pub fn void(&mut self, key: &str, reason: impl ToString) {
        eprintln!("{key}: void: {}", reason.to_string());
        self.rows.push(Row {
            key: key.into(),
            value: None,
            lo: None,
            hi: None,
            unit: "",
            target: None,
            holds: None,
            kind: self.kind,
            reason: Some(reason.to_string()),
        });
    }

    /// A value with its interval, judged at the worse end.
    pub fn estimate(&mut self, key: &str, estimate: Estimate, unit: &'static str, target: Target) {
        let Estimate { value, lo, hi } = estimate;
        eprintln!("{key}: {value:.3} [{lo:.3}, {hi:.3}] {unit}");
        self.rows.push(Row {
            key: key.into(),
            value: Some(value),
            lo: Some(lo),
            hi: Some(hi),
            unit,
            target: target.text(),
            holds: target.holds(lo, hi),
            kind: self.kind,
            reason: None,
        });
    }

    /// Writes `target/bench/NAME.json` (and the raw data beside it) and prints the rows.
    ///
    /// # Errors
    ///
    /// The folder cannot be written; a registered cell is missing, repeated, or too many are void.
    pub fn write_and_print(&self) -> anyhow::Result<()> {
        let folder = Path::new("target/bench");
        fs::create_dir_all(folder)?;
        let raw = format!("{}.raw.json", self.name);
        fs::write(folder.join(&raw), serde_json::to_vec(&self.raw)?)?;
        let report =
            json!({ "name": self.name, "machine": machine::describe(), "rows": self.rows, "raw": raw });
        fs::write(
            folder.join(format!("{}.json", self.name)),
            serde_json::to_vec_pretty(&report)?,
        )?;
        println!("{}", machine::describe());
        println!(
            "{:<48} {:>10}  {:<20} {:<8} {:<10} holds",
            "key", "value", "95 % interval", "unit", "target"
        );
        for row in &self.rows {
            println!("{}", row.line());
        }
        self.check_registered()
    }

    fn check_registered(&self) -> anyhow::Result<()> {
        let Some(registered) = &self.registered else {
            return Ok(());
        };
        for cell in registered {
            let rows = self.rows.iter().filter(|row| row.key == *cell).count();
            ensure!(
                rows == 1,
                "the registered cell {cell} has {rows} rows instead of one"
            );
        }
        let void = |row: &&Row| row.value.is_none() && registered.contains(&row.key);
        let void = self.rows.iter().filter(void).count();
        ensure!(
            void as f64 <= MOST_VOID * registered.len() as f64,
            "{void} of {} registered cells are void",
            registered.len()
        );
        Ok(())
    }
}

impl Row {
    fn line(&self) -> String {
        let Some(value) = self.value else {
            return format!(
                "{:<48} {:>10}  {}",
                self.key,
                "void",
                self.reason.as_deref().unwrap_or_default()
            );
        };
        let interval = match (self.lo, self.hi) {
            (Some(lo), Some(hi)) if lo != hi => format!("[{lo:.3}, {hi:.3}]"),
            _ => String::new(),
        };
        let holds = match self.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let target = self.target.as_deref().unwrap_or_default();
        format!(
            "{:<48} {value:>10.3}  {interval:<20} {:<8} {target:<10} {holds}",
            self.key, self.unit
        )
    }
}
