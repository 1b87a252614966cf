//! The drawing: a line for each layer, from top to bottom in the order in which they run, so that a cut is a horizontal line and
//! what crosses it is what it cuts. What skips layers runs beside them, each in a lane of its own.

use super::{Crossing, Inspection, Row, count};
use karman_types::{escape_xml, format_bytes};
use std::fmt::Write;

const LINE: usize = 30;
const BOX: usize = 18;
const TOP: usize = 84;
const LANE: usize = 9;
const BOX_WIDTH: usize = 350;
const SHAPES: usize = 250;
const BAR: usize = 120;
const CUTS: usize = 190;

const STYLE: &str = "text{font:12px sans-serif;fill:#1f2933}.small{font-size:11px;fill:#52606d}.title{font-size:15px;\
font-weight:bold}.box{fill:#e8eef7;stroke:#7b8fb2}.heavy{fill:#c9d8f0}.edge{fill:none;stroke:#52606d}\
.skip{fill:none;stroke:#b4690e;stroke-width:1.4}.bar{fill:#9fb3c8}.cut{stroke:#cbd2d9;stroke-dasharray:2 4}\
.candidate{stroke:#0f7b3f;stroke-width:1.4;stroke-dasharray:7 4}.good{font-size:11px;fill:#0f7b3f;font-weight:bold}";

/// Where everything stands.
struct Layout {
    /// The left edge of the boxes.
    left: usize,
    right: usize,
    height: usize,
    lanes: Vec<Lane>,
}

/// What skips layers: from a layer, or from the inputs above all, to others further down.
struct Lane {
    at: usize,
    from: Option<usize>,
    to: Vec<usize>,
}

pub(super) fn svg(model: &Inspection) -> String {
    let layout = Layout::of(model);
    let mut out = String::new();
    // Writing to a text does not fail.
    let _ = layout.write(model, &mut out);
    out
}

impl Layout {
    fn of(model: &Inspection) -> Self {
        let lanes = lanes(&model.links);
        let used = lanes.iter().map(|lane| lane.at + 1).max().unwrap_or(0);
        let left = 24 + LANE * (used + 1);
        Self {
            left,
            right: left + BOX_WIDTH + SHAPES + BAR + CUTS,
            height: TOP + LINE * model.rows.len() + 24,
            lanes,
        }
    }

    fn write(&self, model: &Inspection, out: &mut String) -> std::fmt::Result {
        let (width, height) = (self.right + 16, self.height);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">"#
        )?;
        writeln!(
            out,
            r#"<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>"#
        )?;
        let summary = model.summary();
        let (title, signature) = summary.split_once(": ").unwrap_or((&summary, ""));
        writeln!(
            out,
            r#"<text class="title" x="16" y="24">{}</text>"#,
            escape_xml(title)
        )?;
        writeln!(
            out,
            r#"<text class="small" x="16" y="43">{}</text>"#,
            escape_xml(&short(signature, 150))
        )?;
        self.heads(out)?;
        if let Some(cut) = &model.start {
            self.cut(out, 0, cut)?;
        }
        for (at, row) in model.rows.iter().enumerate() {
            if let Some(cut) = &row.cut {
                self.cut(out, at + 1, cut)?;
            }
        }
        self.edges(model, out)?;
        let most = model.rows.iter().map(|row| row.macs).max().unwrap_or(0).max(1);
        for (at, row) in model.rows.iter().enumerate() {
            self.row(out, at, row, most)?;
        }
        writeln!(out, "</svg>")
    }

    fn heads(&self, out: &mut String) -> std::fmt::Result {
        let y = TOP - 20;
        let shapes = self.left + BOX_WIDTH + 12;
        let heads = [
            (self.left, "layer"),
            (shapes, "output"),
            (shapes + SHAPES, "multiply-accumulates"),
            (self.right - CUTS + 24, "crosses (green: least so far)"),
        ];
        for (x, head) in heads {
            writeln!(out, r#"<text class="small" x="{x}" y="{y}">{head}</text>"#)?;
        }
        Ok(())
    }

    /// The middle of a layer's box.
    fn y(&self, layer: usize) -> usize {
        TOP + LINE * layer + LINE / 2
    }

    fn cut(&self, out: &mut String, after: usize, cut: &Crossing) -> std::fmt::Result {
        let y = TOP + LINE * after;
        let (line, text) = match cut.is_candidate {
            true => ("candidate", "good"),
            false => ("cut", "small"),
        };
        let (end, x) = (self.right - CUTS + 16, self.right - CUTS + 24);
        writeln!(
            out,
            r#"<line class="{line}" x1="8" y1="{y}" x2="{end}" y2="{y}"/>"#
        )?;
        let label = match cut.tensors {
            1 => format_bytes(cut.bytes),
            n => format!("{} in {n} tensors", format_bytes(cut.bytes)),
        };
        writeln!(
            out,
            r#"<text class="{text}" x="{x}" y="{}">{label}</text>"#,
            y + 4
        )
    }

    fn row(&self, out: &mut String, at: usize, row: &Row, most: u64) -> std::fmt::Result {
        let (y, x) = (self.y(at), self.left);
        let heavy = if row.macs.saturating_mul(20) >= most {
            " heavy"
        } else {
            ""
        };
        let (top, base) = (y - BOX / 2, y + 4);
        writeln!(
            out,
            r#"<g><title>{}</title><rect class="box{heavy}" x="{x}" y="{top}" width="{BOX_WIDTH}" height="{BOX}" rx="4"/>"#,
            escape_xml(&format!(
                "{}: {} weights, {} out",
                row.layer,
                count(row.parameters),
                format_bytes(row.bytes)
            ))
        )?;
        let label = short(&format!("{}  {}  {}", at + 1, row.op, row.layer), 46);
        writeln!(
            out,
            r#"<text x="{}" y="{base}">{}</text>"#,
            x + 8,
            escape_xml(&label)
        )?;
        let shapes = x + BOX_WIDTH + 12;
        let output = short(&row.output, 36) + if row.is_output { " → caller" } else { "" };
        writeln!(
            out,
            r#"<text class="small" x="{shapes}" y="{base}">{}</text>"#,
            escape_xml(&output)
        )?;
        if row.macs > 0 {
            let bars = shapes + SHAPES;
            let length = (row.macs as f64 / most as f64 * (BAR - 20) as f64).ceil();
            writeln!(
                out,
                r#"<rect class="bar" x="{bars}" y="{}" width="{length}" height="8"/>"#,
                y - 4
            )?;
        }
        writeln!(out, "</g>")
    }

    fn edges(&self, model: &Inspection, out: &mut String) -> std::fmt::Result {
        let middle = self.left + BOX_WIDTH / 2;
        for (from, to) in &model.links {
            let start = from.map_or(TOP - 12, |from| self.y(from) + BOX / 2);
            let next = from.map_or(0, |from| from + 1);
            if to.contains(&next) {
                let end = self.y(next) - BOX / 2;
                writeln!(out, r#"<path class="edge" d="M{middle} {start}V{end}"/>"#)?;
            } else if to.is_empty() && Some(model.rows.len()) == from.map(|from| from + 1) {
                writeln!(
                    out,
                    r#"<path class="edge" d="M{middle} {start}V{}"/>"#,
                    start + 14
                )?;
            }
        }
        for lane in &self.lanes {
            let x = self.left - LANE * (lane.at + 2);
            let start = lane.from.map_or(TOP - 12, |from| self.y(from));
            let first = if lane.from.is_some() { self.left } else { middle };
            let last = lane.to.iter().map(|to| self.y(*to)).max().unwrap_or(start);
            write!(out, r#"<path class="skip" d="M{first} {start}H{x}V{last}"#)?;
            for to in &lane.to {
                write!(out, "M{x} {}H{}", self.y(*to), self.left)?;
            }
            writeln!(out, r#""/>"#)?;
        }
        Ok(())
    }
}

/// A lane for each link that skips layers, as near to the boxes as those allow that run beside it or touch it.
fn lanes(links: &[(Option<usize>, Vec<usize>)]) -> Vec<Lane> {
    let mut lanes: Vec<(usize, usize, Lane)> = links
        .iter()
        .filter_map(|(from, to)| {
            let next = from.map_or(0, |from| from + 1);
            let to: Vec<usize> = to.iter().copied().filter(|to| *to != next).collect();
            let (start, end) = (from.unwrap_or(0), *to.iter().max()?);
            Some((
                start,
                end,
                Lane {
                    at: 0,
                    from: *from,
                    to,
                },
            ))
        })
        .collect();
    // Short ones first, so that they lie inside the long ones.
    lanes.sort_by_key(|(start, end, _)| (end - start, *start));
    let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
    for (start, end, lane) in &mut lanes {
        let free = |lane: &Vec<(usize, usize)>| lane.iter().all(|(s, e)| *end < *s || *e < *start);
        lane.at = taken.iter().position(free).unwrap_or(taken.len());
        taken.resize_with(taken.len().max(lane.at + 1), Vec::new);
        taken[lane.at].push((*start, *end));
    }
    lanes.into_iter().map(|(.., lane)| lane).collect()
}

fn short(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
