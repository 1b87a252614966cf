//! What a request takes once it is read: a number of one digit becomes an element of many bytes, so a body alone says too little.
//! For gRPC, `scale` knows.

use karman_node::inference::Scalar;
use memchr::{memchr, memchr_iter, memchr2};

/// An element that was read.
pub(super) const ELEMENT: u64 = size_of::<Scalar>() as u64;
/// A list that grows has place for up to twice as many.
const GROWN: u64 = 2 * ELEMENT;
/// What is shorter is not looked at: whatever it becomes is little.
const SHORT: usize = 64 << 10;

/// The bytes that the elements in a JSON take: there is a comma between any two of them.
pub(super) fn of_json(json: &[u8]) -> u64 {
    if json.len() < SHORT {
        return 0;
    }
    let (mut commas, mut rest) = (0, json);
    loop {
        let text = memchr(b'"', rest).unwrap_or(rest.len());
        commas += memchr_iter(b',', &rest[..text]).count() as u64;
        match rest.get(text + 1..).and_then(behind_text) {
            Some(behind) => rest = behind,
            None => return commas * GROWN,
        }
    }
}

/// What comes after the end of a text; nothing where it does not end.
fn behind_text(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let at = memchr2(b'"', b'\\', text)?;
        let is_escape = text[at] == b'\\';
        text = text.get(at + 1 + usize::from(is_escape)..)?;
        if !is_escape {
            return Some(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
