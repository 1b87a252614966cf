//! How right an answer is, by the label of its example.
//!
//! | label | right is |
//! |---|---|
//! | a whole number, where the answer is a list of numbers | that the largest stands at this place |
//! | `{"mask": […]}`, nested as the answer is | the share of what either marks that both mark: intersection over union |
//! | anything else | the same |

use serde_json::Value;
use std::collections::BTreeMap;

/// From 0 to 1: the least of all fields.
pub(super) fn right(wanted: &BTreeMap<String, Value>, found: &Value) -> f64 {
    let fields = wanted
        .iter()
        .map(|(field, wanted)| right_field(wanted, &found[field]));
    fields.fold(1.0, f64::min)
}

fn right_field(wanted: &Value, found: &Value) -> f64 {
    match wanted {
        Value::Object(label) if label.len() == 1 && label.contains_key("mask") => {
            overlap(&label["mask"], found)
        }
        _ => f64::from(u8::from(agrees(wanted, found))),
    }
}

/// Whether a field is as its label says.
fn agrees(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Number(place), Value::Array(_)) => {
            let numbers = flat(found);
            let largest = (0..numbers.len()).max_by(|one, other| numbers[*one].total_cmp(&numbers[*other]));
            place.as_u64().map(|place| place as usize) == largest
        }
        (Value::Number(wanted), Value::Number(found)) => {
            let (wanted, found) = (
                wanted.as_f64().unwrap_or(f64::NAN),
                found.as_f64().unwrap_or(f64::NAN),
            );
            (wanted - found).abs() <= 1e-6 * wanted.abs().max(1.0)
        }
        _ => wanted == found,
    }
}

/// Of what either marks by at least one half, the share that both do; 1 where neither marks anything, 0 for another shape.
fn overlap(wanted: &Value, found: &Value) -> f64 {
    let (wanted, found) = (flat(wanted), flat(found));
    if wanted.len() != found.len() {
        return 0.0;
    }
    let marks = wanted
        .iter()
        .zip(&found)
        .map(|(one, other)| (*one >= 0.5, *other >= 0.5));
    let (mut both, mut either) = (0u64, 0u64);
    for (one, other) in marks {
        both += u64::from(one && other);
        either += u64::from(one || other);
    }
    match either {
        0 => 1.0,
        either => both as f64 / either as f64,
    }
}

fn flat(list: &Value) -> Vec<f64> {
    match list {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        one => vec![one.as_f64().unwrap_or(f64::NEG_INFINITY)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_compared_as_they_are_meant() {
        for (wanted, found, same) in [
            (json!(2), json!([[0.1, 0.2, 0.7]]), true),
            (json!(1), json!([[0.1, 0.2, 0.7]]), false),
            (json!(0), json!([null, 0.2]), false),
            (json!(7), json!(7.0), true),
            (json!("road"), json!("road"), true),
            (json!("road"), json!("water"), false),
            (json!([1, 2]), json!([1, 2]), true),
            (json!(1), Value::Null, false),
        ] {
            assert_eq!(agrees(&wanted, &found), same, "{wanted} {found}");
        }
    }

    #[test]
    fn a_mask_is_right_as_far_as_it_overlaps() {
        for (wanted, found, share) in [
            (json!([[1, 1], [0, 0]]), json!([[1, 0.4], [0, 0.5]]), 1.0 / 3.0),
            (json!([[1, 1]]), json!([[1, 1]]), 1.0),
            (json!([[0, 0]]), json!([[0, 0]]), 1.0),
            (json!([[0, 0]]), json!([[0, 1]]), 0.0),
            (json!([[1, 1]]), json!([1]), 0.0),
            (json!([[1]]), Value::Null, 0.0),
        ] {
            let label = BTreeMap::from([("water".to_owned(), json!({ "mask": wanted }))]);
            assert_eq!(
                right(&label, &json!({ "water": found })),
                share,
                "{wanted} {found}"
            );
        }
        let both = BTreeMap::from([("a".to_owned(), json!(1)), ("b".to_owned(), json!(2))]);
        assert_eq!(right(&both, &json!({ "a": 1, "b": 3 })), 0.0);
    }
}
