//! Keeps the calls of a task on the same nodes, as long as these carry no more than their share.

mod order;

use exports::karman::policy::router::{Guest, Order, Provider};

wit_bindgen::generate!({ path: "wit", generate_all });

struct Rendezvous;

impl Guest for Rendezvous {
    fn route(task: String, providers: Vec<Provider>) -> Result<Order, String> {
        Ok(order::order(&task, &providers))
    }
}

export!(Rendezvous);
