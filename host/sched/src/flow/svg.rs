//! The graph as a picture: in layers from left to right, each task after all it waits for (Sugiyama, Tagawa and Toda 1981).

use super::draw::{about, label, progress};
use super::{Record, StepState};
use karman_types::{Workflow, escape_xml};
use std::collections::BTreeMap;
use std::fmt::Write;

const BOX_HEIGHT: f64 = 44.0;
const BEND_HEIGHT: f64 = 18.0;
const GAP: f64 = 20.0;
const COLUMN_GAP: f64 = 130.0;
const LETTER: f64 = 7.2;
const SWEEPS: usize = 8;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1b1f24}text.more{font-size:10px;fill:#59636e}\
rect{fill:#f6f8fa;stroke:#8c959f}path{fill:none;stroke:#8c959f}.dashed{stroke-dasharray:4 3}\
.done rect{stroke:#1a7f37;fill:#dafbe1}.running rect{stroke:#0969da;fill:#ddf4ff}.skipped{opacity:.45}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}text.more{fill:#9198a1}rect{fill:#161b22}\
.done rect{fill:#12261e}.running rect{fill:#121d2f}}";

/// What stands in a layer: a task, or the way of an edge through it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Item {
    Task(usize),
    Bend { edge: usize, layer: usize },
}

/// Where the middle of an item is, and how wide its column.
#[derive(Clone, Copy, Debug)]
struct Spot {
    left: f64,
    right: f64,
    y: f64,
}

/// A workflow as an SVG image, with how far each task is where a record is given.
pub fn svg(workflow: &Workflow, record: Option<&Record>) -> String {
    let layers = layers(workflow);
    let (spots, width, height) = spots(workflow, &layers);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\"><title>{}</title><style>{STYLE}</style><defs><marker id=\"tip\" viewBox=\"0 0 8 8\" \
         refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" \
         style=\"fill:#8c959f\"/></marker></defs>\n",
        workflow.name()
    );
    for edge in 0..workflow.edges().len() {
        draw_edge(&mut svg, workflow, edge, &spots);
    }
    for task in 0..workflow.tasks().len() {
        draw_task(&mut svg, workflow, task, spots[&Item::Task(task)], record);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The items of an edge from its task to its task.
fn way(workflow: &Workflow, levels: &[usize], edge: usize) -> Vec<Item> {
    let ends = &workflow.edges()[edge];
    let bends = (levels[ends.from] + 1..levels[ends.to]).map(|layer| Item::Bend { edge, layer });
    let from = std::iter::once(Item::Task(ends.from));
    from.chain(bends).chain([Item::Task(ends.to)]).collect()
}

/// The items of each layer from top to bottom, so ordered that few edges cross: each goes to the mean place of its neighbours in
/// the layer before, then in the layer after, in turn.
fn layers(workflow: &Workflow) -> Vec<Vec<Item>> {
    let levels = workflow.levels();
    let mut layers = vec![Vec::new(); levels.iter().max().map_or(0, |last| last + 1)];
    for (task, &level) in levels.iter().enumerate() {
        layers[level].push(Item::Task(task));
    }
    let mut neighbours: BTreeMap<Item, [Vec<Item>; 2]> = BTreeMap::new();
    for edge in 0..workflow.edges().len() {
        let way = way(workflow, &levels, edge);
        for &item in &way[1..way.len() - 1] {
            if let Item::Bend { layer, .. } = item {
                layers[layer].push(item);
            }
        }
        for pair in way.windows(2) {
            neighbours.entry(pair[0]).or_default()[1].push(pair[1]);
            neighbours.entry(pair[1]).or_default()[0].push(pair[0]);
        }
    }
    for sweep in 0..SWEEPS {
        let (side, order): (usize, Vec<usize>) = match sweep % 2 {
            0 => (0, (1..layers.len()).collect()),
            _ => (1, (0..layers.len().saturating_sub(1)).rev().collect()),
        };
        for layer in order {
            let beside = if side == 0 { layer - 1 } else { layer + 1 };
            let places: BTreeMap<Item, usize> = layers[beside].iter().copied().zip(0..).collect();
            let mean = |place: usize, item: &Item| {
                let beside = neighbours.get(item).map_or(&[][..], |sides| &sides[side]);
                let sum: usize = beside.iter().filter_map(|item| places.get(item)).sum();
                match beside.len() {
                    0 => place as f64,
                    count => sum as f64 / count as f64,
                }
            };
            let mut placed: Vec<(f64, Item)> = layers[layer]
                .iter()
                .enumerate()
                .map(|(place, item)| (mean(place, item), *item))
                .collect();
            placed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[layer] = placed.into_iter().map(|(_, item)| item).collect();
        }
    }
    layers
}

/// Where everything stands, and the size of the picture.
fn spots(workflow: &Workflow, layers: &[Vec<Item>]) -> (BTreeMap<Item, Spot>, f64, f64) {
    let height_of = |item: &Item| match item {
        Item::Task(_) => BOX_HEIGHT + GAP,
        Item::Bend { .. } => BEND_HEIGHT + GAP,
    };
    let height = |layer: &Vec<Item>| layer.iter().map(height_of).sum::<f64>();
    let tallest = layers.iter().map(height).fold(0.0, f64::max);
    let mut spots = BTreeMap::new();
    let mut left = GAP;
    for layer in layers {
        let width_of = |item: &Item| match item {
            Item::Task(task) => box_width(workflow, *task),
            Item::Bend { .. } => 0.0,
        };
        let right = left + layer.iter().map(width_of).fold(0.0, f64::max);
        let mut top = GAP + (tallest - height(layer)) / 2.0;
        for item in layer {
            let y = top + height_of(item) / 2.0;
            top += height_of(item);
            spots.insert(*item, Spot { left, right, y });
        }
        left = right + COLUMN_GAP;
    }
    (spots, left - COLUMN_GAP + GAP, tallest + 2.0 * GAP)
}

fn box_width(workflow: &Workflow, task: usize) -> f64 {
    let task = &workflow.tasks()[task];
    let letters = task
        .name
        .len()
        .max(about(task).join(", ").chars().count() * 5 / 6);
    letters as f64 * LETTER + 24.0
}

fn draw_edge(svg: &mut String, workflow: &Workflow, edge: usize, spots: &BTreeMap<Item, Spot>) {
    let levels = workflow.levels();
    let way = way(workflow, &levels, edge);
    let first = spots[&way[0]];
    let start = match way[0] {
        Item::Task(task) => first.left + box_width(workflow, task),
        Item::Bend { .. } => first.right,
    };
    let mut path = format!("M{start:.1} {:.1}", first.y);
    let (mut x, mut y) = (start, first.y);
    for item in &way[1..] {
        let spot = spots[item];
        let middle = (x + spot.left) / 2.0;
        let (to_x, to_y) = (spot.left, spot.y);
        _ = write!(
            path,
            "C{middle:.1} {y:.1} {middle:.1} {to_y:.1} {to_x:.1} {to_y:.1}"
        );
        if matches!(item, Item::Bend { .. }) {
            _ = write!(path, "H{:.1}", spot.right);
        }
        (x, y) = (spot.right, spot.y);
    }
    let label = label(&workflow.edges()[edge]);
    let class = if label.is_some() { " class=\"dashed\"" } else { "" };
    _ = writeln!(svg, "<path{class} d=\"{path}\" marker-end=\"url(#tip)\"/>");
    if let Some(label) = label {
        let next = spots[&way[1]];
        let (x, y) = ((first.right + next.left) / 2.0, (first.y + next.y) / 2.0 - 5.0);
        let label = escape_xml(&shortened(&label, 40));
        _ = writeln!(
            svg,
            "<text class=\"more\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
        );
    }
}

fn draw_task(svg: &mut String, workflow: &Workflow, task: usize, spot: Spot, record: Option<&Record>) {
    let (x, y) = (spot.left, spot.y - BOX_HEIGHT / 2.0);
    let width = box_width(workflow, task);
    let class = match record
        .and_then(|record| record.steps.get(task))
        .map(|step| step.state)
    {
        None | Some(StepState::Waiting) => "task",
        Some(StepState::Skipped) => "task skipped",
        Some(StepState::Running) => "task running",
        Some(StepState::Done) => "task done",
    };
    let name = &workflow.tasks()[task].name;
    let about = escape_xml(&about(&workflow.tasks()[task]).join(", "));
    let middle = if about.is_empty() {
        spot.y + 4.0
    } else {
        spot.y - 3.0
    };
    _ = writeln!(
        svg,
        "<g class=\"{class}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
         <text x=\"{:.1}\" y=\"{middle:.1}\">{name}</text><text class=\"more\" x=\"{:.1}\" y=\"{:.1}\">{about}</text>{}</g>",
        x + 12.0,
        x + 12.0,
        spot.y + 13.0,
        record
            .map(|record| format!("<title>{}</title>", progress(record, task)))
            .unwrap_or_default(),
    );
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_and_edge_is_drawn_once() {
        let flow = Workflow::from_toml(
            "name = 'x'\n[task.a]\n[task.b]\nafter = ['a']\n[task.c]\nafter = ['b', 'a']\n[task.d]\n[[edge]]\n\
             from = 'c'\nto = 'd'\nwhen = { field = 'sky', equals = '<&>' }",
        )
        .unwrap();
        let svg = svg(&flow, None);
        assert_eq!(svg.matches("<rect").count(), 4);
        assert_eq!(svg.matches("marker-end").count(), 4);
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("<&"));
    }

    #[test]
    fn what_can_be_drawn_without_crossings_is() {
        let flow = Workflow::from_toml(
            "name = 'x'\n[task.a]\n[task.b]\nafter = ['a']\n[task.c]\nafter = ['a']\n[task.d]\nafter = ['c']\n\
             [task.e]\nafter = ['b']",
        )
        .unwrap();
        let layers = layers(&flow);
        let place = |task| {
            let task = Item::Task(flow.index_of(task).unwrap());
            layers
                .iter()
                .find_map(|layer| layer.iter().position(|item| *item == task))
        };
        assert_eq!(place("b"), place("e"));
        assert_eq!(place("c"), place("d"));
    }
}
