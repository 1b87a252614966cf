//! Reads protobuf without building anything from it, and writes it.

use crate::InferError;

/// The value of one field.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Fixed32(f32),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The content of a string, of bytes, or of a message.
    pub(crate) fn bytes(self) -> Result<&'a [u8], InferError> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(InferError::malformed("a number stands where a message should")),
        }
    }

    pub(crate) fn varint(self) -> Result<u64, InferError> {
        match self {
            Value::Varint(n) => Ok(n),
            _ => Err(InferError::malformed("a message stands where a number should")),
        }
    }

    /// A number of single precision.
    pub(crate) fn float(self) -> Result<f32, InferError> {
        match self {
            Value::Fixed32(number) => Ok(number),
            _ => Err(InferError::malformed(
                "something else stands where a number of 32 bits should",
            )),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, InferError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| InferError::malformed("a name is not UTF-8"))
    }

    /// How many numbers of `width` bytes stand here, one by one or packed.
    pub(crate) fn count_fixed(self, width: usize) -> u64 {
        match self {
            Value::Bytes(bytes) => (bytes.len() / width) as u64,
            _ => 1,
        }
    }

    /// How many varints stand here, one by one or packed: each ends with the only byte below 128.
    pub(crate) fn count_varints(self) -> u64 {
        match self {
            Value::Bytes(bytes) => bytes.iter().filter(|byte| **byte < 128).count() as u64,
            _ => 1,
        }
    }

    /// The varints themselves.
    pub(crate) fn varints(self) -> Result<Vec<i64>, InferError> {
        let Value::Bytes(mut rest) = self else {
            return Ok(vec![self.varint()? as i64]);
        };
        let mut out = Vec::new();
        while !rest.is_empty() {
            out.push(varint(&mut rest)? as i64);
        }
        Ok(out)
    }
}

/// The fields of one message, in the order of the file.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), InferError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), InferError> {
        let key = varint(&mut self.0)?;
        let field = u32::try_from(key >> 3)
            .ok()
            .filter(|field| *field != 0)
            .ok_or_else(|| InferError::malformed(format!("there is no field {}", key >> 3)))?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let len = varint(&mut self.0)?;
                Value::Bytes(self.take(len)?)
            }
            5 => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(self.take(4)?);
                Value::Fixed32(f32::from_le_bytes(bytes))
            }
            wire => return Err(InferError::malformed(format!("there is no wire type {wire}"))),
        };
        Ok((field, value))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], InferError> {
        let (taken, rest) = usize::try_from(len)
            .ok()
            .and_then(|len| self.0.split_at_checked(len))
            .ok_or_else(|| {
                InferError::malformed(format!(
                    "{len} bytes should follow where {} are left",
                    self.0.len()
                ))
            })?;
        self.0 = rest;
        Ok(taken)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, InferError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            return Err(InferError::malformed("it ends within a number"));
        };
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Ok(value);
        }
    }
    Err(InferError::malformed("a number is longer than 64 bits"))
}

/// Writes one message. The same calls give the same bytes.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, field: u32, value: i64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value as u64);
        self
    }

    /// A text, bytes, or a message that is written already.
    pub(crate) fn bytes(&mut self, field: u32, body: impl AsRef<[u8]>) -> &mut Self {
        let body = body.as_ref();
        self.varint(u64::from(field) << 3 | 2);
        self.varint(body.len() as u64);
        self.0.extend_from_slice(body);
        self
    }

    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) -> &mut Self {
        let mut body = Self::default();
        write(&mut body);
        self.bytes(field, body.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
