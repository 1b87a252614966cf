use crate::app::App;
use crate::output::table;
use clap::Args;
use karman_gpu::bench::{Figure, of_cpu, of_gpu};
use karman_gpu::tune::{Tuned, tune};
use karman_gpu::{Api, Cpu, Cuda, DeviceInfo, Wgpu};
use karman_types::{TaskError, format_duration};
use serde_json::json;
use std::time::Duration;

/// `karman gpu bench`
#[derive(Args, Debug)]
pub(super) struct Bench {
    /// Only this device, as `karman gpu list` names it
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Find the best shape of tiles again, although it was measured before
    #[arg(long)]
    tune: bool,
}

const MOST: Duration = Duration::from_secs(60);

impl Bench {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        for info in super::chosen(&super::found(app)?, self.device.as_deref())? {
            let progress = app.progress(&format!("measuring {}", info.id));
            let figures = match info.api {
                Api::Cpu => of_cpu(&mut Cpu::new(0))?,
                Api::Cuda => of_gpu(&mut Cuda::open(&info.id)?)?,
                _ => of_gpu(&mut self.tuned(app, &info)?)?,
            };
            drop(progress);
            show(app, &info, &figures)?;
        }
        Ok(())
    }

    /// The device with the best tiles, which are measured once and kept.
    fn tuned(&self, app: &App, info: &DeviceInfo) -> Result<Wgpu, TaskError> {
        let file = super::tiles(app);
        let mut tuned = Tuned::load(&file);
        let known = tuned.get(info).filter(|_| !self.tune);
        let mut device = Wgpu::open(&info.id, known)?;
        if known.is_none() {
            let side = if info.is_hardware() { 1024 } else { 256 };
            tuned.set(info, tune(&mut device, side, MOST)?);
            if let Err(error) = tuned.save(&file) {
                app.output.note(format_args!(
                    "note: {} cannot be written: {error}",
                    file.display()
                ));
            }
        }
        Ok(device)
    }
}

fn show(app: &App, info: &DeviceInfo, figures: &[Figure]) -> Result<(), TaskError> {
    if app.output.json {
        return figures.iter().try_for_each(|figure| {
            app.output.line(json!({
                "device": info.id, "name": info.name, "what": figure.what, "value": figure.value,
                "unit": figure.unit, "seconds": figure.seconds,
            }))
        });
    }
    app.output.line(format_args!("{}   {}", info.id, info.name))?;
    let row = |figure: &Figure| {
        vec![
            figure.what.clone(),
            format!("{:.1} G{}", figure.value / 1e9, figure.unit),
            format_duration(Duration::from_secs_f64(figure.seconds)),
        ]
    };
    app.output
        .line(table(&figures.iter().map(row).collect::<Vec<_>>()))
}
