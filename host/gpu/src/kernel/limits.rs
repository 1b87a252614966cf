//! How large the shapes of kernels may be.

use crate::error::GpuError;

/// The largest dimension of any shape: products of three stay far below what 64 bits hold.
const MOST_DIMENSION: u32 = 1 << 20;

/// The most words of one buffer: 1 GiB.
pub(super) const MOST_WORDS: u64 = 1 << 28;

/// Whether a whole array, or a row of one, has from 1 to 2²⁸ elements.
pub(super) fn check_length(kernel: &str, field: &str, length: u32) -> Result<(), GpuError> {
    match (1..=MOST_WORDS).contains(&u64::from(length)) {
        true => Ok(()),
        false => {
            let must = format!("it is from 1 to {MOST_WORDS}");
            Err(GpuError::kernel(kernel, field, length as usize, must))
        }
    }
}

/// Whether dimensions are from 1 to 2²⁰ and buffers at most 1 GiB.
pub(super) fn check_shape(
    kernel: &str,
    dimensions: &[(&str, u32)],
    buffers: &[(&str, u64)],
) -> Result<(), GpuError> {
    for (name, value) in dimensions {
        if !(1..=MOST_DIMENSION).contains(value) {
            return Err(GpuError::kernel(
                kernel,
                name,
                *value as usize,
                format!("it is from 1 to {MOST_DIMENSION}"),
            ));
        }
    }
    for (name, words) in buffers {
        if *words > MOST_WORDS {
            return Err(GpuError::Memory {
                what: format!("{kernel}: {name}"),
                asked: words.saturating_mul(4),
                most: MOST_WORDS * 4,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::kernel::Kernel;

    /// What is told is the bound that holds: arrays may be longer than other dimensions.
    #[test]
    fn an_array_of_nothing_is_told_how_long_arrays_are() {
        for (name, fields) in [
            ("map", r#""length": 0, "steps": []"#),
            ("mask", r#""length": 0"#),
            ("accumulate", r#""length": 0, "updates": 1"#),
            ("reduce", r#""fold": "sum", "rows": 1, "columns": 0"#),
            ("encode", r#""format": "f16", "rows": 1, "columns": 0"#),
            ("decode", r#""format": "int8", "rows": 1, "columns": 0"#),
            ("top-k", r#""length": 0, "keep": 1"#),
            ("rearrange", r#""length": 0, "sizes": [], "steps": []"#),
            ("gather", r#""rows": 0, "width": 1, "numbers": 1"#),
        ] {
            let text = format!(r#"{{"kernel": "{name}", {fields}}}"#);
            let kernel = |text: &str| serde_json::from_str::<Kernel>(text).unwrap();
            let refused = kernel(&text).arguments().unwrap_err().to_string();
            assert!(refused.ends_with("it is from 1 to 268435456"), "{refused}");
            assert!(
                kernel(&text.replace(": 0", ": 268435456")).arguments().is_ok(),
                "{name}"
            );
        }
    }
}
