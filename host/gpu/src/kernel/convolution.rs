use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::sides::{Line, Padding, Sides, lines};
use super::{Activation, Argument, Describe, Element, Expected, Words, check_shape, floats, product};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use ndarray::s;
use serde::{Deserialize, Serialize};

/// Convolution of images in two dimensions, as ONNX's `Conv`: `f32`, batch by channels by height by width.
///
/// Inputs `image`, `weights` (filters by channels / groups by kernel-height by kernel-width) and, with [`Convolution::bias`], `bias` of
/// `filters`; output `result`, batch by filters by [`Convolution::out_height`] by [`Convolution::out_width`]. With as many groups as
/// channels it is depthwise.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Convolution {
    /// Images.
    #[serde(default = "one")]
    pub batch: u32,
    /// Channels of an image.
    pub channels: u32,
    /// Rows of an image.
    pub height: u32,
    /// Columns of an image.
    pub width: u32,
    /// Channels of the result.
    pub filters: u32,
    /// Rows of a filter.
    pub kernel_height: u32,
    /// Columns of a filter.
    pub kernel_width: u32,
    /// Pixels from one application to the next. Default 1.
    #[serde(default = "Sides::one")]
    pub stride: Sides,
    /// Zeros around the image. Default none.
    #[serde(default)]
    pub padding: Padding,
    /// Pixels from one tap of a filter to the next. Default 1.
    #[serde(default = "Sides::one")]
    pub dilation: Sides,
    /// Groups of channels that only see each other. Default 1.
    #[serde(default = "one")]
    pub groups: u32,
    /// Whether there is a third input, added to every pixel of a filter. Default not.
    #[serde(default)]
    pub bias: bool,
    /// What is done to every element at the end.
    #[serde(default)]
    pub activation: Activation,
}

/// The most numbers that the processor writes out at once: an image under all taps of a large filter has no bound otherwise.
const MOST_SPREAD: usize = 1 << 20;

const fn one() -> u32 {
    1
}

impl Convolution {
    /// Rows of the result.
    pub const fn out_height(&self) -> u32 {
        self.lines().0.extent()
    }

    /// Columns of the result.
    pub const fn out_width(&self) -> u32 {
        self.lines().1.extent()
    }

    /// The rows and the columns of an image under a filter.
    const fn lines(&self) -> (Line, Line) {
        lines(
            (self.height, self.width),
            (self.kernel_height, self.kernel_width),
            self.stride,
            self.dilation,
            self.padding,
        )
    }

    /// Taps of one filter.
    const fn taps(&self) -> u32 {
        self.channels / self.groups * self.kernel_height * self.kernel_width
    }

    fn parameters(&self) -> Vec<u32> {
        vec![
            self.batch,
            self.channels,
            self.height,
            self.width,
            self.filters,
            self.kernel_height,
            self.kernel_width,
            self.stride.rows,
            self.stride.columns,
            self.padding.top,
            self.padding.left,
            self.dilation.rows,
            self.dilation.columns,
            self.groups,
            self.out_height(),
            self.out_width(),
            u32::from(self.bias),
            self.activation as u32,
        ]
    }

    /// The pixel under a tap of a filter; none in the padding.
    fn pixel(&self, channel: usize, tap: (usize, usize), out: (usize, usize)) -> Option<usize> {
        let (rows, columns) = self.lines();
        let (row, column) = (rows.pixel(out.0, tap.0)?, columns.pixel(out.1, tap.1)?);
        Some((channel * self.height as usize + row) * self.width as usize + column)
    }

    /// Channel within its group, row and column of a tap.
    const fn tap(&self, tap: usize) -> (usize, (usize, usize)) {
        let (height, width) = (self.kernel_height as usize, self.kernel_width as usize);
        (tap / (height * width), (tap / width % height, tap % width))
    }
}

impl Describe for Convolution {
    fn check(&self) -> Result<(), GpuError> {
        check_shape(
            "convolution",
            &[
                ("batch", self.batch),
                ("channels", self.channels),
                ("height", self.height),
                ("width", self.width),
                ("filters", self.filters),
                ("kernel-height", self.kernel_height),
                ("kernel-width", self.kernel_width),
                ("stride", self.stride.rows),
                ("stride", self.stride.columns),
                ("padding", self.padding.most().saturating_add(1)),
                ("dilation", self.dilation.rows),
                ("dilation", self.dilation.columns),
                ("groups", self.groups),
            ],
            &[],
        )?;
        let must =
            |field, value: u32, must: &str| Err(GpuError::kernel("convolution", field, value as usize, must));
        if !self.channels.is_multiple_of(self.groups) || !self.filters.is_multiple_of(self.groups) {
            return must("groups", self.groups, "it divides the channels and the filters");
        }
        if self.out_height() == 0 {
            return must("kernel-height", self.kernel_height, "it reaches beyond the image");
        }
        if self.out_width() == 0 {
            return must("kernel-width", self.kernel_width, "it reaches beyond the image");
        }
        let product = |sides: &[u32]| {
            sides
                .iter()
                .fold(1u64, |all, side| all.saturating_mul(u64::from(*side)))
        };
        let group = self.channels / self.groups;
        check_shape(
            "convolution",
            &[],
            &[
                (
                    "image",
                    product(&[self.batch, self.channels, self.height, self.width]),
                ),
                (
                    "weights",
                    product(&[self.filters, group, self.kernel_height, self.kernel_width]),
                ),
                (
                    "result",
                    product(&[self.batch, self.filters, self.out_height(), self.out_width()]),
                ),
            ],
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let product = |sides: [u32; 4]| sides.into_iter().map(|side| side as usize).product();
        let mut arguments = vec![
            Argument::input(
                "image",
                Element::F32,
                product([self.batch, self.channels, self.height, self.width]),
            ),
            Argument::input(
                "weights",
                Element::F32,
                self.filters as usize * self.taps() as usize,
            ),
        ];
        if self.bias {
            arguments.push(Argument::input("bias", Element::F32, self.filters as usize));
        }
        arguments.push(Argument::output(
            "result",
            Element::F32,
            product([self.batch, self.filters, self.out_height(), self.out_width()]),
        ));
        arguments
    }

    fn passes(&self, tile: Tile) -> Vec<Pass> {
        let pixels = self.out_height() * self.out_width();
        let bindings = match self.bias {
            true => vec![0, 1, 2, 3],
            false => vec![0, 1, 1, 2],
        };
        // A product of matrices pays where there is something to share: several filters that see all channels.
        if self.groups == 1 && self.filters >= 8 {
            return vec![Pass {
                name: "convolution-tiled",
                source: source!("window", "convolution_head", "convolution_tiled", "tile"),
                constants: tile.constants(),
                parameters: self.parameters(),
                bindings,
                threads: tile.threads(),
                workgroups: tile.workgroups(self.filters, pixels, self.batch),
            }];
        }
        vec![Pass {
            name: "convolution",
            source: source!("window", "convolution_head", "convolution", "each"),
            constants: vec![],
            parameters: self.parameters(),
            bindings,
            threads: EACH,
            workgroups: each(u64::from(self.batch) * u64::from(self.filters) * u64::from(pixels)),
        }]
    }

    /// Each group's pixels under each tap are written out as a matrix, some columns at a time, whose product with the filters is
    /// the result.
    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (image, weights) = (floats(inputs[0]), floats(inputs[1]));
        let (height, width) = (self.out_height() as usize, self.out_width() as usize);
        let (pixels, taps) = (height * width, self.taps() as usize);
        let (channels, filters) = (
            (self.channels / self.groups) as usize,
            (self.filters / self.groups) as usize,
        );
        let image_size = (self.channels * self.height * self.width) as usize;
        let result = floats_mut(&mut outputs[0]);
        let most = (MOST_SPREAD / taps).clamp(1, pixels);
        let mut spread = vec![0.0; taps * most];
        for (number, result) in result.chunks_mut(filters * pixels).enumerate() {
            let (batch, group) = (number / self.groups as usize, number % self.groups as usize);
            let image = &image[batch * image_size..][..image_size];
            let weights = &weights[group * filters * taps..][..filters * taps];
            let weights = product::view(weights, filters as u32, taps as u32, taps as u32);
            for begin in (0..pixels).step_by(most) {
                let here = most.min(pixels - begin);
                let spread = &mut spread[..taps * here];
                cpu.rows(spread, here, |tap, row| {
                    let (channel, tap) = self.tap(tap);
                    for (place, value) in (begin..).zip(row) {
                        let out = (place / width, place % width);
                        let pixel = self.pixel(group * channels + channel, tap, out);
                        *value = pixel.map_or(0.0, |pixel| image[pixel]);
                    }
                });
                if cpu.is_late() {
                    return;
                }
                let columns =
                    product::view_mut(result, filters, pixels).slice_move(s![.., begin..begin + here]);
                let spread = product::view(spread, taps as u32, here as u32, here as u32);
                product::multiply(cpu, weights, spread, columns);
            }
        }
        let bias = self.bias.then(|| floats(inputs[2]));
        if bias.is_some() || self.activation != Activation::None {
            let filters = self.filters as usize;
            cpu.rows(result, pixels, |number, image| {
                let bias = bias.map_or(0.0, |bias| bias[number % filters]);
                for value in image {
                    *value = self.activation.apply(*value + bias);
                }
            });
        }
    }

    /// By the definition: which pixels are under a tap is worked out another way than on the processor.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let (rows, columns) = self.lines();
        let (image, weights) = (floats(inputs[0]), floats(inputs[1]));
        let (height, width) = (self.out_height() as usize, self.out_width() as usize);
        let (channels, filters) = (
            (self.channels / self.groups) as usize,
            (self.filters / self.groups) as usize,
        );
        let image_size = (self.channels * self.height * self.width) as usize;
        let (mut values, mut scale) = (Vec::new(), Vec::new());
        for batch in 0..self.batch as usize {
            for filter in 0..self.filters as usize {
                for place in 0..height * width {
                    let (mut sum, mut size) = (0.0, 0.0);
                    for number in 0..self.taps() as usize {
                        let (channel, tap) = self.tap(number);
                        let channel = filter / filters * channels + channel;
                        let row = rows.by_definition(place / width, tap.0);
                        let column = columns.by_definition(place % width, tap.1);
                        let (Some(row), Some(column)) = (row, column) else {
                            continue;
                        };
                        let pixel = (channel * self.height as usize + row) * self.width as usize + column;
                        let weight = f64::from(weights[filter * self.taps() as usize + number]);
                        let product = weight * f64::from(image[batch * image_size + pixel]);
                        sum += product;
                        size += product.abs();
                    }
                    let bias = match self.bias {
                        true => f64::from(floats(inputs[2])[filter]),
                        false => 0.0,
                    };
                    values.push(self.activation.exactly(sum + bias));
                    scale.push(size + bias.abs());
                }
            }
        }
        vec![Expected { values, scale }]
    }

    fn operations(&self) -> u64 {
        let outputs =
            self.batch as u64 * self.filters as u64 * self.out_height() as u64 * self.out_width() as u64;
        2 * outputs * self.taps() as u64
    }
}
