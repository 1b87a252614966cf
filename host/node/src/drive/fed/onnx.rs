//! A run that begins with a model of its driver's node, and the ONNX file that it ends as.

use super::record::Record;
use super::wire::{self, Frames};

use bytes::Bytes;
use karman_engine::learn::Array;
use karman_fed::Run;
use karman_infer::{ModelLimits, Weight, weights, with_weights};
use karman_store::Store;
use karman_types::{Digest, TaskError};

/// What a run begins with.
pub(super) struct First {
    /// Of the model's file.
    digest: Digest,
    /// Its weights.
    pub(super) frames: Frames,
}

/// The weights of the model that a run begins with; nothing where a client begins it. Blocks.
///
/// # Errors
/// `unavailable` when this node has no such model, `invalid` when it has nothing to learn; what the disk refuses.
pub(super) fn first_of(store: &Store, run: &Run, limits: &ModelLimits) -> Result<Option<First>, TaskError> {
    let Some(name) = &run.model else {
        return Ok(None);
    };
    let (digest, file) = file(store, name)?;
    let known = weights(&file, limits)?;
    if known.is_empty() {
        let says = format!("the model `{name}` has no weights that are learnt");
        return Err(TaskError::invalid(says).with_field("model"));
    }
    let arrays: Vec<Array> = known
        .into_iter()
        .map(|weight| Array {
            name: weight.name,
            shape: weight.shape,
            values: weight.values,
        })
        .collect();
    let frames = wire::frames_of(&arrays)?;
    Ok(Some(First { digest, frames }))
}

impl Record {
    /// Remembers with which file it begins: with that one it goes on, and as that one it ends.
    ///
    /// # Errors
    /// `unavailable` when it has begun with another one.
    pub(super) fn begins_with(&mut self, first: Option<&First>) -> Result<(), TaskError> {
        let (Some(name), Some(first)) = (&self.run.model, first) else {
            return Ok(());
        };
        is_the_same(name, self.began_with, first.digest)?;
        self.began_with = Some(first.digest);
        Ok(())
    }
}

/// Whether a run that began with one file finds it under that name.
fn is_the_same(name: &str, began_with: Option<Digest>, found: Digest) -> Result<(), TaskError> {
    match began_with.filter(|began_with| *began_with != found) {
        None => Ok(()),
        Some(began_with) => Err(TaskError::unavailable(format!(
            "the run began with another model than `{name}` is by now: with {}",
            began_with.short()
        ))
        .with_field("model")
        .with_hint(format!(
            "`karman model add {name}` with the file of before; `karman model list` shows digests"
        ))),
    }
}

/// The model that a run began with, with the weights that it has made so far, as an ONNX file.
///
/// # Errors
/// `invalid` when there is no such run, or it did not begin with a model; `unavailable` when it has not begun, or the node has another
/// model of that name by now.
pub fn stored_onnx(store: &Store, run: &str, limits: &ModelLimits) -> Result<Vec<u8>, TaskError> {
    let record = Record::read(store, run)?.ok_or_else(|| super::record::unknown_run(run))?;
    let name = record.run.model.as_ref().ok_or_else(|| {
        TaskError::invalid(format!(
            "`{run}` did not begin with a model, so there is no ONNX file of it"
        ))
        .with_field("model")
        .with_hint("`karman fed export` without --onnx writes its arrays as safetensors")
    })?;
    let (digest, file) = file(store, name)?;
    is_the_same(name, record.began_with, digest)?;
    let made = record.model()?;
    let mut rest = &made.numbers[..];
    let mut learnt = Vec::new();
    for array in made.layout.arrays() {
        let count = array.shape.elements().unwrap_or(u64::MAX) as usize;
        let (values, more) = rest
            .split_at_checked(count)
            .ok_or_else(|| TaskError::internal("a model is shorter than its layout"))?;
        rest = more;
        learnt.push(Weight {
            name: array.name.clone(),
            shape: array.shape.dims().to_vec(),
            values: values.to_vec(),
        });
    }
    with_weights(&file, &learnt, limits).map_err(TaskError::from)
}

fn file(store: &Store, name: &str) -> Result<(Digest, Bytes), TaskError> {
    let model = store.models().get(name)?;
    let model = model.ok_or_else(|| {
        TaskError::unavailable(format!("this node has no model `{name}`"))
            .with_field("model")
            .with_hint(format!("karman model add {name} FILE.onnx"))
    })?;
    let file = store.blobs().read(&model.digest)?;
    Ok((model.digest, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_store::ModelInfo;
    use karman_types::ErrorKind;
    use std::path::Path;

    fn read(name: &str) -> Vec<u8> {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/flood");
        std::fs::read(plugin.join(name)).unwrap()
    }

    #[test]
    fn a_run_goes_on_with_the_file_that_it_began_with() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let add = |file: &str| {
            let added = store
                .models()
                .add("flood-s", &read(file), None, ModelInfo::default());
            added.unwrap();
        };
        let run = Run::from_toml(std::str::from_utf8(&read("water.toml")).unwrap()).unwrap();
        let (name, limits) = (run.name.clone(), ModelLimits::default());
        let begins = |run: &Run| first_of(&store, run, &limits).unwrap();

        add("models/flood-s.onnx");
        let mut record = Record::new(run);
        let first = begins(&record.run);
        record.begins_with(first.as_ref()).unwrap();
        record.write(&store).unwrap();
        let not_yet = stored_onnx(&store, &name, &limits).unwrap_err();
        assert!(not_yet.message.contains("no model yet"), "{not_yet}");

        add("models/flood-l.onnx");
        let mut again = Record::read(&store, &name).unwrap().unwrap();
        let other = begins(&again.run);
        for refused in [
            again.begins_with(other.as_ref()).unwrap_err(),
            stored_onnx(&store, &name, &limits).unwrap_err(),
        ] {
            assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
            assert_eq!(refused.field.as_deref(), Some("model"), "{refused}");
        }
        add("models/flood-s.onnx");
        again.begins_with(first.as_ref()).unwrap();
    }
}
