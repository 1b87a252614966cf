/// The expected values of an output.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Each element.
    pub values: Vec<f64>,
    /// What its error is measured by: for a sum, the sum of the magnitudes that went in, so that cancellation counts as what it is.
    pub scale: Vec<f64>,
}

impl Expected {
    /// Elements whose error is measured against their own magnitude, or 1 if that is larger.
    pub(crate) fn plain(values: Vec<f64>) -> Self {
        let scale = values.iter().map(|value| value.abs().max(1.0)).collect();
        Self { values, scale }
    }

    /// The largest error of these elements over its scale; infinite for one that is no number.
    pub fn error(&self, got: &[f64]) -> f64 {
        if got.len() != self.values.len() {
            return f64::INFINITY;
        }
        let errors = got.iter().zip(&self.values).zip(&self.scale);
        errors
            .map(|((got, value), scale)| (got - value).abs() / scale.max(f64::MIN_POSITIVE))
            .fold(0.0, |most: f64, error| {
                if error.is_nan() {
                    f64::INFINITY
                } else {
                    most.max(error)
                }
            })
    }
}
