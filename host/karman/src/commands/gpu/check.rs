use crate::app::App;
use crate::output::table;
use clap::Args;
use karman_gpu::check::{Outcome, check, matrix};
use karman_gpu::{Api, Cpu, Device, DeviceInfo, Remote, RemoteOptions};
use karman_types::{ErrorKind, TaskError};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// `karman gpu check`
#[derive(Args, Debug)]
pub(super) struct Check {
    /// Only this device, as `karman gpu list` names it
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

/// Software takes its time to compile.
const MOST: Duration = Duration::from_secs(60);

/// What came of all shapes of one kernel.
#[derive(Default)]
struct Row {
    shapes: usize,
    worst: f64,
    tolerance: f64,
    wrong: Vec<String>,
}

impl Check {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let devices = super::chosen(&super::found(app)?, self.device.as_deref())?;
        let mut wrong = Vec::new();
        for info in devices {
            let rows = self.check(app, &info)?;
            show(app, &info, &rows)?;
            wrong.extend(
                rows.values()
                    .flat_map(|row| row.wrong.iter().map(|what| format!("{}: {what}", info.id))),
            );
        }
        match wrong.first() {
            None => Ok(()),
            Some(first) => Err(TaskError::new(
                ErrorKind::Failed,
                format!("{} shapes are wrong, first {first}", wrong.len()),
            )
            .with_hint("update the driver, or keep plugins off this device with `gpu.device` in node.toml")),
        }
    }

    fn check(&self, app: &App, info: &DeviceInfo) -> Result<BTreeMap<&'static str, Row>, TaskError> {
        let progress = app.progress(&format!("checking {}", info.id));
        let mut device: Box<dyn Device> = match info.api {
            Api::Cpu => Box::new(Cpu::new(0)),
            _ => {
                let tiles = super::tiles(app).into();
                let arguments = vec![
                    "serve-gpu".into(),
                    info.id.clone().into(),
                    "--tiles".into(),
                    tiles,
                ];
                Box::new(Remote::start(RemoteOptions {
                    program: super::program()?,
                    arguments,
                })?)
            }
        };
        let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
        for (seed, kernel) in matrix().iter().enumerate() {
            progress.step(&format!("checking {}: {}", info.id, kernel.name()));
            let outcome = check(&mut *device, kernel, seed as u64 + 1, MOST);
            rows.entry(kernel.name()).or_default().add(&outcome);
        }
        Ok(rows)
    }
}

impl Row {
    fn add(&mut self, outcome: &Outcome) {
        self.shapes += 1;
        self.tolerance = outcome.kernel.tolerance();
        if let Ok(error) = &outcome.error {
            self.worst = self.worst.max(*error);
        }
        if !outcome.holds() {
            let why = match &outcome.error {
                Ok(error) => format!("error {error:.1e} over {:.1e}", self.tolerance),
                Err(error) => error.to_string(),
            };
            self.wrong.push(format!("{:?}: {why}", outcome.kernel));
        }
    }
}

fn show(app: &App, info: &DeviceInfo, rows: &BTreeMap<&'static str, Row>) -> Result<(), TaskError> {
    if app.output.json {
        return rows.iter().try_for_each(|(kernel, row)| {
            app.output.line(json!({
                "device": info.id, "kernel": kernel, "shapes": row.shapes, "worst_error": row.worst,
                "tolerance": row.tolerance, "ok": row.wrong.is_empty(), "wrong": row.wrong,
            }))
        });
    }
    app.output.line(format_args!("{}   {}", info.id, info.name))?;
    let head = ["KERNEL", "SHAPES", "WORST ERROR", "TOLERANCE", ""]
        .map(str::to_owned)
        .to_vec();
    let line = |(kernel, row): (&&str, &Row)| {
        let wrong = row.wrong.len();
        vec![
            (*kernel).to_owned(),
            row.shapes.to_string(),
            format!("{:.1e}", row.worst),
            format!("{:.1e}", row.tolerance),
            if wrong == 0 {
                "ok".into()
            } else {
                format!("{wrong} wrong")
            },
        ]
    };
    app.output.line(table(
        &std::iter::once(head)
            .chain(rows.iter().map(line))
            .collect::<Vec<_>>(),
    ))
}
