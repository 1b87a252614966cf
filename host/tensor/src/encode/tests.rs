use super::*;
use proptest::prelude::*;

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![
        Just(Encoding::F32),
        Just(Encoding::F16),
        Just(Encoding::Int8),
        (1u16..=1000).prop_map(Encoding::TopK),
    ]
}

/// An array of two dimensions with numbers of very different sizes.
fn array() -> impl Strategy<Value = (Shape, Vec<f32>)> {
    (0u32..8, 0u32..20).prop_flat_map(|(rows, columns)| {
        let number = (-1.0f32..1.0, -30i32..15).prop_map(|(x, power)| x * 2f32.powi(power));
        let values = prop::collection::vec(number, (rows * columns) as usize);
        values.prop_map(move |values| ([rows, columns].into(), values))
    })
}

proptest! {
    #[test]
    fn what_arrives_is_within_the_bound((shape, values) in array(), encoding in encoding(), pack: bool) {
        let encoded = Encoded::encode(shape, &values, encoding).unwrap();
        let encoded = if pack { encoded.pack() } else { encoded };
        let frame = encoded.to_bytes();
        prop_assert_eq!(frame.len(), encoded.wire_bytes());
        let received = Encoded::from_bytes(&frame).unwrap();
        prop_assert_eq!(&received, &encoded);
        let bound = received.error_bound().unwrap();
        for (sent, arrived) in values.iter().zip(received.decode().unwrap()) {
            prop_assert!((sent - arrived).abs() <= bound, "{sent} became {arrived}, bound {bound}");
        }
        if encoding == Encoding::F32 {
            prop_assert_eq!(received.decode().unwrap(), values);
        }
    }

    #[test]
    fn each_channel_of_int8_has_its_own_bound((shape, values) in array()) {
        let decoded = Encoded::encode(shape, &values, Encoding::Int8).unwrap().decode().unwrap();
        let row = (shape.dims()[1] as usize).max(1);
        for (sent, arrived) in values.chunks(row).zip(decoded.chunks(row)) {
            let most = sent.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            for (x, y) in sent.iter().zip(arrived) {
                prop_assert!((x - y).abs() <= most / 254.0 * 1.0001 + 1e-35);
            }
        }
    }

    #[test]
    fn bytes_from_anyone_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), tag in 0u8..4, packed: bool) {
        let mut bytes = bytes;
        if let [first, rank, _, _, dims @ ..] = &mut bytes[..] {
            *first = tag | if packed { PACKED } else { 0 };
            *rank %= 4;
            // Small dimensions, so that the body is reached.
            for dim in dims.chunks_mut(4).take(3) {
                dim[0] %= 6;
                dim.iter_mut().skip(1).for_each(|byte| *byte = 0);
            }
        }
        if let Ok(encoded) = Encoded::from_bytes(&bytes.into())
            && let Ok(values) = encoded.decode()
        {
            prop_assert_eq!(Some(values.len() as u64), encoded.shape().elements());
            prop_assert!(values.iter().all(|value| value.is_finite()));
        }
    }

    /// However many arrays are sent, what has arrived differs from what was to be sent by the residual alone.
    #[test]
    fn with_feedback_nothing_is_lost_for_good(
        rounds in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 24), 1..20),
        encoding in encoding(),
    ) {
        let shape = Shape::from([4, 6]);
        let mut feedback = Feedback::default();
        let (mut sent, mut arrived) = (vec![0.0f64; 24], vec![0.0f64; 24]);
        for values in &rounds {
            let encoded = feedback.encode(shape, values, encoding).unwrap();
            sent.iter_mut().zip(values).for_each(|(sum, x)| *sum += f64::from(*x));
            arrived.iter_mut().zip(encoded.decode().unwrap()).for_each(|(sum, x)| *sum += f64::from(x));
        }
        for ((sent, arrived), residual) in sent.iter().zip(&arrived).zip(feedback.residual()) {
            prop_assert!((sent - arrived - f64::from(*residual)).abs() < 1e-4);
        }
    }
}

#[test]
fn bytes_are_what_the_encodings_promise() {
    let shape = Shape::from([10, 100]);
    let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
    let bytes = |encoding| Encoded::encode(shape, &values, encoding).unwrap().wire_bytes();
    assert_eq!(bytes(Encoding::F32), 4000 + 12);
    assert_eq!(bytes(Encoding::F16), 2000 + 12);
    assert_eq!(bytes(Encoding::Int8), 1000 + 40 + 12);
    // Ten numbers of four bytes, each with a gap of one or two.
    assert!((62..=72).contains(&bytes(Encoding::TopK(10))));
    let flat = vec![0.0; 1000];
    assert!(
        Encoded::encode(shape, &flat, Encoding::F32)
            .unwrap()
            .pack()
            .wire_bytes()
            < 100
    );
}

#[test]
fn what_cannot_be_encoded_is_named() {
    let encode = |values: &[f32], encoding| Encoded::encode([2].into(), values, encoding).unwrap_err();
    let error = encode(&[0.0, f32::NAN], Encoding::Int8);
    assert!(
        matches!(error, EncodeError::NotFinite { index: 1, .. }),
        "{error}"
    );
    let error = encode(&[7e4, 0.0], Encoding::F16);
    assert_eq!(error, EncodeError::TooLarge { index: 0, value: 7e4 });
    assert!(matches!(
        encode(&[0.0], Encoding::F32),
        EncodeError::Length { given: 1, .. }
    ));
    assert_eq!(encode(&[0.0, 1.0], Encoding::TopK(0)), EncodeError::Share(0));
    let bomb = Bytes::from_static(&[0, 2, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert!(matches!(
        Encoded::from_bytes(&bomb),
        Err(EncodeError::TooMany { .. })
    ));
}
