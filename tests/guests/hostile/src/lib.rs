//! A task that does what it is told, good or bad: the tests of the sandbox send it orders and look at what happens.
//!
//! The order stands in the metadata key `do`, else in the content type after `do/`, else it is the body; its
//! argument follows after a space, as in `sleep 500`. Whatever comes of it comes back as text, in a response where the
//! order succeeded and in `error.failed` where the host refused. [`orders`] lists them.

mod orders;
mod reach;

use exports::karman::task::handler::{Error, Guest, Request, Response};

wit_bindgen::generate!({
    inline: "
        package local:hostile;

        world hostile {
            include karman:task/task@0.1.0;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:nn/graph@0.2.0-rc-2024-10-28;
        }
    ",
    path: "../../../wit/task",
    world: "local:hostile/hostile",
    generate_all,
});

struct Hostile;

impl Guest for Hostile {
    fn handle(request: Request) -> Result<Response, Error> {
        let order = order(&request);
        let (verb, argument) = order.split_once(' ').unwrap_or((&order, ""));
        let body = if verb == "echo" {
            request.body
        } else {
            orders::obey(verb, argument, &request.body)?
        };
        Ok(Response {
            content_type: request.content_type,
            metadata: request.metadata,
            body,
        })
    }
}

fn order(request: &Request) -> String {
    let of_metadata = request
        .metadata
        .iter()
        .find(|(key, _)| key == "do")
        .map(|(_, order)| order.clone());
    of_metadata
        .or_else(|| request.content_type.strip_prefix("do/").map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(&request.body).trim().to_owned())
}

export!(Hostile);
