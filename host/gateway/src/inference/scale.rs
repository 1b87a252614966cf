//! What a `ModelInferRequest` takes once it is decoded, told from its bytes alone. They are read in the order and by the rules of their
//! decoder, and counted instead of kept: an element may take thirty times what it took on the way, an empty tensor three hundred times.

use super::messages::{InferParameter, InferTensor, RequestedOutput};
use super::weight::ELEMENT;
use bytes::Bytes;
use karman_types::TaskError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Before a message of gRPC stand whether it is compressed, and its length.
const HEAD: usize = 5;

/// The message of a call.
///
/// # Errors
/// `invalid` (field `body`) when something follows it: that would be read, too, and nobody has weighed it.
pub(super) fn message_of(call: &[u8]) -> Result<&[u8], TaskError> {
    // What is cut short is told of by who reads it.
    let Some(([_, length @ ..], rest)) = call.split_first_chunk::<HEAD>() else {
        return Ok(&[]);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    match rest.len().checked_sub(length) {
        None | Some(0) => Ok(rest),
        Some(more) => {
            let error = TaskError::invalid(format!("{more} bytes follow the one message of the call"));
            Err(error.with_field("body"))
        }
    }
}

/// The bytes that a `ModelInferRequest` takes once it is decoded, besides its own. Of one that does not read, what it takes until that is
/// found out.
pub fn weigh(message: &[u8]) -> u64 {
    let mut scale = Scale {
        rest: message,
        weight: 0,
    };
    while !scale.rest.is_empty() && scale.field(Scale::request).is_some() {}
    scale.weight
}

/// What is still to be read, and what the rest takes.
struct Scale<'a> {
    rest: &'a [u8],
    weight: u64,
}

/// Reads what follows the key of a field of some message; nothing where its decoder gives up.
type Field<'a> = fn(&mut Scale<'a>, u32, WireType) -> Option<()>;

impl<'a> Scale<'a> {
    fn request(&mut self, tag: u32, wire: WireType) -> Option<()> {
        match tag {
            4 => self.parameter(),
            5 => self.one_of::<InferTensor>(wire, Self::tensor),
            6 => self.one_of::<RequestedOutput>(wire, Self::output),
            7 => self.bytes(tag, wire),
            _ => self.skip(tag, wire),
        }
    }

    fn tensor(&mut self, tag: u32, wire: WireType) -> Option<()> {
        match tag {
            3 => self.numbers::<i64>(tag, wire, varints),
            4 => self.parameter(),
            5 if wire == WireType::LengthDelimited => self.within(Self::contents),
            _ => self.skip(tag, wire),
        }
    }

    fn contents(&mut self, tag: u32, wire: WireType) -> Option<()> {
        match tag {
            1 => self.numbers::<bool>(tag, wire, varints),
            2 | 4 => self.numbers::<i32>(tag, wire, varints),
            3 | 5 => self.numbers::<i64>(tag, wire, varints),
            6 => self.numbers::<f32>(tag, wire, |numbers| numbers.len().div_ceil(4)),
            7 => self.numbers::<f64>(tag, wire, |numbers| numbers.len().div_ceil(8)),
            8 => self.bytes(tag, wire),
            _ => self.skip(tag, wire),
        }
    }

    fn output(&mut self, tag: u32, wire: WireType) -> Option<()> {
        match tag {
            2 => self.parameter(),
            _ => self.skip(tag, wire),
        }
    }

    /// An entry of a map, which begins with its length whatever its key says of that. A table that grows is empty by half, and each text
    /// has an allocation of its own.
    fn parameter(&mut self) -> Option<()> {
        self.weight += 2 * grown::<(String, InferParameter)>();
        let length = self.length()?;
        self.rest = self.rest.get(length..)?;
        Some(())
    }

    /// An element whose bytes stay where they are.
    fn bytes(&mut self, tag: u32, wire: WireType) -> Option<()> {
        self.weight += grown::<Bytes>();
        self.skip(tag, wire)
    }

    /// Numbers, one by one or packed: a list of them, what is read of each element, and the tensor that it becomes.
    fn numbers<T>(&mut self, tag: u32, wire: WireType, count: fn(&[u8]) -> usize) -> Option<()> {
        let each = grown::<T>() + ELEMENT + size_of::<T>() as u64;
        if wire != WireType::LengthDelimited {
            self.weight += each;
            return self.skip(tag, wire);
        }
        let length = self.length()?;
        let (numbers, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        self.weight += count(numbers) as u64 * each;
        Some(())
    }

    /// One more message in a list.
    fn one_of<T>(&mut self, wire: WireType, field: Field<'a>) -> Option<()> {
        self.weight += grown::<T>();
        match wire {
            WireType::LengthDelimited => self.within(field),
            _ => None,
        }
    }

    /// A message within another. That its last field reaches beyond its end is found out when that has been read.
    fn within(&mut self, field: Field<'a>) -> Option<()> {
        let length = self.length()?;
        let end = self.rest.len().checked_sub(length)?;
        while self.rest.len() > end {
            self.field(field)?;
        }
        (self.rest.len() == end).then_some(())
    }

    fn field(&mut self, field: Field<'a>) -> Option<()> {
        let (tag, wire) = decode_key(&mut self.rest).ok()?;
        field(self, tag, wire)
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(decode_varint(&mut self.rest).ok()?).ok()
    }

    fn skip(&mut self, tag: u32, wire: WireType) -> Option<()> {
        skip_field(wire, tag, &mut self.rest, DecodeContext::default()).ok()
    }
}

/// An element of a list that grows, which has place for up to twice as many.
const fn grown<T>() -> u64 {
    2 * size_of::<T>() as u64
}

/// Each ends with a byte below 128; one more may have begun.
fn varints(numbers: &[u8]) -> usize {
    1 + numbers.iter().filter(|byte| **byte < 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Contents, ModelInferRequest};
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use std::collections::HashMap;

    /// What the lists of a decoded request take.
    fn taken(request: &ModelInferRequest) -> u64 {
        fn list<T>(list: &Vec<T>) -> u64 {
            (list.capacity() * size_of::<T>()) as u64
        }
        let contents = |contents: &Contents| {
            let numbers = list(&contents.bools) + list(&contents.ints) + list(&contents.longs);
            let unsigned = list(&contents.unsigned_ints) + list(&contents.unsigned_longs);
            let others = list(&contents.floats) + list(&contents.doubles) + list(&contents.bytes);
            numbers + unsigned + others
        };
        let entry = size_of::<(String, InferParameter)>() as u64;
        let inputs = request.inputs.iter().map(|input| {
            let inside = input.contents.as_ref().map_or(0, contents);
            inside + list(&input.shape) + input.parameters.capacity() as u64 * entry
        });
        let outputs = request
            .outputs
            .iter()
            .map(|output| output.parameters.capacity() as u64 * entry);
        let own = list(&request.inputs) + list(&request.outputs) + list(&request.raw_input_contents);
        own + inputs.sum::<u64>() + outputs.sum::<u64>() + request.parameters.capacity() as u64 * entry
    }

    fn request(inputs: Vec<InferTensor>) -> ModelInferRequest {
        ModelInferRequest {
            inputs,
            ..ModelInferRequest::default()
        }
    }

    fn tensor(contents: Contents) -> InferTensor {
        InferTensor {
            shape: vec![1, -1, 1 << 40],
            contents: Some(contents),
            ..InferTensor::default()
        }
    }

    #[test]
    fn a_call_has_one_message_and_nothing_behind_it() {
        let whole = [0, 0, 0, 0, 2, 7, 8];
        assert_eq!(message_of(&whole), Ok(&[7, 8][..]));
        assert_eq!(message_of(&whole[..6]), Ok(&[7][..]), "the rest did not come");
        assert_eq!(message_of(&whole[..4]), Ok(&[][..]));
        let empty_and_another = [&[0u8; HEAD][..], &whole[..]].concat();
        let refused = message_of(&empty_and_another).unwrap_err();
        assert!(refused.message.contains("7 bytes follow"), "{refused}");
    }

    #[test]
    fn what_is_little_on_the_way_and_much_when_it_is_read_weighs_that_much() {
        let ints = tensor(Contents {
            ints: vec![0; 10_000],
            ..Contents::default()
        });
        let bytes = request(vec![ints]).encode_to_vec();
        assert!(weigh(&bytes) >= 10_000 * (8 + ELEMENT), "{}", weigh(&bytes));
        assert!(weigh(&bytes) < 10_100 * 40, "{}", weigh(&bytes));
        let bytes = request(vec![InferTensor::default(); 10_000]).encode_to_vec();
        assert_eq!(weigh(&bytes), 10_000 * grown::<InferTensor>());
        // Bytes stay as they came.
        let raw = ModelInferRequest {
            raw_input_contents: vec![vec![7; 100_000].into()],
            ..request(vec![InferTensor::default()])
        };
        assert!(weigh(&raw.encode_to_vec()) < 1000);
    }

    /// A decoder reads a list whose length lies within the message around it, and minds only then that it lies beyond the nearer end.
    #[test]
    fn a_list_that_reaches_beyond_its_message_weighs_what_is_read_of_it() {
        // One tensor of 4 bytes: contents of 65,539 bytes, in which are 65,535 numbers of one byte each.
        let mut bytes = vec![0x2a, 4, 0x2a, 0x83, 0x80, 4, 0x12, 0xff, 0xff, 3];
        bytes.extend([1; 65_535]);
        assert!(ModelInferRequest::decode(&bytes[..]).is_err());
        assert!(weigh(&bytes) > 65_535 * (8 + ELEMENT), "{}", weigh(&bytes));
    }

    fn any_request() -> impl Strategy<Value = ModelInferRequest> {
        let numbers = || prop::collection::vec(any::<i64>(), 0..40);
        let contents = (
            numbers(),
            numbers(),
            prop::collection::vec(any::<f64>(), 0..40),
            0..20usize,
        );
        let contents = contents.prop_map(|(longs, ints, doubles, count)| Contents {
            ints: ints.iter().map(|value| *value as i32).collect(),
            bools: longs.iter().map(|value| *value > 0).collect(),
            floats: doubles.iter().map(|value| *value as f32).collect(),
            bytes: vec![Bytes::from_static(b"ab"); count],
            longs,
            doubles,
            ..Contents::default()
        });
        let inputs = prop::collection::vec(contents.prop_map(tensor), 0..6);
        let parameters = prop::collection::hash_map("[a-z]{1,3}", Just(InferParameter::default()), 0..20);
        (inputs, parameters, 0..9usize).prop_map(|(inputs, parameters, outputs)| ModelInferRequest {
            outputs: vec![RequestedOutput::default(); outputs],
            raw_input_contents: vec![Bytes::from_static(b"c"); outputs],
            parameters,
            ..request(inputs)
        })
    }

    /// What is decoded of these bytes was weighed, even where they do not read to their end.
    fn weighed(bytes: &[u8]) -> Result<(), String> {
        let mut read = ModelInferRequest::default();
        let _ = read.merge(bytes);
        // The first few elements of a list have their places at once.
        let few = 256 * (1 + read.inputs.len() + read.outputs.len()) as u64;
        let (taken, weight) = (taken(&read), weigh(bytes));
        if taken <= weight + few {
            return Ok(());
        }
        Err(format!("{taken} taken, {weight} weighed: {bytes:x?}"))
    }

    #[test]
    fn whatever_one_byte_is_changed_to_what_is_decoded_was_weighed() {
        let parameters = ('a'..='i').map(|name| (name.to_string(), InferParameter::default()));
        let parameters: HashMap<_, _> = parameters.collect();
        let contents = Contents {
            ints: vec![1; 9],
            longs: vec![-1; 5],
            doubles: vec![0.5; 5],
            bytes: vec![Bytes::from_static(b"ab"); 5],
            ..Contents::default()
        };
        let input = InferTensor {
            parameters: parameters.clone(),
            ..tensor(contents)
        };
        let output = RequestedOutput {
            parameters: parameters.clone(),
            ..RequestedOutput::default()
        };
        let request = ModelInferRequest {
            outputs: vec![output],
            parameters,
            raw_input_contents: vec![Bytes::from_static(b"c"); 5],
            ..request(vec![input])
        };
        let bytes = request.encode_to_vec();
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = byte;
                weighed(&changed).unwrap_or_else(|error| panic!("byte {at} to {byte}: {error}"));
            }
        }
    }

    proptest! {
        /// Whatever is changed on the way: what is decoded was weighed.
        #[test]
        fn nothing_that_is_decoded_takes_more_than_it_weighs(
            request in any_request(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = request.encode_to_vec();
            for (at, byte) in flips {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            prop_assert_eq!(weighed(&bytes), Ok(()));
        }
    }
}
