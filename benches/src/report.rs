use crate::machine;
use crate::pairs::{Pair, Ratio, ratio};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a study found.
pub(crate) struct Report {
    name: &'static str,
    rows: Vec<Row>,
    raw: BTreeMap<String, Vec<Pair>>,
}

#[derive(Serialize)]
struct Row {
    key: String,
    value: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
    unit: &'static str,
    target: Option<String>,
    holds: Option<bool>,
    kind: &'static str,
    reason: Option<String>,
}

/// What a row has to be, judged at the worse end of its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
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
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            rows: Vec::new(),
            raw: BTreeMap::new(),
        }
    }

    /// A measured ratio of paired blocks.
    pub(crate) fn ratio(&mut self, key: &str, pairs: Vec<Pair>, target: Target) {
        let Ratio { value, lo, hi } = ratio(&pairs);
        self.push(key, value, lo, hi, "ratio", target);
        self.raw.insert(key.into(), pairs);
    }

    /// A measured figure.
    pub(crate) fn figure(&mut self, key: &str, value: f64, unit: &'static str, target: Target) {
        self.push(key, value, value, value, unit, target);
    }

    /// A row that means nothing here, with the reason.
    pub(crate) fn void(&mut self, key: &str, reason: impl ToString) {
        eprintln!("{key}: void: {}", reason.to_string());
        self.rows.push(Row {
            key: key.into(),
            value: None,
            lo: None,
            hi: None,
            unit: "",
            target: None,
            holds: None,
            kind: "measured",
            reason: Some(reason.to_string()),
        });
    }

    fn push(&mut self, key: &str, value: f64, lo: f64, hi: f64, unit: &'static str, target: Target) {
        eprintln!("{key}: {value:.3} [{lo:.3}, {hi:.3}] {unit}");
        self.rows.push(Row {
            key: key.into(),
            value: Some(value),
            lo: Some(lo),
            hi: Some(hi),
            unit,
            target: target.text(),
            holds: target.holds(lo, hi),
            kind: "measured",
            reason: None,
        });
    }

    /// Writes `target/bench/NAME.json` (and the raw blocks beside it) and prints the rows.
    pub(crate) fn write_and_print(&self) -> anyhow::Result<()> {
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
