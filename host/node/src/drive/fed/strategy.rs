//! The strategy of a run: one of `karman-fed`, or one that a plugin brings.

use super::wire::shape_of;
use karman_engine::Plugin;
use karman_engine::strategy::{self, Array, Update};
use karman_fed::strategy::{Aggregator, Brought, Facts, Made, Round, Strategy};
use karman_fed::{Layout, Run};
use karman_types::TaskError;
use std::fmt;
use std::sync::Arc;

/// The strategy of this run for a model of this layout, before its first round. `plugin` is the one that the description names, if it does.
///
/// # Errors
/// `unavailable` where the description names a plugin and there is none; `invalid` where that is no strategy.
pub(super) fn built(
    run: &Run,
    layout: &Layout,
    plugin: Option<&Arc<Plugin>>,
) -> Result<Box<dyn Strategy>, TaskError> {
    let Some(named) = run.strategy.plugin() else {
        let strategy = run.strategy.build();
        return strategy.ok_or_else(|| TaskError::internal("a strategy that is no plugin is not there"));
    };
    let plugin = plugin.ok_or_else(|| missing(&named.plugin))?;
    check(plugin)?;
    Ok(Box::new(Brought::new(Box::new(InPlugin {
        plugin: plugin.clone(),
        run: run.name.clone(),
        properties: named.properties.clone().into_iter().collect(),
        layout: layout.clone(),
    }))))
}

/// Whether a plugin is a strategy.
///
/// # Errors
/// `invalid`, of `strategy.plugin`, where it is something else.
pub(super) fn check(plugin: &Plugin) -> Result<(), TaskError> {
    plugin
        .check_strategy()
        .map_err(|error| error.with_field("strategy.plugin"))
}

/// Said where the plugin is not.
pub(super) fn missing(name: &str) -> TaskError {
    TaskError::unavailable(format!("the strategy `{name}` is not on this node"))
        .with_field("strategy.plugin")
        .with_hint("`karman deploy` it here, where the run is driven")
}

/// A plugin that makes the versions of a model.
struct InPlugin {
    plugin: Arc<Plugin>,
    run: String,
    properties: Vec<(String, String)>,
    layout: Layout,
}

impl Aggregator for InPlugin {
    fn name(&self) -> &str {
        &self.plugin.manifest().name
    }

    fn aggregate(&self, round: &Round<'_>) -> Result<Made, String> {
        let of = strategy::Round {
            run: self.run.clone(),
            properties: self.properties.clone(),
            version: round.version,
            updates: round.updates.len() as u32,
            population: round.population as u64,
        };
        let model = arrays(&self.layout, round.model);
        // One after the other: a copy of one is made at a time.
        let updates = round.facts.iter().zip(round.updates);
        let updates = updates.map(|(facts, change)| self.update(facts, change));
        let next = self.plugin.aggregate(&of, &model, round.state, updates);
        let next = next.map_err(|failure| failure.to_string())?;
        Ok(Made {
            model: numbers(&self.layout, &next.model)?,
            state: next.state,
        })
    }
}

impl InPlugin {
    fn update(&self, facts: &Facts, change: &[f32]) -> Update {
        Update {
            client: facts.client.0,
            samples: facts.samples,
            weight: facts.weight,
            steps: facts.steps,
            loss: facts.loss,
            change: arrays(&self.layout, change),
        }
    }
}

impl fmt::Debug for InPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPlugin")
            .field("plugin", &self.plugin)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// Numbers in one row, as many as the layout has, as its arrays.
fn arrays(layout: &Layout, numbers: &[f32]) -> Vec<Array> {
    let mut rest = numbers;
    let each = layout.arrays().iter().map(|array| {
        let count = array.shape.elements().unwrap_or(u64::MAX) as usize;
        let (values, more) = rest.split_at(count.min(rest.len()));
        rest = more;
        Array {
            name: array.name.clone(),
            shape: array.shape.dims().to_vec(),
            values: values.to_vec(),
        }
    });
    each.collect()
}

/// The numbers of arrays in one row, if the arrays are those of the layout.
fn numbers(layout: &Layout, arrays: &[Array]) -> Result<Vec<f32>, String> {
    let wanted = layout.arrays();
    if arrays.len() != wanted.len() {
        let (given, wanted) = (arrays.len(), wanted.len());
        return Err(format!("its model has {given} arrays instead of {wanted}"));
    }
    let mut row = Vec::with_capacity(layout.length());
    for (array, wanted) in arrays.iter().zip(wanted) {
        let shape = shape_of(array).map_err(|error| format!("its model has the array {}", error.message))?;
        if array.name != wanted.name || shape != wanted.shape {
            return Err(format!(
                "its model has `{}` {shape} in place of `{}` {}",
                array.name.escape_debug(),
                wanted.name.escape_debug(),
                wanted.shape
            ));
        }
        if shape.elements() != Some(array.values.len() as u64) {
            return Err(format!(
                "its array `{}` {shape} has {} numbers",
                array.name.escape_debug(),
                array.values.len()
            ));
        }
        row.extend_from_slice(&array.values);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::of_shapes([[2, 1], [1, 3]]).unwrap()
    }

    #[test]
    fn arrays_and_their_numbers_are_the_same() {
        let row = [1.0, 2.0, 3.0, 4.0, 5.0];
        let model = arrays(&layout(), &row);
        assert_eq!(
            (&model[1].name[..], &model[1].shape[..]),
            ("array 1", &[1, 3][..])
        );
        assert_eq!(numbers(&layout(), &model).unwrap(), row);
    }

    #[test]
    fn arrays_of_another_model_are_named() {
        let model = || arrays(&layout(), &[0.0; 5]);
        let refused = |model: &[Array]| numbers(&layout(), model).unwrap_err();
        let fewer = refused(&model()[..1]);
        assert_eq!(fewer, "its model has 1 arrays instead of 2");
        let mut named = model();
        named[1].name = "bias".into();
        let named = refused(&named);
        assert!(named.contains("`bias` [1, 3] in place of `array 1`"), "{named}");
        let mut shaped = model();
        shaped[0].shape = vec![1, 2];
        let shaped = refused(&shaped);
        assert!(
            shaped.contains("`array 0` [1, 2] in place of `array 0` [2, 1]"),
            "{shaped}"
        );
        let mut short = model();
        short[0].values.pop();
        let short = refused(&short);
        assert_eq!(short, "its array `array 0` [2, 1] has 1 numbers");
    }
}
