use super::*;
use png::{BitDepth, Encoder};
use std::io::Write as _;

fn encode(width: u32, height: u32, colour: ColorType, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(BitDepth::Eight);
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    bytes
}

/// One pixel of the small picture is lit.
fn lit(at: usize) -> [u8; 64] {
    let mut data = [0; 64];
    data[at] = 255;
    data
}

fn near(picture: &Picture, wanted: &[f32; 64]) {
    for (at, (pixel, wanted)) in picture.pixels.iter().zip(wanted).enumerate() {
        assert!((pixel - wanted).abs() < 1e-3, "pixel {at}: {pixel}, not {wanted}");
    }
}

#[test]
fn eight_by_eight_stays_as_it_is() {
    let data: Vec<u8> = (0..64).map(|value| value * 4).collect();
    let picture = shrink(&encode(8, 8, ColorType::Grayscale, &data)).unwrap();
    near(&picture, &std::array::from_fn(|at| at as f32 * 4.0 / 255.0));
}

#[test]
fn any_size_keeps_its_shape_and_mean() {
    for side in [1, 3, 8, 20, 28, 100, 257] {
        // The upper left quarter is white.
        let half = |at: usize| 2 * at < side;
        let data: Vec<u8> = (0..side * side)
            .map(|at| {
                if half(at % side) && half(at / side) {
                    255
                } else {
                    0
                }
            })
            .collect();
        let picture = shrink(&encode(side as u32, side as u32, ColorType::Grayscale, &data)).unwrap();
        let mean = data.iter().map(|value| f32::from(*value) / 255.0).sum::<f32>() / data.len() as f32;
        let small = picture.pixels.iter().sum::<f32>() / 64.0;
        assert!((mean - small).abs() < 1e-3, "side {side}: {small}, not {mean}");
        assert!(
            picture.pixels[0] > 0.99 && (side == 1 || picture.pixels[63] < 0.01),
            "side {side}"
        );
    }
}

#[test]
fn every_colour_type_reads_alike() {
    let grey = lit(9);
    let wanted = grey.map(|value| f32::from(value) / 255.0);
    let many = |channels: usize, opaque: bool| -> Vec<u8> {
        let sample = |value: &u8| {
            let mut sample = vec![*value; channels];
            if opaque {
                sample[channels - 1] = 255;
            }
            sample
        };
        grey.iter().flat_map(sample).collect()
    };
    for (colour, data) in [
        (ColorType::Grayscale, many(1, false)),
        (ColorType::GrayscaleAlpha, many(2, true)),
        (ColorType::Rgb, many(3, false)),
        (ColorType::Rgba, many(4, true)),
    ] {
        near(&shrink(&encode(8, 8, colour, &data)).unwrap(), &wanted);
    }
}

#[test]
fn strokes_on_nothing_stand_out_whatever_their_light() {
    for (stroke, ground) in [(255, 0.0), (0, 1.0)] {
        let data: Vec<u8> = lit(9).iter().flat_map(|opacity| [stroke, *opacity]).collect();
        let picture = shrink(&encode(8, 8, ColorType::GrayscaleAlpha, &data)).unwrap();
        assert_eq!(picture.border, ground);
        assert!((picture.pixels[9] - (1.0 - ground)).abs() < 1e-3);
    }
}

/// The encoder writes no interlaced pictures: each pass is a small picture of its own.
fn interlaced(width: usize, height: usize, data: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for [x0, dx, y0, dy] in ADAM7 {
        for y in (y0..height).step_by(dy).filter(|_| x0 < width) {
            lines.push(0);
            lines.extend((x0..width).step_by(dx).map(|x| data[y * width + x]));
        }
    }
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&lines).unwrap();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    header.extend([8, 0, 0, 0, 1]);
    for (name, content) in [
        (b"IHDR", header),
        (b"IDAT", zlib.finish().unwrap()),
        (b"IEND", Vec::new()),
    ] {
        png.extend((content.len() as u32).to_be_bytes());
        let body = [&name[..], &content].concat();
        png.extend(&body);
        png.extend(crc32fast::hash(&body).to_be_bytes());
    }
    png
}

#[test]
fn an_interlaced_picture_is_the_same_picture() {
    for (width, height) in [(8, 8), (20, 13), (1, 1), (3, 9)] {
        let data: Vec<u8> = (0..width * height).map(|at| (at * 37 % 256) as u8).collect();
        let plain = encode(width as u32, height as u32, ColorType::Grayscale, &data);
        let (plain, other) = (
            shrink(&plain).unwrap(),
            shrink(&interlaced(width, height, &data)).unwrap(),
        );
        near(&other, &plain.pixels);
        assert_eq!(other.border, plain.border);
    }
}

#[test]
fn the_border_tells_the_ground() {
    let mut data = [250; 64];
    data[27] = 0;
    let picture = shrink(&encode(8, 8, ColorType::Grayscale, &data)).unwrap();
    assert!(picture.border > 0.9);
}

#[test]
fn what_is_no_png_is_refused() {
    let good = encode(8, 8, ColorType::Grayscale, &lit(9));
    for bytes in [&b""[..], b"GIF89a", &good[..good.len() / 2], &good[..20]] {
        assert!(shrink(bytes).is_err_and(|error| error.contains("not a PNG")));
    }
    let wide = encode(4097, 1, ColorType::Grayscale, &[0; 4097]);
    assert!(shrink(&wide).is_err_and(|error| error.contains("4097 by 1")));
    // A header that promises 4 G by 4 G pixels.
    let mut bomb = good.clone();
    bomb[16..24].fill(0x7f);
    assert!(shrink(&bomb).is_err());
    // Every damaged byte gives a picture or an error, never a panic.
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x55;
        let _ = shrink(&damaged);
    }
}
