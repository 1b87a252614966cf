use crate::app::App;
use crate::output::table;
use clap::Args;
use karman_gpu::{Api, DeviceInfo};
use karman_types::{TaskError, format_bytes};
use serde_json::json;

/// `karman gpu list`
#[derive(Args, Debug)]
pub(super) struct List {}

impl List {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let found = super::found(app)?;
        if app.output.json {
            found
                .devices
                .iter()
                .try_for_each(|device| app.output.line(json!(device)))?;
            return found
                .absent
                .iter()
                .try_for_each(|absent| app.output.line(json!(absent)));
        }
        let head = ["DEVICE", "CLASS", "NAME", "DRIVER", "LARGEST BUFFER"]
            .map(str::to_owned)
            .to_vec();
        let rows: Vec<_> = std::iter::once(head)
            .chain(found.devices.iter().map(row))
            .collect();
        app.output.line(table(&rows))?;
        found.absent.iter().try_for_each(|absent| {
            app.output
                .line(format_args!("no {}: {}", absent.what, absent.why))
        })
    }
}

fn row(device: &DeviceInfo) -> Vec<String> {
    let buffer = match device.api {
        Api::Cpu => "-".to_owned(),
        _ => format_bytes(device.most_buffer),
    };
    vec![
        device.id.clone(),
        device.class.to_string(),
        device.name.clone(),
        device.driver.clone(),
        buffer,
    ]
}
