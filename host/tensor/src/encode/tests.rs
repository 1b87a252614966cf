use super::*;
use proptest::prelude::*;

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![
        Just(Encoding::F32),
        Just(Encoding::F16),
        Just(Encoding::Int8),
        (1u16..=1000).prop_map(Encoding::TopK),
        Just(Encoding::NonZero),
        Just(Encoding::Palette),
    ]
}

/// An array of two dimensions with numbers of very different sizes.
fn array() -> impl Strategy<Value = (Shape, Vec<f32>)> {
    (0u32..8, 0u32..50).prop_flat_map(|(rows, columns)| {
        let number = (-1.0f32..1.0, -30i32..15).prop_map(|(x, power)| x * 2f32.powi(power));
        let number = prop_oneof![number, Just(0.0), Just(-0.0)];
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
        if [Encoding::F32, Encoding::NonZero, Encoding::Palette].contains(&encoding) {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&received.decode().unwrap()), bits(&values));
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
    fn bytes_from_anyone_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), tag in 0u8..6, packed: bool) {
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
fn what_is_not_zero_takes_fewer_bytes_and_packs_better() {
    let shape = Shape::from([100, 100]);
    let values: Vec<f32> = (0..10_000).map(|i| (i as f32).sin().max(0.0)).collect();
    let encode = |encoding| Encoded::encode(shape, &values, encoding).unwrap();
    let left = values.iter().filter(|value| **value != 0.0).count();
    let without = encode(Encoding::NonZero);
    assert_eq!(without.wire_bytes(), 4 * left + 157 * 8 + 12);
    let (packed, usual) = (without.pack(), encode(Encoding::F32).pack());
    assert!(
        packed.wire_bytes() * 10 < usual.wire_bytes() * 9,
        "{} {}",
        packed.wire_bytes(),
        usual.wire_bytes()
    );
    assert_eq!(packed.decode().unwrap(), values);
}

/// Three channels of 64 by 64, each with a gradient and some noise, as a model takes them.
fn picture(normal: impl Fn(usize, u8) -> f32) -> (Shape, Vec<f32>) {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut pixel = |at: usize| (at % 64 * 3) as u8 + rng.u8(..8);
    let values = (0..3 * 64 * 64).map(|at| normal(at / (64 * 64), pixel(at)));
    ([3, 64, 64].into(), values.collect())
}

#[test]
fn a_picture_takes_a_byte_for_each_number_and_packed_fewer() {
    let grey = |_: usize, level: u8| f32::from(level) / 255.0;
    let by_channel =
        |channel: usize, level: u8| (f32::from(level) / 255.0 - 0.4 - channel as f32 * 0.03) / 0.22;
    let (pixels, levels) = (3 * 64 * 64, 197);
    for ((shape, values), tables) in [(picture(grey), 1), (picture(by_channel), 3)] {
        let array = Encoded::encode(shape, &values, Encoding::Palette).unwrap();
        assert_eq!(array.wire_bytes(), pixels + tables * (1 + 4 * levels) + 16);
        let packed = array.pack();
        let usual = Encoded::encode(shape, &values, Encoding::F32).unwrap().pack();
        assert!(
            packed.wire_bytes() * 2 < usual.wire_bytes(),
            "{} {}",
            packed.wire_bytes(),
            usual.wire_bytes()
        );
        let frame = packed.to_bytes();
        assert_eq!(Encoded::from_bytes(&frame).unwrap().decode().unwrap(), values);
    }
    let shape = [1, 257].into();
    let many: Vec<f32> = (0..257).map(|level| level as f32).collect();
    assert_eq!(
        Encoded::encode(shape, &many, Encoding::Palette),
        Err(EncodeError::TooManyDifferent)
    );
}

#[test]
fn places_and_tables_that_do_not_go_together_are_refused() {
    let read = |rest: &[u8]| {
        // Two channels of two numbers.
        let mut frame = vec![5, 2, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0];
        frame.extend_from_slice(rest);
        let encoded = Encoded::from_bytes(&frame.into()).unwrap();
        assert_eq!(encoded.clone().pack().decode(), encoded.decode());
        encoded.decode().map_err(|error| error.to_string())
    };
    let one = 1f32.to_le_bytes();
    let table = [[0].as_slice(), &one].concat();
    let with = |tables: usize| [[0; 4].as_slice(), &table.repeat(tables)].concat();
    for tables in [1, 2] {
        assert_eq!(read(&with(tables)), Ok(vec![1.0; 4]));
    }
    for tables in [0, 3] {
        assert!(read(&with(tables)).unwrap_err().contains("number of tables"));
    }
    assert!(read(&[0; 3]).unwrap_err().contains("ends within"));
    assert!(
        read(&[[0; 4].as_slice(), &table[..4]].concat())
            .unwrap_err()
            .contains("ends within")
    );
    let beyond = [[0, 0, 0, 1].as_slice(), &table].concat();
    assert!(read(&beyond).unwrap_err().contains("not finite"));
}

#[test]
fn bits_and_numbers_that_do_not_go_together_are_refused() {
    let read = |bits: u64, numbers: &[f32]| {
        let mut frame = vec![4, 1, 0, 0, 3, 0, 0, 0];
        frame.extend_from_slice(&bits.to_le_bytes());
        frame.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let encoded = Encoded::from_bytes(&frame.into()).unwrap();
        // Packed, they are what they were.
        assert_eq!(encoded.clone().pack().decode(), encoded.decode());
        encoded.decode().map_err(|error| error.to_string())
    };
    assert_eq!(read(0b101, &[1.0, 2.0]), Ok(vec![1.0, 0.0, 2.0]));
    let refused = |bits, numbers: &[f32]| read(bits, numbers).unwrap_err();
    assert!(refused(0b101, &[1.0]).contains("ends within"));
    assert!(refused(0b101, &[1.0; 3]).contains("bytes follow"));
    assert!(refused(0b1001, &[1.0; 2]).contains("behind its last"));
    assert!(refused(1, &[f32::NAN]).contains("not finite"));
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
