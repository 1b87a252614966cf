use crate::app::App;
use crate::control::Control;
use crate::input::{self, Input};
use crate::output::table;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::{EnergyOrigin, Example, MeasureOrder, Measured};
use karman_types::{Limits, TaskError, format_duration};
use serde_json::json;
use std::path::PathBuf;

/// `karman flow measure`
#[derive(Args, Debug)]
pub(super) struct Measure {
    /// The workflow; - is standard input
    file: PathBuf,
    /// Its task
    task: String,
    /// Labelled examples, one JSON object per line: {"input": …, "output": {FIELD: VALUE}}; - for standard input
    #[arg(long, value_name = "FILE")]
    data: String,
    /// Money for a call of an implementation, kept until another price is given; may be given again
    #[arg(long, value_name = "NAME=PRICE", value_parser = price)]
    cost: Vec<(String, f64)>,
    /// Joules of a call of an implementation, where they are not measured; kept until they are, or others are given; may be given again
    #[arg(long, value_name = "NAME=JOULES", value_parser = joules)]
    energy: Vec<(String, f64)>,
    /// Measure only this implementation, and keep what is known of the others
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

fn price(text: &str) -> Result<(String, f64), String> {
    let (name, price) = crate::cli::pair(text)?;
    let price = price.parse().map_err(|_| format!("`{price}` is no price"))?;
    Ok((name, price))
}

fn joules(text: &str) -> Result<(String, f64), String> {
    let (name, joules) = crate::cli::pair(text)?;
    let joules = joules
        .parse()
        .map_err(|_| format!("`{joules}` is no number of joules"))?;
    Ok((name, joules))
}

impl Measure {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        input::not_both_standard(&self.file, Some(&self.data))?;
        let data = Input::read(Some(&self.data), None, Limits::ceiling().input)?;
        let order = MeasureOrder {
            workflow: input::text(&self.file)?,
            task: self.task.clone(),
            examples: examples(&data.body)?,
            cost: self.cost.iter().cloned().collect(),
            energy: self.energy.iter().cloned().collect(),
            only: self.only.clone(),
        };
        let body = serde_json::to_vec(&order).map_err(|error| TaskError::internal(error.to_string()))?;
        let measured: Vec<Measured> =
            Control::new(app)?.order(Method::POST, "/flows/measure", Bytes::from(body))?;
        if app.output.json {
            return measured.iter().try_for_each(|one| app.output.line(json!(one)));
        }
        let head = [
            "IMPLEMENTATION",
            "ACCURACY",
            "P50",
            "P95",
            "P99",
            "COST",
            "ENERGY",
        ]
        .map(str::to_owned)
        .to_vec();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(measured.iter().map(row)).collect();
        app.output.line(table(&rows))?;
        for one in &measured {
            if let Some(origin @ EnergyOrigin::Unavailable { .. }) = &one.energy {
                app.output.note(format!("{}, energy {origin}", one.name));
            }
        }
        Ok(())
    }
}

fn examples(lines: &[u8]) -> Result<Vec<Example>, TaskError> {
    let wrong = |number: usize, why: &dyn std::fmt::Display| {
        TaskError::invalid(format!("line {} of the examples: {why}", number + 1)).with_field("data")
    };
    let lines = lines.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    filled
        .map(|(number, line)| serde_json::from_slice(line).map_err(|error| wrong(number, &error)))
        .collect()
}

fn row(measured: &Measured) -> Vec<String> {
    let Some(implementation) = &measured.implementation else {
        let why = measured.error.as_ref().map(ToString::to_string);
        return vec![measured.name.clone(), why.unwrap_or_default()];
    };
    let profile = &implementation.profile;
    let accuracy = profile
        .accuracy
        .map_or_else(|| "unknown".into(), |accuracy| format!("{accuracy:.3}"));
    let energy = match (profile.energy, &measured.energy) {
        (Some(joules), Some(origin)) => format!("{joules:.3} J, {origin}"),
        (Some(joules), None) => format!("{joules:.3} J"),
        (None, _) => "unavailable".into(),
    };
    let [p50, p95, p99] = [profile.p50, profile.p95, profile.p99].map(format_duration);
    vec![
        measured.name.clone(),
        accuracy,
        p50,
        p95,
        p99,
        profile.cost.to_string(),
        energy,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_read_line_by_line() {
        let text = b"{\"input\": 1, \"output\": {\"x\": 2}}\n\n{\"input\": 3}\n";
        let read = examples(text).unwrap();
        assert_eq!((read.len(), &read[0].output["x"]), (2, &json!(2)));
        let error = examples(b"{\"input\": 1}\n{").unwrap_err();
        assert!(error.message.contains("line 2"), "{error}");
        assert!(price("digits-m=x").is_err() && price("digits-m=0.5").is_ok());
        assert!(joules("digits-m=x").is_err() && joules("digits-m=0.5").is_ok());
    }
}
