//! Bright strokes on dark ground, as the models learnt them.

use crate::picture::Picture;

/// The pixels, from 0 (ground) to 1 (stroke). A picture whose border is mostly light is dark on light: it is inverted.
pub(crate) fn bright(picture: &Picture) -> [f32; 64] {
    match picture.border > 0.5 {
        true => picture.pixels.map(|pixel| 1.0 - pixel),
        false => picture.pixels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_ground_is_inverted_and_dark_ground_is_not() {
        let mut pixels = [0.9; 64];
        pixels[27] = 0.1;
        let light = bright(&Picture { pixels, border: 0.9 });
        assert!((light[27] - 0.9).abs() < 1e-6 && (light[0] - 0.1).abs() < 1e-6);
        assert_eq!(bright(&Picture { pixels, border: 0.2 }), pixels);
    }
}
