use karman_types::escape_xml;
use std::fmt::Write as _;

/// A plot of some curves over one axis, as an SVG that reads well on light and on dark ground.
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    x: String,
    y: String,
    curves: Vec<Curve>,
}

/// A curve of a plot: points in the order in which they are joined. What is not finite is left out.
#[derive(Clone, Debug)]
pub struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
// The margins around the curves; the legend stands in the right one.
const LEFT: f64 = 64.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 160.0;
const BOTTOM: f64 = 48.0;
/// Okabe and Ito's colours, which people with any kind of colour vision tell apart; without black and yellow, which vanish on
/// dark and on light ground.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const TICKS: f64 = 6.0;

impl Curve {
    /// A curve with its name.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        Self {
            name: name.into(),
            points: points.into_iter().filter(finite).collect(),
        }
    }
}

impl Plot {
    /// A plot with its title and what its axes show.
    pub fn new(title: &str, x: &str, y: &str, curves: Vec<Curve>) -> Self {
        Self {
            title: title.into(),
            x: x.into(),
            y: y.into(),
            curves,
        }
    }

    /// The plot as a file.
    pub fn svg(&self) -> String {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let frame = Frame {
            x: Axis::over(points().map(|point| point.0)),
            y: Axis::over(points().map(|point| point.1)),
        };
        let mut svg = String::new();
        // Writing into a string cannot fail, here and below.
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
             <title>{title}</title>\n<style>\
             text{{font:12px system-ui,sans-serif;fill:#444}}.grid{{stroke:#8884;fill:none}}\
             .curve{{fill:none;stroke-width:2;stroke-linejoin:round}}\
             @media(prefers-color-scheme:dark){{text{{fill:#ccc}}}}</style>\n\
             <text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">{title}</text>\n",
            title = escape_xml(&self.title)
        );
        frame.draw(&mut svg);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"14\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            escape_xml(&self.x),
            escape_xml(&self.y),
            middle = HEIGHT / 2.0
        );
        for (index, curve) in self.curves.iter().enumerate() {
            curve.draw(&frame, index, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Curve {
    /// The curve, and its line of the legend.
    fn draw(&self, frame: &Frame, index: usize, svg: &mut String) {
        let colour = COLOURS[index % COLOURS.len()];
        // A second round through the colours is dashed.
        let dash = ["", " stroke-dasharray=\"6 4\""][usize::from(index >= COLOURS.len())];
        let mut path = String::new();
        for (number, (x, y)) in self.points.iter().enumerate() {
            let step = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", frame.place_x(*x), frame.place_y(*y));
        }
        let (at, row) = (WIDTH - RIGHT + 12.0, TOP + 8.0 + 18.0 * index as f64);
        let _ = writeln!(
            svg,
            "<path class=\"curve\" stroke=\"{colour}\"{dash} d=\"{path}\"/>\
             <path class=\"curve\" stroke=\"{colour}\"{dash} d=\"M{at} {row}h18\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            at + 24.0,
            row + 4.0,
            escape_xml(&self.name)
        );
    }
}

/// The two axes, and where a value of each lies in the picture.
struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn place_x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn place_y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// A line and a label for each tick.
    fn draw(&self, svg: &mut String) {
        for (value, label) in self.x.ticks() {
            let (at, below) = (self.place_x(value), HEIGHT - BOTTOM);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{below}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                below + 18.0
            );
        }
        for (value, label) in self.y.ticks() {
            let (at, end) = (self.place_y(value), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{end}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
    }
}

/// From where to where, and how far apart the ticks are: 1, 2 or 5 times a power of ten.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Self {
        // Zero is always seen: a plot that begins elsewhere makes small differences look large.
        let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let high = if high > low { high } else { low + 1.0 };
        let power = 10_f64.powf(((high - low) / TICKS).log10().floor());
        let times = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|times| times * power * TICKS >= high - low);
        let step = times.unwrap_or(10.0) * power;
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            step,
        }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        let places = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=count).map(move |tick| {
            let value = self.low + f64::from(tick) * self.step;
            (value, format!("{value:.places$}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_well_formed() {
        let curves = (0..8).map(|n| {
            let points = vec![
                (0.0, f64::from(n)),
                (1.5, 0.25),
                (f64::NAN, 1.0),
                (2.0, f64::INFINITY),
            ];
            Curve::new(&format!("<{n}>"), points)
        });
        let svg = Plot::new("a & b", "x", "y", curves.collect()).svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("class=\"curve\"").count(), 16);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;7&gt;") && svg.contains("stroke-dasharray"));
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn the_name_of_the_vertical_axis_is_rotated_about_its_middle() {
        let svg = Plot::new("title", "seconds", "share", Vec::new()).svg();
        assert!(
            svg.contains("transform=\"rotate(-90 14 200.0)\">share</text>"),
            "{svg}"
        );
    }

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |most: f64| {
            let axis = Axis::over([0.1 * most, most].into_iter());
            axis.ticks().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(0.9), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(47.0), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(Axis::over(std::iter::empty()).ticks().count(), 6);
    }
}
