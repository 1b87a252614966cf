//! Several requests as one run.

use crate::{Dim, InferError, TensorInfo};
use karman_tensor::{ElementType, Shape, Tensor};

/// The named tensors of one request or answer.
pub type Named = Vec<(String, Tensor)>;

/// Whether requests to a model that takes and gives these can be joined: the first dimension of all of them is open.
pub fn can_batch(takes: &[TensorInfo], gives: &[TensorInfo]) -> bool {
    let open = |info: &TensorInfo| {
        let dims = info.dims.as_deref().unwrap_or_default();
        matches!(dims.first(), Some(Dim::Any(_)))
    };
    !takes.is_empty() && takes.iter().chain(gives).all(open)
}

/// Several requests as one: what the model is run on, and which part of its answer is whose.
#[derive(Clone, Debug)]
pub struct Joined {
    inputs: Named,
    sizes: Vec<u32>,
}

impl Joined {
    /// Joins requests to a model that takes these along their first dimension. Nothing where there is none, or where they do not fit
    /// together: other names, types, or sizes of a further dimension.
    pub fn of(takes: &[TensorInfo], requests: &[Named]) -> Option<Self> {
        let sizes: Option<Vec<u32>> = requests.iter().map(items).collect();
        Some(Self {
            inputs: join(takes, requests)?,
            sizes: sizes?,
        })
    }

    /// The inputs of all, in order.
    pub const fn inputs(&self) -> &Named {
        &self.inputs
    }

    /// The answer of each, in order, out of that to all.
    ///
    /// # Errors
    /// [`InferError::Apart`] when the first dimension of an output is not that of the batch.
    pub fn apart(&self, answer: &Named) -> Result<Vec<Named>, InferError> {
        let all: u32 = self.sizes.iter().sum();
        let mut starts = self.sizes.iter().scan(0u32, |start, size| {
            let here = *start;
            *start += size;
            Some((here, *size))
        });
        starts.try_fold(Vec::new(), |mut out, (start, size)| {
            let of_one = answer.iter().map(|(name, tensor)| {
                let part = part(tensor, all, start, size).ok_or_else(|| InferError::Apart {
                    output: name.clone(),
                    shape: tensor.shape().to_string(),
                    items: all,
                })?;
                Ok((name.clone(), part))
            });
            out.push(of_one.collect::<Result<_, InferError>>()?);
            Ok(out)
        })
    }
}

/// The first output in which two answers are further apart than rounding explains, and by which share of its largest magnitude. Numbers
/// of f32 and f64 may be 1e-5 apart, of f16 0.002, of bf16 0.02; all others are to be equal.
pub fn differs(one: &Named, other: &Named) -> Option<(String, f64)> {
    let missing = one.get(other.len()).or_else(|| other.get(one.len()));
    if let Some((name, _)) = missing {
        return Some((name.clone(), f64::INFINITY));
    }
    one.iter().zip(other).find_map(|((name, a), (other, b))| {
        let apart = match name == other {
            true => apart_by(a, b),
            false => f64::INFINITY,
        };
        (apart > rounding(a.element())).then(|| (name.clone(), apart))
    })
}

const fn rounding(element: ElementType) -> f64 {
    match element {
        ElementType::F16 => 2e-3,
        ElementType::Bf16 => 2e-2,
        _ => 1e-5,
    }
}

fn apart_by(one: &Tensor, other: &Tensor) -> f64 {
    if one == other {
        return 0.0;
    }
    if one.shape() != other.shape() || one.element() != other.element() {
        return f64::INFINITY;
    }
    let (Ok(one), Ok(other)) = (one.to_float(ElementType::F64), other.to_float(ElementType::F64)) else {
        return f64::INFINITY;
    };
    let (Ok(one), Ok(other)) = (one.view::<f64>(), other.view::<f64>()) else {
        return f64::INFINITY;
    };
    let mut most: f64 = 0.0;
    for (a, b) in one.iter().zip(other) {
        let is_same = a == b || (a.is_nan() && b.is_nan());
        let apart = if is_same { 0.0 } else { (a - b).abs() };
        most = if apart.is_nan() {
            f64::INFINITY
        } else {
            most.max(apart)
        };
    }
    let finite = one.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if most > 0.0 { most / largest } else { 0.0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn takes() -> Vec<TensorInfo> {
        let info = |name: &str, dims: Vec<Dim>| TensorInfo {
            name: name.into(),
            element: ElementType::F32,
            dims: Some(dims),
        };
        let any = || Dim::Any("N".into());
        vec![info("a", vec![any(), Dim::Fixed(2)]), info("b", vec![any()])]
    }

    fn request(values: &[f32]) -> Named {
        let items = values.len() as u32;
        let pairs: Vec<f32> = values.iter().flat_map(|value| [*value, -value]).collect();
        vec![
            ("a".into(), Tensor::from_slice([items, 2], &pairs).unwrap()),
            ("b".into(), Tensor::from_slice([items], values).unwrap()),
        ]
    }

    proptest! {
        /// Who gives back what it got gives each its own.
        #[test]
        fn what_is_joined_comes_apart_as_it_was(
            requests in prop::collection::vec(prop::collection::vec(-9f32..9.0, 1..4), 1..6),
        ) {
            let requests: Vec<Named> = requests.iter().map(|values| request(values)).collect();
            let joined = Joined::of(&takes(), &requests).unwrap();
            let items: usize = requests.iter().map(|request| request[1].1.len()).sum();
            prop_assert_eq!(joined.inputs()[1].1.len(), items);
            prop_assert_eq!(joined.apart(joined.inputs()).unwrap(), requests);
        }
    }

    #[test]
    fn what_does_not_fit_together_is_not_joined() {
        let mut other = request(&[1.0]);
        other[0].0 = "c".into();
        assert!(Joined::of(&takes(), &[request(&[1.0]), other]).is_none());
        let mut longer = request(&[1.0]);
        longer[0].1 = Tensor::from_slice([1, 3], &[0f32; 3]).unwrap();
        assert!(Joined::of(&takes(), &[request(&[1.0]), longer]).is_none());
        assert!(Joined::of(&takes(), &[]).is_none());
    }

    #[test]
    fn an_output_that_is_not_one_for_each_is_named() {
        let joined = Joined::of(&takes(), &[request(&[1.0]), request(&[2.0])]).unwrap();
        let sum = vec![("sum".to_owned(), Tensor::from_slice([1], &[3f32]).unwrap())];
        let error = joined.apart(&sum).unwrap_err().to_string();
        assert!(error.contains("`sum`") && error.contains('2'), "{error}");
    }

    #[test]
    fn answers_are_the_same_within_rounding() {
        let of = |values: &[f32]| vec![("y".to_owned(), Tensor::from_slice([3], values).unwrap())];
        let one = of(&[100.0, 0.0, f32::NAN]);
        assert_eq!(differs(&one, &one.clone()), None);
        assert_eq!(differs(&one, &of(&[100.0, 0.0005, f32::NAN])), None);
        let (name, by) = differs(&one, &of(&[100.0, 1.0, f32::NAN])).unwrap();
        assert!(name == "y" && (by - 0.01).abs() < 1e-9, "{name} {by}");
        for other in [
            of(&[100.0, 0.0, 0.0]),
            of(&[100.0, f32::INFINITY, f32::NAN]),
            vec![],
        ] {
            assert_eq!(differs(&one, &other), Some(("y".into(), f64::INFINITY)));
        }
        let whole = |value: i64| vec![("y".to_owned(), Tensor::from_slice([1], &[value]).unwrap())];
        assert_eq!(differs(&whole(3), &whole(3)), None);
        assert!(differs(&whole(3), &whole(4)).is_some());
    }
}
