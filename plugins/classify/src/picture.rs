//! A PNG of any size becomes 8 by 8 grey pixels, row by row: a picture of 4096 by 4096 takes no more memory than its
//! widest row.

use png::{ColorType, Decoder, Limits, Transformations};
use std::io::Cursor;

const SIDE: usize = 8;
/// The most pixels that a picture may be wide or high.
const MOST: u32 = 4096;

/// First column, step, first row, step: of a plain picture, and of the seven passes of an interlaced one.
const PLAIN: [[usize; 4]; 1] = [[0, 1, 0, 1]];
const ADAM7: [[usize; 4]; 7] = [
    [0, 8, 0, 8],
    [4, 8, 0, 8],
    [0, 4, 4, 8],
    [2, 4, 0, 4],
    [0, 2, 2, 4],
    [1, 2, 0, 2],
    [0, 1, 1, 2],
];

/// What is left of a PNG.
pub(crate) struct Picture {
    /// Row by row, 0 black to 1 white: each the mean of the area that it covers.
    pub(crate) pixels: [f32; SIDE * SIDE],
    /// The median of the outermost pixels of the PNG: the ground on which it is drawn.
    pub(crate) border: f32,
}

/// Decodes and shrinks. The error says what is wrong with the PNG.
pub(crate) fn shrink(png: &[u8]) -> Result<Picture, String> {
    let bad = |error: png::DecodingError| format!("the body is not a PNG that can be read: {error}");
    let limits = Limits { bytes: 16 << 20 };
    let mut decoder = Decoder::new_with_limits(Cursor::new(png), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(bad)?;
    let (width, height) = reader.info().size();
    if width.max(height) > MOST {
        return Err(format!(
            "the picture has {width} by {height} pixels; {MOST} by {MOST} is the most"
        ));
    }
    let (width, height) = (width as usize, height as usize);
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale | ColorType::Indexed => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
    };
    let passes: &[_] = if reader.info().interlaced { &ADAM7 } else { &PLAIN };
    let (columns, rows) = (overlaps(width), overlaps(height));
    let mut sums = Sums::default();
    for &[x0, dx, y0, dy] in passes {
        if x0 >= width {
            continue;
        }
        for y in (y0..height).step_by(dy) {
            let row = reader.next_interlaced_row().map_err(bad)?;
            let row = row.ok_or("the body is not a PNG that can be read: rows are missing")?;
            let edge_row = y == 0 || y + 1 == height;
            for (x, sample) in (x0..width).step_by(dx).zip(row.data().chunks_exact(channels)) {
                let pixel = Pixel::of(sample);
                if edge_row || x == 0 || x + 1 == width {
                    sums.border.push(pixel);
                }
                sums.add(pixel, &columns[x], &rows[y]);
            }
        }
    }
    Ok(sums.on_paper())
}

/// Light times opacity, and opacity; so that what shines through can be decided at the end.
#[derive(Clone, Copy, Default)]
struct Pixel {
    light: f32,
    opacity: f32,
}

impl Pixel {
    fn of(sample: &[u8]) -> Self {
        let of = |value: u8| f32::from(value) / 255.0;
        let grey = |r, g, b| 0.299 * of(r) + 0.587 * of(g) + 0.114 * of(b);
        let (light, opacity) = match *sample {
            [grey] => (of(grey), 1.0),
            [grey, a] => (of(grey), of(a)),
            [r, g, b] => (grey(r, g, b), 1.0),
            [r, g, b, a] => (grey(r, g, b), of(a)),
            _ => (0.0, 0.0),
        };
        Self {
            light: light * opacity,
            opacity,
        }
    }

    fn on(self, paper: f32) -> f32 {
        self.light + (1.0 - self.opacity) * paper
    }
}

/// What a row or column of the PNG gives to those of the small picture: which, and what share of it.
type Overlap = Vec<(usize, f32)>;

fn overlaps(length: usize) -> Vec<Overlap> {
    let scale = SIDE as f32 / length as f32;
    let overlap = |at: usize| {
        let (from, to) = (at as f32 * scale, (at + 1) as f32 * scale);
        let share = |cell: usize| (to.min((cell + 1) as f32) - from.max(cell as f32)).max(0.0);
        let last = (to.ceil() as usize).min(SIDE);
        (from as usize..last).map(|cell| (cell, share(cell))).collect()
    };
    (0..length).map(overlap).collect()
}

#[derive(Default)]
struct Sums {
    cells: [[Pixel; SIDE]; SIDE],
    border: Vec<Pixel>,
}

impl Sums {
    fn add(&mut self, pixel: Pixel, columns: &Overlap, rows: &Overlap) {
        for (row, high) in rows {
            for (column, wide) in columns {
                let cell = &mut self.cells[*row][*column];
                cell.light += pixel.light * high * wide;
                cell.opacity += pixel.opacity * high * wide;
            }
        }
    }

    /// What is transparent shows the paper: black under light strokes, white under dark ones.
    fn on_paper(mut self) -> Picture {
        let cells = self.cells.as_flattened();
        let light: f32 = cells.iter().map(|cell| cell.light).sum();
        let opacity: f32 = cells.iter().map(|cell| cell.opacity).sum();
        let paper = if light > 0.5 * opacity { 0.0 } else { 1.0 };
        let mut pixels = [0.0; SIDE * SIDE];
        for (pixel, cell) in pixels.iter_mut().zip(cells) {
            *pixel = cell.on(paper).clamp(0.0, 1.0);
        }
        self.border
            .sort_by(|one, two| one.on(paper).total_cmp(&two.on(paper)));
        let border = self
            .border
            .get(self.border.len() / 2)
            .map_or(paper, |pixel| pixel.on(paper));
        Picture { pixels, border }
    }
}

#[cfg(test)]
mod tests;
