use super::peers::in_words;
use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::NodeOffer;
use karman_types::TaskError;
use serde_json::json;

/// `karman mesh offers`
#[derive(Args, Debug)]
pub(super) struct Offers {
    /// Ids in full length
    #[arg(long)]
    long: bool,
}

impl Offers {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let offers: Vec<NodeOffer> = Control::new(app)?.get("/mesh/offers")?;
        if app.output.json {
            return offers.iter().try_for_each(|offer| app.output.line(json!(offer)));
        }
        let head = ["NODE", "TIER", "OFFERS"];
        let rows: Vec<Vec<String>> = std::iter::once(head.map(str::to_owned).to_vec())
            .chain(offers.iter().map(|NodeOffer { here, offer }| {
                let id = if self.long {
                    offer.node.to_string()
                } else {
                    offer.node.short()
                };
                let mark = if *here { " (here)" } else { "" };
                vec![format!("{id}{mark}"), offer.tier.to_string(), in_words(offer)]
            }))
            .collect();
        app.output.line(table(&rows))
    }
}
