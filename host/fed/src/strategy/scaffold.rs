use super::{Aggregate, Extras, Strategy, StrategyError, descend, grown};
use crate::StateError;
use crate::state::{pack_arrays, unpack_arrays};
use serde::{Deserialize, Serialize};

/// Control variates against the drift of clients whose data differ (Karimireddy et al. 2020).
///
/// The server sends its variate c with the model. Client k steps by `g − c_k + c`, and then sends two rows: its change D_k, and the change of
/// its own variate by option II: `c_k' − c_k = −c + (w − y) / (K · eta)` after K local steps of size eta. Here
/// `w += rate · mean D_k` and `c += (participants / population) · mean (c_k' − c_k)`. Its means are meant to be uniform.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scaffold {
    /// The server's step. Default 1.
    pub rate: f64,
    #[serde(skip)]
    control: Vec<f32>,
}

impl Default for Scaffold {
    fn default() -> Self {
        Self::new(1.0)
    }
}

impl Scaffold {
    /// With this step.
    pub const fn new(rate: f64) -> Self {
        let control = Vec::new();
        Self { rate, control }
    }
}

impl Strategy for Scaffold {
    fn name(&self) -> &str {
        "scaffold"
    }

    fn rows(&self) -> usize {
        2
    }

    fn begin(&self) -> Extras {
        Extras {
            control: (!self.control.is_empty()).then(|| self.control.clone().into()),
            ..Extras::default()
        }
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let (change, of_control) = aggregate.update.split_at(model.len());
        descend(model, self.rate, change);
        let share = aggregate.facts.len() as f64 / aggregate.population.max(1) as f64;
        descend(
            grown(&mut self.control, model.len(), 0.0),
            share.min(1.0),
            of_control,
        );
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        pack_arrays([&self.control])
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        [self.control] = unpack_arrays(self.name(), state)?;
        Ok(())
    }
}
