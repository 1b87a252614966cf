use super::Encoding;
use serde::{Deserialize, Serialize};

/// What one encoding does on this machine with data of one kind: measured at start-up and since, never guessed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// How the numbers travel.
    pub encoding: Encoding,
    /// Whether zstd packs them.
    pub packed: bool,
    /// Bytes as `f32` over bytes on the wire.
    pub ratio: f64,
    /// Bytes of `f32` encoded in a second.
    pub encodes: f64,
    /// Bytes of `f32` decoded in a second, at the other end.
    pub decodes: f64,
    /// The largest error seen, over the largest magnitude in the array.
    pub error: f64,
}

/// A link as it was measured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Link {
    /// Bytes that arrive in a second.
    pub bytes_per_second: f64,
}

/// The encoding that was chosen for an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How the numbers travel.
    pub encoding: Encoding,
    /// Whether zstd packs them.
    pub packed: bool,
    /// Seconds from the array at one end to the array at the other.
    pub seconds: f64,
}

/// Numbers from which nothing can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}: it must be finite and above 0")]
pub struct ChooseError {
    /// Which one.
    pub field: &'static str,
    /// As given.
    pub value: f64,
}

impl Measured {
    /// Seconds for this many bytes of `f32`, encoded, sent and decoded chunk by chunk, all three at once: one chunk goes through
    /// the three stages, the others follow at the pace of the slowest. With one chunk that is their sum, and it is worth it
    /// where the link is slower than `S (1 - 1/ratio)`, S the two codings in a row; with many, where it is slower than either.
    pub fn seconds(&self, bytes: u64, chunk: u64, link: Link) -> f64 {
        let chunks = bytes.div_ceil(chunk.max(1)).max(1) as f64;
        let each = bytes as f64 / chunks;
        let stages = [
            each / self.encodes,
            each / (link.bytes_per_second * self.ratio),
            each / self.decodes,
        ];
        stages.iter().sum::<f64>() + (chunks - 1.0) * stages.into_iter().fold(0.0, f64::max)
    }
}

/// The encoding that is through first among those with a relative error of at most `most_error`; as it is (`f32`, not packed) when
/// none is faster. `chunk` is how many bytes are encoded before the first of them is sent.
///
/// # Errors
/// [`ChooseError`] when the link or a measurement is not a positive number.
pub fn choose(
    bytes: u64,
    chunk: u64,
    link: Link,
    most_error: f64,
    measured: &[Measured],
) -> Result<Choice, ChooseError> {
    let positive = |field, value: f64| match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(ChooseError { field, value }),
    };
    positive("bytes per second", link.bytes_per_second)?;
    let mut best = Choice {
        encoding: Encoding::F32,
        packed: false,
        seconds: bytes as f64 / link.bytes_per_second,
    };
    for candidate in measured {
        positive("ratio", candidate.ratio)?;
        positive("encoding speed", candidate.encodes)?;
        positive("decoding speed", candidate.decodes)?;
        let seconds = candidate.seconds(bytes, chunk, link);
        // A NaN as error or bound is no permission.
        if candidate.error <= most_error && seconds < best.seconds {
            best = Choice {
                encoding: candidate.encoding,
                packed: candidate.packed,
                seconds,
            };
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INT8: Measured = Measured {
        encoding: Encoding::Int8,
        packed: false,
        ratio: 4.0,
        encodes: 1e9,
        decodes: 2e9,
        error: 0.004,
    };

    proptest! {
        /// KVServe's rule: with one chunk, encode only if B < S (1 - 1/ratio).
        #[test]
        fn one_chunk_is_encoded_exactly_below_the_break_even(bandwidth in 1e3..2e9f64) {
            let both = 1.0 / (1.0 / INT8.encodes + 1.0 / INT8.decodes);
            let link = Link { bytes_per_second: bandwidth };
            let choice = choose(1 << 20, 1 << 20, link, 0.01, &[INT8]).unwrap();
            let worth_it = bandwidth < both * (1.0 - 1.0 / INT8.ratio);
            prop_assert_eq!(choice.encoding == Encoding::Int8, worth_it);
        }

        #[test]
        fn never_slower_than_raw_and_never_past_the_error(
            bandwidth in 1e3..1e10f64, bytes in 1u64..1 << 30, most_error in 0.0..0.01f64,
        ) {
            let link = Link { bytes_per_second: bandwidth };
            let choice = choose(bytes, 1 << 16, link, most_error, &[INT8]).unwrap();
            prop_assert!(choice.seconds <= bytes as f64 / bandwidth);
            prop_assert!(choice.encoding == Encoding::F32 || INT8.error <= most_error);
        }
    }

    #[test]
    fn in_a_long_stream_the_codings_hide_behind_the_link() {
        let link = Link {
            bytes_per_second: 1e7,
        };
        let seconds = INT8.seconds(1 << 30, 1 << 16, link);
        let link_alone = (1u64 << 30) as f64 / (1e7 * 4.0);
        assert!(
            (seconds / link_alone - 1.0).abs() < 1e-3,
            "{seconds} against {link_alone}"
        );
    }

    #[test]
    fn a_link_of_no_speed_is_an_error() {
        for bytes_per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = choose(1, 1, Link { bytes_per_second }, 1.0, &[INT8]).unwrap_err();
            assert_eq!(error.field, "bytes per second");
        }
        let stalled = Measured { encodes: 0.0, ..INT8 };
        assert!(
            choose(
                1,
                1,
                Link {
                    bytes_per_second: 1.0
                },
                1.0,
                &[stalled]
            )
            .is_err()
        );
    }
}
