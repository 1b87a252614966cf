use super::write_out;
use crate::app::App;
use crate::held::Held;
use clap::Args;
use karman_node::FedModel;
use karman_types::{TaskError, format_bytes};
use serde_json::{Map, json};
use std::path::PathBuf;

/// `karman fed export`
#[derive(Args, Debug)]
pub(super) struct Export {
    /// The run
    name: String,
    /// The file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// As the ONNX model that the run began with, with what was learnt in it
    #[arg(long)]
    onnx: bool,
}

impl Export {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let held = Held::with_fed_run(app, &self.name)?;
        let model = held.fed_model(&self.name)?;
        let bytes = match self.onnx {
            true => held.fed_onnx(app, &self.name)?,
            false => safetensors(&model)?,
        };
        let (arrays, size) = (model.layout.arrays().len(), format_bytes(bytes.len() as u64));
        write_out(
            app,
            &self.output,
            &bytes,
            || {
                format!(
                    "version {} of {}   {arrays} arrays, {size}",
                    model.version, model.name
                )
            },
            || json!({ "name": model.name, "version": model.version, "arrays": arrays, "bytes": bytes.len() }),
        )
    }
}

/// The arrays as `f32` in the format of safetensors: the length of a JSON header in eight bytes, the header (type, shape and place of
/// each array, with the run and its version beside them), the numbers; all little-endian.
fn safetensors(model: &FedModel) -> Result<Vec<u8>, TaskError> {
    let mut header = Map::new();
    let about = json!({ "run": model.name, "version": model.version.to_string() });
    header.insert("__metadata__".into(), about);
    let mut start = 0;
    for array in model.layout.arrays() {
        let end = start + 4 * array.shape.elements().unwrap_or_default();
        let place = json!({ "dtype": "F32", "shape": array.shape.dims(), "data_offsets": [start, end] });
        header.insert(array.name.clone(), place);
        start = end;
    }
    let mut header = serde_json::to_vec(&header).map_err(|error| TaskError::internal(error.to_string()))?;
    // The numbers begin at a multiple of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(model.numbers.iter().flat_map(|number| number.to_le_bytes()));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_fed::Layout;
    use serde_json::Value;

    #[test]
    fn arrays_lie_where_the_header_says() {
        let model = FedModel {
            name: "digits".into(),
            version: 3,
            layout: Layout::of_shapes(
                [&[2u32, 2][..], &[1]].map(|dims| karman_tensor::Shape::new(dims).unwrap()),
            )
            .unwrap(),
            numbers: vec![1.0, 2.0, 3.0, 4.0, 5.0],
        };
        let bytes = safetensors(&model).unwrap();
        let (length, rest) = bytes.split_first_chunk().unwrap();
        let (header, numbers) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header: Value = serde_json::from_slice(header).unwrap();
        assert_eq!(header["__metadata__"]["version"], "3");
        assert_eq!(header["array 0"]["shape"], json!([2, 2]));
        let place = &header["array 1"]["data_offsets"];
        let (start, end) = (
            place[0].as_u64().unwrap() as usize,
            place[1].as_u64().unwrap() as usize,
        );
        assert_eq!(numbers[start..end], 5f32.to_le_bytes());
        assert_eq!((numbers.len(), (8 + rest.len() - numbers.len()) % 8), (20, 0));
    }
}
