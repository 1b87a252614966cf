use crate::app::App;
use crate::control::{Control, escape};
use crate::output::table;
use clap::Args;
use karman_mesh::wall_clock;
use karman_node::contact_plan;
use karman_space::{Contact, ContactPlan, Time};
use karman_types::{NodeId, TaskError, format_duration, parse_duration};
use serde_json::json;
use std::time::Duration;

/// `karman mesh contacts`
#[derive(Args, Debug)]
pub(super) struct Contacts {
    /// From when on, such as 2026-11-21T10:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Time>,
    /// For how long
    #[arg(long = "for", value_name = "TIME", default_value = "1d", value_parser = parse_duration)]
    ahead: Duration,
    /// As a file for `contacts` in node.toml
    #[arg(long)]
    toml: bool,
    /// Ids in full length
    #[arg(long)]
    long: bool,
}

impl Contacts {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let now = wall_clock();
        let now = Time::from_unix_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        let from = self.from.unwrap_or(now);
        let plan = self.plan(app, from)?;
        let mut contacts = plan.contacts().to_vec();
        contacts.sort_by_key(|contact| contact.start);
        // The one of each pair that is open or comes next.
        let is_next = |contact: &Contact| {
            let open = plan.open(contact.from, contact.to, from);
            open.or_else(|| plan.next(contact.from, contact.to, from)) == Some(contact)
        };
        if app.output.json {
            return contacts.iter().try_for_each(|contact| {
                app.output.line(json!({
                    "from": contact.from,
                    "to": contact.to,
                    "start": contact.start,
                    "end": contact.end,
                    "rate": contact.rate,
                    "delay_us": contact.delay.as_micros() as u64,
                    "next": is_next(contact),
                }))
            });
        }
        if self.toml {
            return contacts
                .iter()
                .try_for_each(|contact| app.output.line(as_toml(contact)));
        }
        let head = ["FROM", "TO", "START", "END", "RATE", "NEXT"].map(str::to_owned);
        let row = |contact: &Contact| {
            let next = match (is_next(contact), contact.is_open(from)) {
                (false, _) => String::new(),
                (true, true) => "now".into(),
                (true, false) => {
                    let wait = Duration::from_secs(contact.start.since(from).as_secs());
                    format!("in {}", format_duration(wait))
                }
            };
            vec![
                self.id(contact.from),
                self.id(contact.to),
                contact.start.to_string(),
                contact.end.to_string(),
                contact.rate.to_string(),
                next,
            ]
        };
        let rows: Vec<Vec<String>> = std::iter::once(head.to_vec())
            .chain(contacts.iter().map(row))
            .collect();
        app.output.line(table(&rows))
    }

    /// By the configuration of the node that runs, else by the one that is here.
    fn plan(&self, app: &App, from: Time) -> Result<ContactPlan, TaskError> {
        let Some(control) = Control::of_running(app)? else {
            return contact_plan(&app.config()?.mesh, from, self.ahead);
        };
        let ahead = self.ahead.as_millis() as u64;
        let way = format!(
            "/mesh/contacts?from={}&ahead-ms={ahead}",
            escape(&from.to_string())
        );
        let plan = ContactPlan::new(control.get(&way)?);
        plan.map_err(|error| TaskError::internal(error.to_string()))
    }

    fn id(&self, node: NodeId) -> String {
        match self.long {
            true => node.to_string(),
            false => node.short(),
        }
    }
}

fn as_toml(contact: &Contact) -> String {
    let Contact {
        from,
        to,
        start,
        end,
        rate,
        delay,
    } = contact;
    let delay = delay.as_micros();
    format!(
        "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"{rate}\"\n\
         delay = \"{delay} us\"\n"
    )
}
