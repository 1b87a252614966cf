use super::{EncodeError, Encoded, Encoding};
use crate::Shape;
use serde::{Deserialize, Serialize};

/// What an encoding has lost so far, added to what is sent next: then the sum of all that arrives differs from the sum of all
/// that was to be sent by one residual, however long it goes on (Seide et al. 2014; Karimireddy et al. 2019).
///
/// A client keeps one for each array, and keeps it over a restart. It is of no use under secure aggregation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Feedback {
    residual: Vec<f32>,
}

impl Feedback {
    /// Encodes the array together with what was lost before, and remembers what is lost now.
    ///
    /// # Errors
    /// Those of [`Encoded::encode`]; what was lost before is then kept.
    pub fn encode(
        &mut self,
        shape: Shape,
        values: &[f32],
        encoding: Encoding,
    ) -> Result<Encoded, EncodeError> {
        let mut wanted = values.to_vec();
        // An array of another shape has nothing in common with the one before.
        if self.residual.len() == wanted.len() {
            wanted
                .iter_mut()
                .zip(&self.residual)
                .for_each(|(value, lost)| *value += lost);
        }
        let encoded = Encoded::encode(shape, &wanted, encoding)?;
        let arrived = encoded.decode()?;
        wanted
            .iter_mut()
            .zip(&arrived)
            .for_each(|(value, arrived)| *value -= arrived);
        self.residual = wanted;
        Ok(encoded)
    }

    /// What has not been sent yet; empty before the first array.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }
}
