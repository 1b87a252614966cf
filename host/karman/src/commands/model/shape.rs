use crate::error::Worded;
use clap::Args;
use karman_infer::{InputShape, ModelLimits, with_shapes};
use karman_types::TaskError;

/// The shapes that a model's inputs are to have.
#[derive(Args, Debug)]
pub(super) struct Shapes {
    /// The shape of an input, `_` for a dimension that stays as it is: x=_,3,48,320; given again for other inputs
    #[arg(long = "shape", value_name = "INPUT=SIZES", value_parser = shape)]
    given: Vec<InputShape>,
}

impl Shapes {
    /// The file of the model with these dimensions closed; the same file where none is given.
    pub(super) fn close(&self, file: Vec<u8>, limits: &ModelLimits) -> Result<Vec<u8>, TaskError> {
        if self.given.is_empty() {
            return Ok(file);
        }
        with_shapes(&file, &self.given, limits).map_err(Worded::worded)
    }
}

fn shape(text: &str) -> Result<InputShape, String> {
    let (input, sizes) = text
        .rsplit_once('=')
        .filter(|(input, _)| !input.is_empty())
        .ok_or("it is an input and its sizes, such as x=_,3,48,320")?;
    let size = |text: &str| match (text, text.parse()) {
        ("_", _) => Ok(None),
        (_, Ok(size @ 1..)) => Ok(Some(size)),
        _ => Err(format!("`{text}` is no size: give a number from 1, or `_`")),
    };
    let dims = sizes.split(',').map(|text| size(text.trim()));
    Ok(InputShape {
        input: input.to_owned(),
        dims: dims.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_an_input_and_its_sizes() {
        let read = |text: &str| shape(text).map(|shape| (shape.input, shape.dims));
        let sizes = vec![None, Some(3), Some(48)];
        assert_eq!(read("x=_,3,48"), Ok(("x".into(), sizes.clone())));
        assert_eq!(read("a=b=_, 3, 48"), Ok(("a=b".into(), sizes)));
        for text in ["x", "=3", "x=", "x=3,,3", "x=0", "x=-1", "x=4294967296", "x=N,3"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
