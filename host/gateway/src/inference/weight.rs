//! What a request takes once it is read: a number of one digit becomes an element of many bytes, so a body alone says too little.

use super::messages::InferTensor;
use karman_node::inference::Scalar;

/// An element that was read.
const ELEMENT: u64 = size_of::<Scalar>() as u64;
/// A list that grows has place for up to twice as many.
const GROWN: u64 = 2 * ELEMENT;
/// What is shorter is not looked at: whatever it becomes is little.
const SHORT: usize = 64 << 10;

/// The bytes that the elements in a JSON take: there is a comma between any two of them.
pub(super) fn of_json(json: &[u8]) -> u64 {
    if json.len() < SHORT {
        return 0;
    }
    let (mut commas, mut in_text, mut is_escaped) = (0u64, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b',' if !in_text => commas += 1,
            _ => {}
        }
    }
    commas * GROWN
}

/// The bytes that the elements of these tensors take, where they came one by one.
pub(super) fn of_tensors(tensors: &[InferTensor]) -> u64 {
    let contents = tensors.iter().filter_map(|tensor| tensor.contents.as_ref());
    let elements = contents.map(|contents| {
        contents.bools.len()
            + contents.ints.len()
            + contents.longs.len()
            + contents.unsigned_ints.len()
            + contents.unsigned_longs.len()
            + contents.floats.len()
            + contents.doubles.len()
    });
    elements.sum::<usize>() as u64 * ELEMENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::messages::Contents;
    use karman_node::inference::InferRequest;
    use serde_json::json;

    #[test]
    fn elements_are_weighed_and_texts_are_not_taken_for_them() {
        let zeros = vec![0; 100_000];
        let input = json!({ "name": "x", "shape": [100_000], "datatype": "INT8", "data": zeros });
        let json = json!({ "inputs": [input] }).to_string();
        let weight = of_json(json.as_bytes());
        let likely = 99_999 * GROWN..100_010 * GROWN;
        assert!(likely.contains(&weight), "{weight}");
        assert!(serde_json::from_str::<InferRequest>(&json).is_ok());

        let text = format!("\"{}\"", r#"a,\",b\\"#.repeat(20_000));
        assert!(serde_json::from_str::<String>(&text).is_ok());
        assert_eq!(of_json(text.as_bytes()), 0);
        assert_eq!(of_json(b"[1,2,3]"), 0);
    }

    #[test]
    fn tensors_weigh_what_came_one_by_one() {
        let contents = Contents {
            ints: vec![1; 10],
            floats: vec![1.0; 5],
            bytes: vec![bytes::Bytes::from_static(b"abc")],
            ..Contents::default()
        };
        let tensors = [
            InferTensor {
                contents: Some(contents),
                ..InferTensor::default()
            },
            InferTensor::default(),
        ];
        assert_eq!(of_tensors(&tensors), 15 * ELEMENT);
    }
}
