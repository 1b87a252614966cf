//! Which models run in parts, and by what order: written down for the next start.

use super::inside::InsideOrder;
use super::order::SplitOrder;
use crate::home::Home;
use karman_store::Store;
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The record of them, among the profiles.
const ORDERS: &str = "orders";

/// How a model is to run in parts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Cut between its layers.
    Between(SplitOrder),
    /// Split inside its layers.
    Inside(InsideOrder),
}

/// The orders that hold, on the disk.
pub(super) struct Orders(Store);

impl Orders {
    pub(super) fn of(home: &Home) -> Result<Self, TaskError> {
        Ok(Self(home.store()?))
    }

    /// All of them, by the name of the model.
    pub(super) fn all(&self) -> Result<HashMap<String, Order>, TaskError> {
        let orders = self.0.profiles().get(ORDERS)?;
        Ok(orders.unwrap_or_default())
    }

    /// Whether this is how the model is to run; without an order: here alone.
    pub(super) fn hold(&self, name: &str, order: Option<&Order>) -> Result<bool, TaskError> {
        Ok(self.all()?.get(name) == order)
    }

    /// Writes down how a model is to run. Others may be ordered at the same moment: none of these orders is lost.
    pub(super) fn keep(&self, name: &str, order: Option<&Order>) -> Result<(), TaskError> {
        let change = |orders: &mut HashMap<String, Order>| match order {
            Some(order) => drop(orders.insert(name.to_owned(), order.clone())),
            None => drop(orders.remove(name)),
        };
        let profiles = self.0.profiles();
        let kept = match order {
            Some(_) => profiles.change(ORDERS, change),
            None => profiles.shrink(ORDERS, change),
        };
        kept.map_err(TaskError::from)
    }
}

/// Nobody is to run this model in parts any more.
pub(in crate::drive) fn forget_order(store: &Store, name: &str) -> Result<(), TaskError> {
    Orders(store.clone()).keep(name, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_orders_that_come_at_once_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let orders = Orders::of(&Home::new(folder.path())).unwrap();
        let order = Order::Between(SplitOrder {
            latency: Some(0.1),
            apply: true,
            ..SplitOrder::default()
        });
        let [stay, go, come] = ["stays", "goes", "comes"].map(|what| move |at: u32| format!("{what}-{at}"));
        let (orders, order) = (&orders, &order);
        let each = 0..8;
        for at in each.clone() {
            orders.keep(&stay(at), Some(order)).unwrap();
            orders.keep(&go(at), Some(order)).unwrap();
        }
        std::thread::scope(|scope| {
            for at in each.clone() {
                scope.spawn(move || orders.keep(&go(at), None).unwrap());
                scope.spawn(move || orders.keep(&come(at), Some(order)).unwrap());
            }
        });
        let hold = |name: String, order: Option<&Order>| orders.hold(&name, order).unwrap();
        for at in each {
            assert!(hold(stay(at), Some(order)) && hold(come(at), Some(order)));
            assert!(hold(go(at), None) && !hold(go(at), Some(order)));
        }
        assert_eq!(orders.all().unwrap().len(), 16);
    }
}
