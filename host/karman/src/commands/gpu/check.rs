use crate::app::App;
use crate::output::table;
use clap::Args;
use karman_gpu::check::{Outcome, check, matrix};
use karman_gpu::{Api, Cpu, Device, DeviceInfo, GpuError, Kernel, Remote, RemoteOptions};
use karman_types::{ErrorKind, TaskError};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
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
        let program = super::program()?;
        let open = |info: &DeviceInfo| open(&program, &super::tiles(app), info);
        let mut wrong = Vec::new();
        for info in devices {
            let progress = app.progress(&format!("checking {}", info.id));
            let step = |kernel: &Kernel| progress.step(&format!("checking {}: {}", info.id, kernel.name()));
            let found = Found::of(&info, &matrix(), open, step);
            drop(progress);
            show(app, &info, &found)?;
            wrong.extend(found.wrong().map(|what| format!("{}: {what}", info.id)));
        }
        match wrong.first() {
            None => Ok(()),
            Some(first) => Err(TaskError::new(
                ErrorKind::Failed,
                format!("{} of the checks failed, first {first}", wrong.len()),
            )
            .with_hint("update the driver, or keep plugins off this device with `gpu.device` in node.toml")),
        }
    }
}

/// Devices other than the processor are opened by a child: their drivers may crash.
fn open(program: &Path, tiles: &Path, info: &DeviceInfo) -> Result<Box<dyn Device>, GpuError> {
    if info.api == Api::Cpu {
        return Ok(Box::new(Cpu::new(0)));
    }
    let arguments = vec![
        "serve-gpu".into(),
        info.id.clone().into(),
        "--tiles".into(),
        tiles.into(),
    ];
    let program = program.to_owned();
    Ok(Box::new(Remote::start(RemoteOptions { program, arguments })?))
}

/// What came of a device: its kernels, or why it could not be opened. That says nothing about the next device.
struct Found(Result<BTreeMap<&'static str, Row>, GpuError>);

impl Found {
    fn of(
        info: &DeviceInfo,
        kernels: &[Kernel],
        open: impl Fn(&DeviceInfo) -> Result<Box<dyn Device>, GpuError>,
        step: impl Fn(&Kernel),
    ) -> Self {
        let checked = open(info).map(|mut device| {
            let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
            for (seed, kernel) in kernels.iter().enumerate() {
                step(kernel);
                let outcome = check(&mut *device, kernel, seed as u64 + 1, MOST);
                rows.entry(kernel.name()).or_default().add(&outcome);
            }
            rows
        });
        Self(checked)
    }

    fn wrong(&self) -> impl Iterator<Item = String> {
        let rows = self.0.iter().flat_map(BTreeMap::values);
        let wrong = rows.flat_map(|row| row.wrong.iter().cloned());
        wrong.chain(self.0.as_ref().err().map(GpuError::to_string))
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

fn show(app: &App, info: &DeviceInfo, found: &Found) -> Result<(), TaskError> {
    let rows = match &found.0 {
        Ok(rows) => rows,
        Err(why) if app.output.json => {
            let said = why.to_string();
            return app
                .output
                .line(json!({ "device": info.id, "ok": false, "wrong": [said] }));
        }
        Err(why) => {
            let (id, name) = (&info.id, &info.name);
            return app
                .output
                .line(format_args!("{id}   {name}\ndoes not open: {why}"));
        }
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_open_is_a_finding_and_the_next_is_checked() {
        let processor = Cpu::new(1).info().clone();
        let gone = DeviceInfo {
            id: "vulkan-0".into(),
            api: Api::Vulkan,
            ..processor.clone()
        };
        let open = |info: &DeviceInfo| match info.api {
            Api::Cpu => Ok(Box::new(Cpu::new(1)) as Box<dyn Device>),
            _ => Err(GpuError::Absent("its driver is gone".into())),
        };
        let kernels = &matrix()[..3];
        let [gone, processor] = [gone, processor].map(|info| Found::of(&info, kernels, open, |_| {}));
        assert_eq!(gone.wrong().collect::<Vec<_>>(), ["its driver is gone"]);
        assert_eq!(processor.wrong().count(), 0);
        assert_eq!(processor.0.unwrap()["gemm"].shapes, 3);
    }
}
