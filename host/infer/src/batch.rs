//! Several requests as one run.

use crate::{Dim, InferError, Model, TensorInfo};
use karman_tensor::{Shape, Tensor};

/// The named tensors of one request or answer.
pub type Named = Vec<(String, Tensor)>;

/// Whether requests to this model can be joined: the first dimension of all that it takes and gives is open.
pub fn is_batched(model: &dyn Model) -> bool {
    let open = |info: &TensorInfo| {
        let dims = info.dims.as_deref().unwrap_or_default();
        matches!(dims.first(), Some(Dim::Any(_)))
    };
    !model.inputs().is_empty() && model.inputs().iter().chain(model.outputs()).all(open)
}

/// Runs several requests at once and gives each its own answer, in order. Each may itself be a batch of any size. Requests to
/// a model whose first dimensions are fixed, and such that do not fit together otherwise (in a further dimension that is
/// open, say), run one by one.
///
/// # Errors
/// Those of [`Model::run`]: a request that does not fit fails all of them.
pub fn run_batch(model: &dyn Model, requests: Vec<Named>) -> Result<Vec<Named>, InferError> {
    let sizes: Option<Vec<u32>> = requests.iter().map(items).collect();
    let joined = (requests.len() > 1 && is_batched(model))
        .then(|| join(model.inputs(), &requests))
        .flatten();
    let (Some(sizes), Some(joined)) = (sizes, joined) else {
        return requests.into_iter().map(|request| model.run(request)).collect();
    };
    let answers = model.run(joined)?;
    let mut starts = sizes.iter().scan(0u32, |start, size| {
        let here = *start;
        *start += size;
        Some((here, *size))
    });
    let all = sizes.iter().sum();
    starts.try_fold(Vec::new(), |mut out, (start, size)| {
        let of_one = answers.iter().map(|(name, tensor)| {
            let part = part(tensor, all, start, size).ok_or_else(|| InferError::Run {
                backend: model.backend(),
                reason: format!(
                    "output `{name}` is {} where the batch is {all}: it cannot be told apart",
                    tensor.shape()
                ),
            })?;
            Ok((name.clone(), part))
        });
        out.push(of_one.collect::<Result<_, InferError>>()?);
        Ok(out)
    })
}

/// The size of a request: the first dimension that all its tensors share.
fn items(request: &Named) -> Option<u32> {
    let mut sizes = request
        .iter()
        .map(|(_, tensor)| tensor.shape().dims().first().copied());
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

fn join(takes: &[TensorInfo], requests: &[Named]) -> Option<Named> {
    takes
        .iter()
        .map(|info| {
            let parts: Option<Vec<&Tensor>> = requests
                .iter()
                .map(|request| match request.len() == takes.len() {
                    true => request
                        .iter()
                        .find(|(name, _)| *name == info.name)
                        .map(|(_, t)| t),
                    false => None,
                })
                .collect();
            let parts = parts?;
            let first = parts.first()?;
            let shape = first.shape();
            let rest = shape.dims().get(1..)?;
            let fit = |part: &&&Tensor| {
                part.element() == first.element() && part.shape().dims().get(1..) == Some(rest)
            };
            if parts.iter().filter(fit).count() < parts.len() {
                return None;
            }
            let size: u32 = parts
                .iter()
                .map(|part| part.shape().dims()[0])
                .try_fold(0u32, u32::checked_add)?;
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
            let shape = Shape::new(&[&[size], rest].concat()).ok()?;
            Some((
                info.name.clone(),
                Tensor::new(first.element(), shape, &bytes).ok()?,
            ))
        })
        .collect()
}

/// `size` items from `start` of a tensor that holds `all`.
fn part(tensor: &Tensor, all: u32, start: u32, size: u32) -> Option<Tensor> {
    let whole = tensor.shape();
    let (first, rest) = whole.dims().split_first()?;
    if *first != all || all == 0 {
        return None;
    }
    let each = tensor.bytes().len() / all as usize;
    let bytes = &tensor.bytes()[each * start as usize..each * (start + size) as usize];
    let shape = Shape::new(&[&[size], rest].concat()).ok()?;
    Tensor::new(tensor.element(), shape, bytes).ok()
}
