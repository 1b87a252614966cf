use super::{Adapter, LoraError, Weighted, florist, segment_mean};
use crate::{Array, Layout, LayoutError, LowRank, LowRankRule, Run, StartError};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is added to the name of a matrix for those of its factors.
const A: &str = ".lora-a";
const B: &str = ".lora-b";
/// The most names of arrays that an error lists.
const MOST_NAMED: usize = 20;

/// The adapters that a client trains in place of the model: for each matrix `NAME`, in the order of the description, the arrays
/// `NAME.lora-a` (`rank × columns`) and `NAME.lora-b` (`rows × rank`). What they add to the matrix is `B · A`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    /// The factors.
    pub layout: Layout,
    /// Their numbers, in one row.
    pub numbers: Arc<[f32]>,
}

/// What a run with `[low-rank]` keeps of its matrices.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Adapting {
    matrices: Vec<Matrix>,
    /// With `prelort`. With `florist` there is nothing to keep: each round begins with new adapters of the model as it is.
    nested: Option<Nested>,
}

/// What a round of adapters comes to.
#[derive(Debug)]
pub(crate) struct Stepped {
    /// The next version.
    pub(crate) model: Vec<f32>,
    /// What is kept for the round after it.
    pub(crate) next: Adapting,
    /// The greatest rank by which a matrix has changed.
    pub(crate) rank: usize,
}

/// A matrix with adapters, and where it begins in the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Matrix {
    name: String,
    rows: usize,
    columns: usize,
    at: usize,
}

/// Adapters that are trained on from round to round.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Nested {
    /// The matrices as they were before the first round, one after the other.
    #[serde(with = "crate::floats")]
    base: Vec<f32>,
    /// Those of the largest rank, one for each matrix.
    adapters: Vec<Adapter>,
}

impl Adapting {
    /// What a run keeps before its first round; nothing where it trains whole models.
    ///
    /// # Errors
    /// [`StartError::NotAdapted`] for an array that is not there, is no matrix, or too small for the largest rank.
    pub(crate) fn new(run: &Run, layout: &Layout, model: &[f32]) -> Result<Option<Self>, StartError> {
        let Some(settings) = &run.low_rank else {
            return Ok(None);
        };
        let mut adapting = Self {
            matrices: matrices(settings, layout)?,
            nested: None,
        };
        if settings.rule == LowRankRule::Prelort {
            let base = adapting.matrices.iter().flat_map(|matrix| matrix.of(model));
            let base = base.copied().collect();
            let largest = settings.largest() as usize;
            // Everybody's first ranks are the same: only so are they segments of one adapter.
            let adapters = adapting.parts(largest, &adapting.fresh(largest, run.seed));
            let adapters = adapters.map_err(|error| refused(&settings.arrays[0], &error))?;
            adapting.nested = Some(Nested { base, adapters });
        }
        Ok(Some(adapting))
    }

    /// Whether what a checkpoint has is of this run.
    ///
    /// # Errors
    /// [`StartError::Adapters`] when it is not, and those of [`Adapting::new`].
    pub(crate) fn check(kept: Option<&Self>, run: &Run, layout: &Layout) -> Result<(), StartError> {
        let fits = match (&run.low_rank, kept) {
            (None, None) => true,
            (Some(settings), Some(kept)) => {
                kept.matrices == matrices(settings, layout)? && kept.has_adapters_for(settings)
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(StartError::Adapters) }
    }

    fn has_adapters_for(&self, settings: &LowRank) -> bool {
        let Some(nested) = &self.nested else {
            return settings.rule == LowRankRule::Florist;
        };
        let largest = settings.largest() as usize;
        let shapes = self.matrices.iter().map(|matrix| (matrix.rows, matrix.columns));
        let length: usize = self.matrices.iter().map(Matrix::length).sum();
        settings.rule == LowRankRule::Prelort
            && nested.base.len() == length
            && nested.adapters.iter().map(Adapter::shape).eq(shapes)
            && nested.adapters.iter().all(|adapter| adapter.rank() == largest)
    }

    /// The numbers of both factors of all matrices at this rank.
    pub(crate) fn numbers(&self, rank: usize) -> usize {
        let each = self.matrices.iter();
        each.map(|matrix| rank * (matrix.rows + matrix.columns)).sum()
    }

    /// The arrays of the factors at this rank.
    ///
    /// # Errors
    /// When they hold more numbers than a model may, which the largest rank of a run does not.
    pub(crate) fn layout(&self, rank: usize) -> Result<Layout, LayoutError> {
        factors(&self.matrices, rank)
    }

    /// What a client of this rank trains from. With `florist` its seed draws it.
    pub(crate) fn start(&self, rank: usize, seed: u64) -> Vec<f32> {
        let Some(nested) = &self.nested else {
            return self.fresh(rank, seed);
        };
        let mut numbers = Vec::with_capacity(self.numbers(rank));
        for adapter in &nested.adapters {
            let prefix = adapter.prefix(rank);
            numbers.extend_from_slice(prefix.a());
            numbers.extend_from_slice(prefix.b());
        }
        numbers
    }

    /// The model that adapters are trained on top of: the version itself, without what nested ones add to it.
    pub(crate) fn beneath(&self, model: &Arc<[f32]>) -> Arc<[f32]> {
        let Some(nested) = &self.nested else {
            return model.clone();
        };
        let mut beneath = model.to_vec();
        let mut rest = &nested.base[..];
        for matrix in &self.matrices {
            let (base, more) = rest.split_at(matrix.length());
            matrix.of_mut(&mut beneath).copy_from_slice(base);
            rest = more;
        }
        beneath.into()
    }

    /// The adapters after a training, each with the name of its matrix: what it started from, and what that has changed.
    ///
    /// # Errors
    /// When these are not as many numbers as adapters of this rank have, or they are not finite.
    pub(crate) fn trained(
        &self,
        rank: usize,
        seed: u64,
        changes: &[f32],
    ) -> Result<Vec<(&str, Adapter)>, LoraError> {
        let start = self.start(rank, seed);
        let numbers: Vec<f32> = start.iter().zip(changes).map(|(start, by)| start + by).collect();
        let names = self.matrices.iter().map(|matrix| matrix.name.as_str());
        Ok(names.zip(self.parts(rank, &numbers)?).collect())
    }

    /// What comes of adapters with what they count, one for each matrix in the order of these.
    ///
    /// # Errors
    /// When the adapters cannot be made one.
    pub(crate) fn step(
        &self,
        settings: &LowRank,
        model: &[f32],
        updates: &[(f64, &[Adapter])],
    ) -> Result<Stepped, LoraError> {
        let (mut model, mut next) = (model.to_vec(), self.clone());
        let (mut rank, mut from) = (0, 0);
        for (place, matrix) in self.matrices.iter().enumerate() {
            let weighted = updates.iter().filter_map(|(weight, adapters)| {
                let (adapter, weight) = (adapters.get(place)?, *weight);
                Some(Weighted { adapter, weight })
            });
            let weighted: Vec<Weighted<'_>> = weighted.collect();
            let numbers = matrix.of_mut(&mut model);
            match &mut next.nested {
                None => {
                    let pair = florist(&weighted, settings.threshold())?.adapter();
                    add(numbers, &pair.product());
                    rank = rank.max(pair.rank());
                }
                Some(nested) => {
                    let levels: Vec<usize> = settings.ranks.iter().map(|rank| *rank as usize).collect();
                    let mean = segment_mean(&weighted, &levels)?;
                    rank = rank.max(mean.rank());
                    let adapter = over(&mean, &nested.adapters[place])?;
                    numbers.copy_from_slice(&nested.base[from..from + matrix.length()]);
                    add(numbers, &adapter.product());
                    nested.adapters[place] = adapter;
                }
            }
            from += matrix.length();
        }
        Ok(Stepped { model, next, rank })
    }

    /// New adapters: B is zero, so that they add nothing yet, and each row of A is about as long as 1.
    fn fresh(&self, rank: usize, seed: u64) -> Vec<f32> {
        let mut random = Rng::with_seed(seed);
        let mut numbers = Vec::with_capacity(self.numbers(rank));
        for matrix in &self.matrices {
            let width = (3.0 / matrix.columns as f32).sqrt();
            numbers.extend((0..rank * matrix.columns).map(|_| width * (2.0 * random.f32() - 1.0)));
            numbers.resize(numbers.len() + matrix.rows * rank, 0.0);
        }
        numbers
    }

    /// The adapter of each matrix, from the numbers of all in one row.
    fn parts(&self, rank: usize, numbers: &[f32]) -> Result<Vec<Adapter>, LoraError> {
        let mut rest = numbers;
        let mut next = |count: usize| {
            let (numbers, more) = rest.split_at(count.min(rest.len()));
            rest = more;
            numbers.to_vec()
        };
        let each = self.matrices.iter().map(|matrix| {
            let a = next(rank * matrix.columns);
            let b = next(matrix.rows * rank);
            Adapter::new(matrix.rows, matrix.columns, rank, b, a)
        });
        each.collect()
    }
}

impl Matrix {
    /// The array of this name, if it is a matrix in which there is room for this rank.
    fn find(name: &str, layout: &Layout, largest: usize) -> Result<Self, StartError> {
        let mut at = 0;
        for array in layout.arrays() {
            if array.name != name {
                at += array.shape.elements().unwrap_or(0) as usize;
                continue;
            }
            let [rows, columns] = array.shape.dims() else {
                let why = format!("its shape is {}, and adapters are of matrices", array.shape);
                return Err(refused(name, &why));
            };
            let (rows, columns) = (*rows as usize, *columns as usize);
            if rows.min(columns) < largest {
                let why = format!(
                    "its shape is {}, and adapters of rank {largest} would be more than it",
                    array.shape
                );
                return Err(refused(name, &why));
            }
            return Ok(Self {
                name: name.to_owned(),
                rows,
                columns,
                at,
            });
        }
        let names = layout.arrays().iter().take(MOST_NAMED);
        let names: Vec<String> = names.map(|array| format!("`{}`", array.name)).collect();
        let why = format!("the model has no such array; it has {}", names.join(", "));
        Err(refused(name, &why))
    }

    fn length(&self) -> usize {
        self.rows * self.columns
    }

    /// Its numbers in a model.
    fn of<'a>(&self, model: &'a [f32]) -> &'a [f32] {
        &model[self.at..self.at + self.length()]
    }

    fn of_mut<'a>(&self, model: &'a mut [f32]) -> &'a mut [f32] {
        let length = self.length();
        &mut model[self.at..self.at + length]
    }
}

/// The matrices that a description names, as they are in this model.
fn matrices(settings: &LowRank, layout: &Layout) -> Result<Vec<Matrix>, StartError> {
    let largest = settings.largest() as usize;
    let found = settings
        .arrays
        .iter()
        .map(|name| Matrix::find(name, layout, largest));
    let found: Vec<Matrix> = found.collect::<Result<_, _>>()?;
    match factors(&found, largest) {
        Ok(_) => Ok(found),
        Err(error) => Err(refused(&settings.arrays[0], &error)),
    }
}

fn factors(matrices: &[Matrix], rank: usize) -> Result<Layout, LayoutError> {
    let arrays = matrices.iter().flat_map(|matrix| {
        let array = |factor: &str, rows: usize, columns: usize| Array {
            name: format!("{}{factor}", matrix.name),
            shape: [rows as u32, columns as u32].into(),
        };
        [array(A, rank, matrix.columns), array(B, matrix.rows, rank)]
    });
    Layout::new(arrays.collect())
}

fn refused(array: &str, why: &impl ToString) -> StartError {
    StartError::NotAdapted {
        array: array.to_owned(),
        why: why.to_string(),
    }
}

/// The first ranks of one, and the others of a longer one: in a round of clients with few ranks nobody has trained those.
fn over(first: &Adapter, longer: &Adapter) -> Result<Adapter, LoraError> {
    let ((rows, columns), rank, new) = (longer.shape(), longer.rank(), first.rank());
    let (mut b, mut a) = (longer.b().to_vec(), longer.a().to_vec());
    for (row, trained) in b.chunks_mut(rank).zip(first.b().chunks(new)) {
        row[..new].copy_from_slice(trained);
    }
    a[..new * columns].copy_from_slice(first.a());
    Adapter::new(rows, columns, rank, b, a)
}

fn add(numbers: &mut [f32], changes: &[f32]) {
    numbers
        .iter_mut()
        .zip(changes)
        .for_each(|(number, by)| *number += by);
}

#[cfg(test)]
mod tests;
