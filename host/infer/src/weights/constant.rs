//! The numbers of one constant of a file.

use super::Weight;
use crate::InferError;
use crate::screen::printable;
use crate::wire::{Fields, Value};

/// The codes of `f32` and of whole numbers of 8, 32 and 64 bits in an ONNX file.
pub(super) const FLOAT: u64 = 1;
const UNSIGNED_BYTE: u64 = 2;
const BYTE: u64 = 3;
const INT: u64 = 6;
const LONG: u64 = 7;

/// The numbers of a constant; none where they are not `f32`.
pub(crate) fn constant(tensor: &[u8]) -> Result<Option<Weight>, InferError> {
    let constant = Constant::read(tensor)?;
    match constant.code {
        FLOAT => constant.weight().map(Some),
        _ => Ok(None),
    }
}

/// The whole numbers of a constant; none where it has others.
pub(crate) fn whole_numbers(tensor: &[u8]) -> Result<Option<Vec<i64>>, InferError> {
    let constant = Constant::read(tensor)?;
    let (words, pairs) = (
        constant.numbers.as_chunks::<4>().0,
        constant.numbers.as_chunks::<8>().0,
    );
    let mut numbers: Vec<i64> = match constant.code {
        INT => words
            .iter()
            .map(|word| i32::from_le_bytes(*word).into())
            .collect(),
        LONG => pairs.iter().map(|pair| i64::from_le_bytes(*pair)).collect(),
        _ => return Ok(None),
    };
    // Where they are not raw, each code has a field of its own.
    let own = if constant.code == INT { 5 } else { 7 };
    for field in Fields(tensor) {
        match field? {
            (field, varints) if field == own => numbers.extend(varints.varints()?),
            _ => {}
        }
    }
    match numbers.len() as u64 == constant.elements() {
        true => Ok(Some(numbers)),
        false => Err(InferError::malformed(format!(
            "`{}` does not hold its numbers in one piece",
            printable(constant.name)
        ))),
    }
}

/// Whole numbers of 8 bits.
pub(crate) struct Bytes8 {
    pub(crate) dims: Vec<u32>,
    /// Unsigned ones are moved down by 128.
    pub(crate) values: Vec<i8>,
    pub(crate) unsigned: bool,
}

/// The whole numbers of 8 bits of a constant; none where it has others.
pub(crate) fn bytes8(tensor: &[u8]) -> Result<Option<Bytes8>, InferError> {
    let constant = Constant::read(tensor)?;
    let unsigned = match constant.code {
        UNSIGNED_BYTE => true,
        BYTE => false,
        _ => return Ok(None),
    };
    let mut bytes = constant.numbers.to_vec();
    // Where they are not raw, they stand in the field of the longer ones.
    for field in Fields(tensor) {
        if let (5, varints) = field? {
            bytes.extend(varints.varints()?.into_iter().map(|number| number as u8));
        }
    }
    let dims: Result<Vec<u32>, _> = constant.dims.iter().map(|dim| u32::try_from(*dim)).collect();
    let Some(dims) = dims.ok().filter(|_| bytes.len() as u64 == constant.elements()) else {
        return Err(InferError::malformed(format!(
            "`{}` does not hold its numbers in one piece",
            printable(constant.name)
        )));
    };
    let flip = if unsigned { 0x80 } else { 0 };
    Ok(Some(Bytes8 {
        dims,
        values: bytes.into_iter().map(|byte| (byte ^ flip) as i8).collect(),
        unsigned,
    }))
}

/// A constant as it stands in the file.
pub(super) struct Constant<'a> {
    pub(super) name: &'a str,
    pub(super) code: u64,
    dims: Vec<i64>,
    /// Its numbers: four bytes each, little-endian.
    numbers: &'a [u8],
}

impl<'a> Constant<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, InferError> {
        let mut constant = Self {
            name: "",
            code: 0,
            dims: Vec::new(),
            numbers: &[],
        };
        for field in Fields(body) {
            match field? {
                (1, dims) => constant.dims.extend(dims.varints()?),
                (2, code) => constant.code = code.varint()?,
                (8, name) => constant.name = name.text()?,
                // Packed numbers lie there as raw ones do. Those that are written one by one are left to `weight` to refuse.
                (4, Value::Bytes(numbers)) | (9, Value::Bytes(numbers)) => constant.numbers = numbers,
                _ => {}
            }
        }
        Ok(constant)
    }

    pub(super) fn elements(&self) -> u64 {
        // The screen has multiplied them in 64 bits.
        self.dims.iter().map(|dim| dim.unsigned_abs()).product()
    }

    pub(super) fn weight(&self) -> Result<Weight, InferError> {
        let wrong = |why: &str| {
            let name = printable(self.name);
            InferError::malformed(format!("`{name}` {why}"))
        };
        let shape: Result<Vec<u32>, _> = self.dims.iter().map(|dim| u32::try_from(*dim)).collect();
        let (words, rest) = self.numbers.as_chunks::<4>();
        if !rest.is_empty() || words.len() as u64 != self.elements() {
            return Err(wrong("does not hold its numbers in one piece"));
        }
        Ok(Weight {
            name: self.name.to_owned(),
            shape: shape.map_err(|_| wrong("has a dimension that is too large"))?,
            values: words.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    #[test]
    fn bytes_are_read_signed_however_they_stand_there() {
        let tensor = |code: i64, write: &dyn Fn(&mut Writer)| {
            let mut tensor = Writer::default();
            tensor.number(1, 2).number(2, code);
            write(&mut tensor);
            let read = bytes8(&tensor.0)?;
            Ok::<_, InferError>(read.map(|read| (read.values, read.unsigned)))
        };
        let unsigned = Ok(Some((vec![0, 127], true)));
        assert_eq!(tensor(2, &|tensor| _ = tensor.bytes(9, [128u8, 255])), unsigned);
        assert_eq!(
            tensor(2, &|tensor| _ = tensor.number(5, 128).number(5, 255)),
            unsigned
        );
        let signed = Ok(Some((vec![3, -1], false)));
        assert_eq!(tensor(3, &|tensor| _ = tensor.bytes(9, [3u8, 255])), signed);
        assert_eq!(tensor(3, &|tensor| _ = tensor.number(5, 3).number(5, -1)), signed);
        assert_eq!(tensor(1, &|tensor| _ = tensor.bytes(9, [3u8, 255])), Ok(None));
        assert!(tensor(3, &|tensor| _ = tensor.bytes(9, [3u8])).is_err());
    }

    #[test]
    fn whole_numbers_are_read_however_they_stand_there() {
        let tensor = |code: i64, write: &dyn Fn(&mut Writer)| {
            let mut tensor = Writer::default();
            tensor.number(1, 2).number(2, code);
            write(&mut tensor);
            whole_numbers(&tensor.0)
        };
        let long: Vec<u8> = [3i64, -1]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let int: Vec<u8> = [3i32, -1]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let both = Ok(Some(vec![3, -1]));
        assert_eq!(tensor(7, &|tensor| _ = tensor.bytes(9, &long)), both);
        assert_eq!(tensor(6, &|tensor| _ = tensor.bytes(9, &int)), both);
        assert_eq!(tensor(7, &|tensor| _ = tensor.number(7, 3).number(7, -1)), both);
        assert_eq!(tensor(6, &|tensor| _ = tensor.number(5, 3).number(5, -1)), both);
        assert_eq!(tensor(1, &|tensor| _ = tensor.bytes(9, &int)), Ok(None));
        assert!(tensor(7, &|tensor| _ = tensor.bytes(9, &int)).is_err());
    }
}
