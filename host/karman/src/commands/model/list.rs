use crate::app::App;
use crate::held::Held;
use crate::output::table;
use clap::Args;
use karman_node::{GpuConfig, HeldModel, ModelDevice};
use karman_store::ModelExit;
use karman_types::{TaskError, format_bytes};
use serde_json::{Value, json};

/// `karman model list`
#[derive(Args, Debug)]
pub(super) struct List {
    /// Digests in full length
    #[arg(long)]
    long: bool,
}

impl List {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let config = app.config()?;
        let mut models = Held::if_any(app)?
            .map(|held| held.models(&config))
            .transpose()?
            .unwrap_or_default();
        for model in &mut models {
            let name = &model.name;
            model
                .runs_on
                .get_or_insert_with(|| configured(&config.gpu, name).to_owned());
        }
        if app.output.json {
            return models.iter().try_for_each(|model| app.output.line(json!(model)));
        }
        if models.is_empty() {
            app.output
                .note("no models; karman model add NAME FILE.onnx adds one");
            return Ok(());
        }
        let head = vec![
            ["NAME", "SIZE", "DIGEST", "RUNS ON", "INFO"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let rows: Vec<Vec<String>> = head
            .into_iter()
            .chain(models.iter().map(|model| self.row(model)))
            .collect();
        app.output.line(table(&rows))
    }

    fn row(&self, model: &HeldModel) -> Vec<String> {
        let digest = if self.long {
            model.digest.to_string()
        } else {
            model.digest.short()
        };
        let exits = ModelExit::all_of(&model.info);
        let exits = exits
            .iter()
            .map(|exit| format!("{} {}", exit.output, exit.accuracy));
        let exits = exits.collect::<Vec<_>>().join(" / ");
        let of = |(key, value): (&String, &Value)| match value {
            Value::String(text) => format!("{key} {text}"),
            _ if key == ModelExit::KEY && !exits.is_empty() => format!("{key} {exits}"),
            other => format!("{key} {other}"),
        };
        let info: Vec<String> = model.info.iter().map(of).collect();
        let place = match &model.refused {
            Some(error) => format!("nowhere: {}", error.message),
            None => model.runs_on.clone().unwrap_or_default(),
        };
        vec![
            model.name.clone(),
            format_bytes(model.bytes),
            digest,
            place,
            info.join(", "),
        ]
    }
}

/// Where no node runs that could say more.
fn configured(gpu: &GpuConfig, model: &str) -> &'static str {
    match gpu.model(model) {
        None => "cpu",
        Some(ModelDevice::Gpu) => "gpu",
        Some(ModelDevice::Auto) => "gpu or cpu",
    }
}
