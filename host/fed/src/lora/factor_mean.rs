use super::adapter::check;
use super::{Adapter, LoraError, Weighted};

/// The means of the factors, one by one, shorter ones padded with zeros (FedIT): what most federated LoRA does. Its product is not the mean of
/// the products: it has those of one client's B with another's A in it, and the zeros dampen the ranks that few clients have.
///
/// # Errors
/// When there is none, they are for different weights, or one counts nothing.
pub fn factor_mean(adapters: &[Weighted<'_>]) -> Result<Adapter, LoraError> {
    let ((rows, columns), total) = check(adapters)?;
    let rank = adapters.iter().map(|it| it.adapter.rank()).max().unwrap_or(1);
    let (mut b, mut a) = (vec![0.0f64; rows * rank], vec![0.0f64; rank * columns]);
    for Weighted { adapter, weight } in adapters {
        let share = weight / total;
        for (i, row) in adapter.b().chunks(adapter.rank()).enumerate() {
            let sums = &mut b[i * rank..i * rank + row.len()];
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, x)| *sum += share * f64::from(*x));
        }
        a.iter_mut()
            .zip(adapter.a())
            .for_each(|(sum, x)| *sum += share * f64::from(*x));
    }
    let narrow = |wide: Vec<f64>| wide.into_iter().map(|x| x as f32).collect();
    Adapter::new(rows, columns, rank, narrow(b), narrow(a))
}
