//! How activations and results travel over a link: as they are, or encoded where that is sooner and as close as the caller allows.

use crate::services::blocking;
use karman_engine::capability::nn::Tensors;
use karman_mesh::{Body, pack_encoded_tensors};
use karman_tensor::encode::{Encoded, Encoding, Link, Measured, choose};
use karman_tensor::{Shape, Tensor};
use karman_types::TaskError;
use parking_lot::Mutex;
use serde::Serialize;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// After this many requests encodings are measured again: what activations hold changes with what a camera sees.
pub(super) const MEASURE_AGAIN: u32 = 256;
/// Tensors of fewer bytes travel as they are: they go in one packet anyway.
const LEAST_BYTES: usize = 512;
/// Encoding and decoding take the processor, too, not only the time: they count as if they were so many times slower.
const PROCESSOR: f64 = 2.0;
/// Below this magnitude the steps of half precision are no longer a share of the number.
const LEAST_HALF: f32 = 1e-3;

/// What encodings do with what one stage passes on, or answers, on this machine.
#[derive(Debug, Default)]
pub(super) struct Encodings(Mutex<Option<Seen>>);

#[derive(Debug)]
struct Seen {
    measured: Vec<Measured>,
    /// The largest error for which that was done.
    max_error: f64,
    uses: u32,
}

/// What goes to another node, and how.
pub(super) struct Packed {
    pub(super) body: Body,
    /// For people, such as `int8, packed`; nothing where the elements go as they are.
    pub(super) encoding: Option<String>,
}

/// What an encoding has to suit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suits {
    /// How fast the link is.
    pub(super) rate_mbit_s: f64,
    /// How far a number may come out from what was sent, as a share of the largest magnitude in its tensor.
    pub(super) max_error: f64,
}

/// How tensors get there soonest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Without being encoded.
    AsTheyAre,
    /// Those that can be.
    Encoded { encoding: Encoding, packed: bool },
}

/// Writes a header and tensors the way in which they get there soonest. Encoding takes the processor, so it is done where that is no matter;
/// what goes as it is only gets a header.
pub(super) async fn pack_for(
    suits: Suits,
    encodings: &Arc<Encodings>,
    head: impl Serialize + Send + 'static,
    tensors: &Tensors,
) -> Result<Packed, TaskError> {
    let known = encodings.how(tensors, suits);
    if known == Some(How::AsTheyAre) {
        return pack(&head, tensors, How::AsTheyAre);
    }
    let (encodings, tensors) = (encodings.clone(), tensors.clone());
    let encode = move || {
        let how = known.unwrap_or_else(|| encodings.measure(&tensors, suits));
        pack(&head, &tensors, how)
    };
    blocking(encode).await
}

/// Writes a header and tensors.
fn pack(head: &impl Serialize, tensors: &Tensors, how: How) -> Result<Packed, TaskError> {
    let encoded = Cell::new(None);
    let encode = |tensor: &Tensor| {
        let How::Encoded { encoding, packed } = how else {
            return None;
        };
        let array = encode(tensor, encoding, packed)?;
        encoded.set(Some((encoding, packed)));
        Some(array)
    };
    let body = pack_encoded_tensors(head, tensors, encode)
        .map_err(|error| TaskError::limit(error.to_string()).with_field("tensors"))?;
    Ok(Packed {
        body,
        // Each of them may have had to go as it is.
        encoding: encoded.get().map(|(encoding, packed)| match packed {
            true => format!("{encoding}, packed"),
            false => encoding.to_string(),
        }),
    })
}

impl Encodings {
    /// How these get there soonest; nothing where encodings have to be measured for that.
    fn how(&self, tensors: &Tensors, suits: Suits) -> Option<How> {
        // A link that was never measured is taken for a fast one.
        if !suits.rate_mbit_s.is_finite() || largest(tensors).is_none() {
            return Some(How::AsTheyAre);
        }
        let mut seen = self.0.lock();
        let known = |seen: &&mut Seen| seen.uses < MEASURE_AGAIN && suits.max_error <= seen.max_error;
        let seen = seen.as_mut().filter(known)?;
        seen.uses += 1;
        Some(seen.how(tensors, suits))
    }

    /// Measures what encodings do with these, and tells the same.
    fn measure(&self, tensors: &Tensors, suits: Suits) -> How {
        let seen = Seen {
            measured: largest(tensors).map_or_else(Vec::new, |tensor| measured(tensor, suits.max_error)),
            max_error: suits.max_error,
            uses: 0,
        };
        let how = seen.how(tensors, suits);
        *self.0.lock() = Some(seen);
        how
    }
}

impl Seen {
    fn how(&self, tensors: &Tensors, suits: Suits) -> How {
        let bytes = tensors
            .iter()
            .map(|(_, tensor)| tensor.bytes().len() as u64)
            .sum();
        let link = Link {
            bytes_per_second: suits.rate_mbit_s * 1e6 / 8.0,
        };
        let measured = self.measured.iter().map(|measured| Measured {
            encodes: measured.encodes / PROCESSOR,
            decodes: measured.decodes / PROCESSOR,
            ..*measured
        });
        let measured: Vec<Measured> = measured.collect();
        match choose(bytes, bytes, link, suits.max_error, &measured) {
            Ok(choice) if choice.packed || choice.encoding != Encoding::F32 => How::Encoded {
                encoding: choice.encoding,
                packed: choice.packed,
            },
            _ => How::AsTheyAre,
        }
    }
}

/// The longest of those that can be encoded.
fn largest(tensors: &Tensors) -> Option<&Tensor> {
    let tensors = tensors.iter().map(|(_, tensor)| tensor);
    tensors
        .filter(|tensor| tensor.view::<f32>().is_ok() && tensor.bytes().len() >= LEAST_BYTES)
        .max_by_key(|tensor| tensor.bytes().len())
}

/// What encodings whose error is allowed do with this tensor, on this machine.
pub(in crate::drive) fn measured(tensor: &Tensor, max_error: f64) -> Vec<Measured> {
    let allowed = candidates().filter(|(encoding, _)| error_of(*encoding) <= max_error);
    let measured = allowed.filter_map(|(encoding, packed)| measure(tensor, encoding, packed));
    measured.collect()
}

/// The share of its bytes that a tensor travels in at least, by encodings whose error is allowed.
pub(super) fn least_share(tensor: &Tensor, max_error: f64) -> f64 {
    let measured = measured(tensor, max_error);
    let shares = measured.iter().map(|measured| 1.0 / measured.ratio);
    shares.fold(1.0, f64::min)
}

/// The most bytes that a tensor of this many travels in where links are slow and this error is allowed: what a plan may count on.
/// `packed` are those that were left when it was packed without loss.
pub(super) fn bytes_on_slow_links(bytes: u64, packed: Option<u64>, max_error: f64) -> u64 {
    if bytes < LEAST_BYTES as u64 {
        return bytes;
    }
    let of_four = match max_error {
        error if error >= error_of(Encoding::Int8) => 1,
        error if error >= error_of(Encoding::F16) => 2,
        _ => 4,
    };
    let encoded = (bytes * of_four).div_ceil(4);
    packed.map_or(encoded, |packed| packed.min(encoded))
}

fn candidates() -> impl Iterator<Item = (Encoding, bool)> {
    let encodings = [
        Encoding::F32,
        Encoding::NonZero,
        Encoding::Palette,
        Encoding::F16,
        Encoding::Int8,
    ];
    let each = encodings.map(|encoding| [(encoding, false), (encoding, true)]);
    each.into_iter().flatten().skip(1)
}

/// The largest error over the largest magnitude of the tensor. It follows from the encoding; nothing else is promised to a caller.
fn error_of(encoding: Encoding) -> f64 {
    match encoding {
        Encoding::F32 | Encoding::NonZero | Encoding::Palette => 0.0,
        Encoding::F16 => 1.0 / 2048.0,
        // Half a step of a scale that is the largest magnitude over 127; a little more for the rounding of the scale itself.
        Encoding::Int8 => 0.5 / 127.0 + 1e-6,
        Encoding::TopK(_) => 1.0,
    }
}

fn measure(tensor: &Tensor, encoding: Encoding, packed: bool) -> Option<Measured> {
    let bytes = tensor.bytes().len() as f64;
    let started = Instant::now();
    let array = encode(tensor, encoding, packed)?;
    let encoded = started.elapsed();
    let started = Instant::now();
    array.decode().ok()?;
    let decoded = started.elapsed();
    let speed = |took: std::time::Duration| bytes / took.as_secs_f64().max(1e-9);
    Some(Measured {
        encoding,
        packed,
        ratio: bytes / array.wire_bytes() as f64,
        encodes: speed(encoded),
        decodes: speed(decoded),
        error: error_of(encoding),
    })
}

/// Nothing where the tensor has to go as it is: other elements than `f32`, numbers that are none, or that half precision would spoil.
fn encode(tensor: &Tensor, encoding: Encoding, packed: bool) -> Option<Encoded> {
    let numbers = tensor.view::<f32>().ok()?;
    if tensor.bytes().len() < LEAST_BYTES {
        return None;
    }
    if encoding == Encoding::F16 {
        let largest = numbers.iter().fold(0.0f32, |most, number| most.max(number.abs()));
        if largest < LEAST_HALF {
            return None;
        }
    }
    let array = Encoded::encode(channels(tensor.shape()), numbers, encoding).ok()?;
    Some(if packed { array.pack() } else { array })
}

/// The shape without the batch of one in front, so that each channel has a scale of its own.
fn channels(shape: Shape) -> Shape {
    match shape.dims() {
        [1, rest @ ..] if !rest.is_empty() => Shape::new(rest).unwrap_or(shape),
        _ => shape,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_mesh::unpack_tensors;

    /// Activations after a ReLU: half of them zero.
    fn activations() -> Tensors {
        let mut rng = fastrand::Rng::with_seed(7);
        let numbers: Vec<f32> = (0..64 * 28 * 28)
            .map(|_| (rng.f32() * 2.0 - 1.0).max(0.0))
            .collect();
        vec![(
            "map".into(),
            Tensor::from_slice([1, 64, 28, 28], &numbers).unwrap(),
        )]
    }

    fn suits(rate_mbit_s: f64, max_error: f64) -> Suits {
        Suits {
            rate_mbit_s,
            max_error,
        }
    }

    fn pack(tensors: &Tensors, rate_mbit_s: f64, max_error: f64) -> Packed {
        let how = Encodings::default().measure(tensors, suits(rate_mbit_s, max_error));
        super::pack(&(), tensors, how).unwrap()
    }

    fn worst(sent: &Tensors, body: Body) -> f64 {
        let ((), came) = unpack_tensors::<()>(&body.into_bytes()).unwrap();
        let (sent, came) = (sent[0].1.view::<f32>().unwrap(), came[0].1.view::<f32>().unwrap());
        let largest = sent.iter().fold(0.0f32, |most, number| most.max(number.abs()));
        let errors = sent.iter().zip(came).map(|(sent, came)| (sent - came).abs());
        f64::from(errors.fold(0.0, f32::max) / largest)
    }

    #[test]
    fn a_slow_link_gets_the_smallest_that_is_close_enough() {
        let tensors = activations();
        let raw = tensors[0].1.bytes().len();
        for (max_error, encoding, at_most) in [(0.01, "int8", raw / 4 + 512), (0.001, "f16", raw / 2 + 512)] {
            let packed = pack(&tensors, 1.0, max_error);
            let said = packed.encoding.unwrap();
            assert!(said.starts_with(encoding), "{said}");
            assert!(packed.body.len() <= at_most, "{} {raw}", packed.body.len());
            let error = worst(&tensors, packed.body);
            assert!(error <= max_error && error > 0.0, "{error}");
        }
    }

    #[test]
    fn encodings_are_measured_where_that_may_help_and_again_after_a_while() {
        let (tensors, encodings) = (activations(), Encodings::default());
        assert_eq!(
            encodings.how(&tensors, suits(f64::INFINITY, 0.01)),
            Some(How::AsTheyAre)
        );
        assert_eq!(encodings.how(&tensors, suits(1.0, 0.01)), None);
        let measured = encodings.measure(&tensors, suits(1.0, 0.01));
        for _ in 0..MEASURE_AGAIN {
            assert_eq!(encodings.how(&tensors, suits(1.0, 0.01)), Some(measured));
        }
        assert_eq!(encodings.how(&tensors, suits(1.0, 0.01)), None);
    }

    #[test]
    fn a_plan_counts_on_no_more_than_what_the_error_allows() {
        for (bytes, packed, max_error, expected) in [
            (4096, None, 0.01, 1024),
            (4096, Some(3000), 0.001, 2048),
            (4096, Some(3000), 0.0, 3000),
            (4096, None, 0.0, 4096),
            (256, Some(20), 0.01, 256),
        ] {
            assert_eq!(bytes_on_slow_links(bytes, packed, max_error), expected);
        }
    }

    #[test]
    fn without_leave_nothing_is_lost() {
        let tensors = activations();
        let packed = pack(&tensors, 1.0, 0.0);
        assert_eq!(worst(&tensors, packed.body), 0.0);
        // Half of them are zeros, and the link is slow.
        assert_eq!(packed.encoding.as_deref(), Some("non-zero, packed"));
    }

    #[test]
    fn a_picture_goes_by_its_palette() {
        let mut rng = fastrand::Rng::with_seed(7);
        let pixels: Vec<f32> = (0..3 * 64 * 64).map(|_| f32::from(rng.u8(..)) / 255.0).collect();
        let tensors = vec![(
            "image".into(),
            Tensor::from_slice([1, 3, 64, 64], &pixels).unwrap(),
        )];
        let packed = pack(&tensors, 1.0, 0.0);
        assert!(packed.encoding.unwrap().starts_with("palette"));
        assert!(packed.body.len() < tensors[0].1.bytes().len() * 3 / 10);
        let ((), came) = unpack_tensors::<()>(&packed.body.into_bytes()).unwrap();
        assert_eq!(came[0].1.bytes(), tensors[0].1.bytes());
    }

    #[test]
    fn a_fast_link_gets_them_as_they_are() {
        let tensors = activations();
        let packed = pack(&tensors, 1e9, 0.01);
        assert_eq!(packed.encoding, None);
        assert!(packed.body.len() > tensors[0].1.bytes().len());
    }

    #[test]
    fn who_encodes_saves_more_than_the_time_that_it_takes() {
        // 4 MB: 2 ms to encode, 2 ms to decode, and a quarter of the bytes.
        let seen = Seen {
            measured: vec![Measured {
                encoding: Encoding::Int8,
                packed: false,
                ratio: 4.0,
                encodes: 2e9,
                decodes: 2e9,
                error: 0.0,
            }],
            max_error: 0.01,
            uses: 0,
        };
        let tensors = vec![(
            "map".into(),
            Tensor::from_slice([1000, 1000], &[1f32; 1_000_000]).unwrap(),
        )];
        // As they are and encoded: 16 ms and 8; 5.7 ms and 5.4.
        for (rate_mbit_s, is_encoded) in [(2_000.0, true), (5_600.0, false)] {
            let how = seen.how(&tensors, suits(rate_mbit_s, 0.01));
            assert_eq!(how != How::AsTheyAre, is_encoded, "{rate_mbit_s}");
        }
    }

    #[test]
    fn what_cannot_be_encoded_goes_as_it_is() {
        for numbers in [vec![f32::NAN; 4096], vec![1e-7f32; 4096]] {
            let tensors = vec![("map".into(), Tensor::from_slice([1, 4096], &numbers).unwrap())];
            let packed = pack(&tensors, 1.0, 0.001);
            assert!(
                packed
                    .encoding
                    .is_none_or(|encoding| encoding.ends_with(", packed"))
            );
            let ((), came) = unpack_tensors::<()>(&packed.body.into_bytes()).unwrap();
            assert_eq!(came[0].1.bytes(), tensors[0].1.bytes());
        }
    }
}
