//! Any bytes as an array in transit: what is read has the numbers of its shape, all of them finite.
#![cfg_attr(fuzzing, no_main)]

use karman_tensor::encode::Encoded;

fn check(input: &[u8]) {
    let Ok(encoded) = Encoded::from_bytes(&input.to_vec().into()) else {
        return;
    };
    // Whoever decodes has looked at the shape first.
    if encoded.shape().elements().is_none_or(|count| count > 1 << 16) {
        return;
    }
    if let Ok(values) = encoded.decode() {
        assert_eq!(encoded.shape().elements(), Some(values.len() as u64));
        assert!(values.iter().all(|value| value.is_finite()));
        assert_eq!(Encoded::from_bytes(&encoded.to_bytes()).as_ref(), Ok(&encoded));
    }
}

karman_fuzz::target!(check);
