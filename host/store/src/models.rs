use crate::tables::{MODELS, get, list, put};
use crate::{Store, StoreError, exits, limits};
use karman_types::{Digest, is_of_a_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is known of a model besides its bytes: accuracy, input shape, licence, as its author gave them.
pub type ModelInfo = BTreeMap<String, serde_json::Value>;

/// A trained network that this node holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Model {
    /// By which tasks load it.
    #[serde(skip)]
    pub name: String,
    /// The digest of its file, under which [`Blobs`](crate::Blobs) has it.
    pub digest: Digest,
    /// The length of its file in bytes.
    pub bytes: u64,
    /// What else is known of it.
    pub info: ModelInfo,
}

/// The models that a node holds, by name.
#[derive(Clone, Copy, Debug)]
pub struct Models<'a>(pub(crate) &'a Store);

/// The longest name of a model.
const MAX_NAME: usize = 128;
/// The most bytes of what is known of one model.
const MAX_INFO: u64 = 64 << 10;

impl Models<'_> {
    /// Adds a model, or replaces the one of this name.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] when the bytes are not those of `expected`, those of [`check_model_name`],
    /// [`StoreError::Limit`] when the bytes or the info (64 KiB) are too many, [`StoreError::Exits`].
    pub fn add(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
        info: ModelInfo,
    ) -> Result<Model, StoreError> {
        check_model_name(name)?;
        let text = serde_json::to_vec(&info).map_or(usize::MAX, |text| text.len());
        limits::at_most("model info", text, MAX_INFO)?;
        exits::check(name, &info)?;
        let found = Digest::of(bytes);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(StoreError::Mismatch {
                name: name.into(),
                expected,
                found,
            });
        }
        self.0.blobs().add(bytes, |txn, digest| {
            let mut table = txn.open_table(MODELS)?;
            let replaced: Option<Model> = get(&table, MODELS, name)?;
            let model = Model {
                name: name.into(),
                digest,
                bytes: bytes.len() as u64,
                info,
            };
            put(&mut table, MODELS, name, &model)?;
            Ok((model, replaced.map(|model| model.digest).into_iter().collect()))
        })
    }

    /// The model of this name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn get(&self, name: &str) -> Result<Option<Model>, StoreError> {
        let table = self.0.tables().read()?.open_table(MODELS)?;
        let model = get::<Model>(&table, MODELS, name)?;
        Ok(model.map(|model| named((name.into(), model))))
    }

    /// All models, by name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<Model>, StoreError> {
        let table = self.0.tables().read()?.open_table(MODELS)?;
        Ok(list(&table, MODELS)?.into_iter().map(named).collect())
    }

    /// Removes a model, and its file unless another name has the same.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when there is none of this name.
    pub fn remove(&self, name: &str) -> Result<Model, StoreError> {
        self.0.blobs().release(|txn| {
            let mut table = txn.open_table(MODELS)?;
            let model: Model = get(&table, MODELS, name)?.ok_or_else(|| StoreError::Unknown {
                what: "model",
                name: name.into(),
            })?;
            table.remove(name)?;
            let digest = model.digest;
            Ok((named((name.into(), model)), vec![digest]))
        })
    }
}

/// Whether a model may be added under this name.
///
/// # Errors
/// [`StoreError::ModelName`] where it is not 1 to 128 ASCII letters, digits and `-_./:@#+~`.
pub fn check_model_name(name: &str) -> Result<(), StoreError> {
    match (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_of_a_name) {
        true => Ok(()),
        false => Err(StoreError::ModelName {
            // A hostile name can be megabytes long.
            text: name.chars().take(64).collect(),
            most: MAX_NAME,
        }),
    }
}

fn named((name, model): (String, Model)) -> Model {
    Model { name, ..model }
}
