use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::sides::{Line, Padding, Sides, lines};
use super::{Argument, Describe, Element, Expected, MOST_WORDS, Words, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// One number from each window of images in two dimensions, as ONNX's `MaxPool` and `AveragePool`: `f32`, planes by height by width.
///
/// Input `image`; output `result`, planes by [`Pool::out_height`] by [`Pool::out_width`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pool {
    /// Which number.
    pub window: Window,
    /// Images times their channels: each plane is for itself.
    pub planes: u32,
    /// Rows of an image.
    pub height: u32,
    /// Columns of an image.
    pub width: u32,
    /// Rows of a window.
    pub kernel_height: u32,
    /// Columns of a window.
    pub kernel_width: u32,
    /// Pixels from one window to the next. Default 1.
    #[serde(default = "Sides::one")]
    pub stride: Sides,
    /// Pixels around the image that are no part of a window's number. Less than a window reaches. Default none.
    #[serde(default)]
    pub padding: Padding,
    /// Pixels from one of a window to the next. Where there is padding before the image, no more than the image has. Default 1.
    #[serde(default = "Sides::one")]
    pub dilation: Sides,
    /// Whether a mean counts the padding as zeros all the same. Default not.
    #[serde(default)]
    pub counts_padding: bool,
}

/// How a window becomes one number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Window {
    /// The largest.
    Max,
    /// The mean.
    Mean,
}

/// Pixels between two looks at the time: some milliseconds.
const PIECE: u64 = 1 << 20;

impl Pool {
    /// Rows of the result.
    pub const fn out_height(&self) -> u32 {
        self.lines().0.extent()
    }

    /// Columns of the result.
    pub const fn out_width(&self) -> u32 {
        self.lines().1.extent()
    }

    /// The rows and the columns of an image under a window.
    const fn lines(&self) -> (Line, Line) {
        lines(
            (self.height, self.width),
            (self.kernel_height, self.kernel_width),
            self.stride,
            self.dilation,
            self.padding,
        )
    }

    fn results(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.out_height()) * u64::from(self.out_width())
    }

    fn pixels(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.height) * u64::from(self.width)
    }

    /// The number of one window: `values` are its pixels.
    fn fold(&self, values: impl Iterator<Item = f64>) -> f64 {
        let (mut most, mut sum, mut count) = (f64::MIN, 0.0, 0u32);
        for value in values {
            most = most.max(value);
            sum += value;
            count += 1;
        }
        match (self.window, self.counts_padding) {
            (Window::Max, _) => most,
            (Window::Mean, true) => sum / (f64::from(self.kernel_height) * f64::from(self.kernel_width)),
            (Window::Mean, false) => sum / f64::from(count),
        }
    }

    const fn taps(&self) -> u64 {
        self.kernel_height as u64 * self.kernel_width as u64
    }

    /// The number at one place of the result; of no use where time is over meanwhile.
    fn at(&self, cpu: &Cpu, image: &[f32], (plane, row, column): (usize, usize, usize)) -> f64 {
        let (rows, columns) = self.lines();
        let columns = columns.pixels(column);
        let takes_long = self.taps() > PIECE;
        let in_time = rows.pixels(row).take_while(|_| !(takes_long && cpu.is_late()));
        let values = in_time.flat_map(|row| {
            let line = (plane * self.height as usize + row) * self.width as usize;
            columns.clone().map(move |column| f64::from(image[line + column]))
        });
        self.fold(values)
    }
}

impl Describe for Pool {
    fn check(&self) -> Result<(), GpuError> {
        check_shape(
            "pool",
            &[
                ("planes", self.planes),
                ("height", self.height),
                ("width", self.width),
                ("kernel-height", self.kernel_height),
                ("kernel-width", self.kernel_width),
                ("stride", self.stride.rows),
                ("stride", self.stride.columns),
                ("padding", self.padding.most().saturating_add(1)),
                ("dilation", self.dilation.rows),
                ("dilation", self.dilation.columns),
            ],
            &[],
        )?;
        let must = |field, value: u32, must: &str| Err(GpuError::kernel("pool", field, value as usize, must));
        if self.taps() > MOST_WORDS {
            return must(
                "kernel-width",
                self.kernel_width,
                "a window has at most 2²⁸ pixels",
            );
        }
        let (rows, columns) = self.lines();
        if !rows.is_always_on_it() || !columns.is_always_on_it() {
            let says = "a window is larger, and some of it lies on the image";
            return must("padding", self.padding.most(), says);
        }
        if self.out_height() == 0 {
            return must("kernel-height", self.kernel_height, "it reaches beyond the image");
        }
        if self.out_width() == 0 {
            return must("kernel-width", self.kernel_width, "it reaches beyond the image");
        }
        let sides = u64::from(self.height) * u64::from(self.width);
        let image = sides.saturating_mul(u64::from(self.planes));
        // With a padding the result of many small images may be larger than they are.
        let sides = u64::from(self.out_height()) * u64::from(self.out_width());
        let result = sides.saturating_mul(u64::from(self.planes));
        check_shape("pool", &[], &[("image", image), ("result", result)])
    }

    fn arguments(&self) -> Vec<Argument> {
        vec![
            Argument::input("image", Element::F32, self.pixels() as usize),
            Argument::output("result", Element::F32, self.results() as usize),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "pool",
            source: source!("window", "pool", "each"),
            constants: vec![("FOLD", self.window as u32)],
            parameters: vec![
                self.planes,
                self.height,
                self.width,
                self.kernel_height,
                self.kernel_width,
                self.stride.rows,
                self.stride.columns,
                self.padding.top,
                self.padding.left,
                self.out_height(),
                self.out_width(),
                u32::from(self.counts_padding),
                self.dilation.rows,
                self.dilation.columns,
            ],
            bindings: vec![0, 1],
            threads: EACH,
            workgroups: each(self.results()),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let image = floats(inputs[0]);
        let rows = self.out_height() as usize;
        let windows = (PIECE / self.taps()).max(1) as usize;
        cpu.rows(
            floats_mut(&mut outputs[0]),
            self.out_width() as usize,
            |number, results| {
                for (column, result) in results.iter_mut().enumerate() {
                    if column % windows == 0 && cpu.is_late() {
                        return;
                    }
                    *result = self.at(cpu, image, (number / rows, number % rows, column)) as f32;
                }
            },
        );
    }

    /// By the definition, pixel by pixel: which of them a window covers is worked out another way than on the processor.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let image = floats(inputs[0]);
        let (height, width) = (self.height as usize, self.width as usize);
        let (across, taps) = (
            self.kernel_width as usize,
            self.kernel_height as usize * self.kernel_width as usize,
        );
        let (rows, columns) = self.lines();
        let mut values = Vec::new();
        for plane in image.chunks(height * width) {
            for row in 0..self.out_height() as usize {
                for column in 0..self.out_width() as usize {
                    let pixel = |tap: usize| {
                        let y = rows.by_definition(row, tap / across)?;
                        let x = columns.by_definition(column, tap % across)?;
                        Some(f64::from(plane[y * width + x]))
                    };
                    values.push(self.fold((0..taps).filter_map(pixel)));
                }
            }
        }
        vec![Expected::plain(values)]
    }

    fn operations(&self) -> u64 {
        self.results() * self.taps()
    }
}
