use crate::target::Target;
use karman_node::plain_host;
use karman_types::{Manifest, World};
use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::IpAddr;

/// The tables `[[gateway.routes]]`: where HTTP plugins answer besides `/http/NAME`. The host decides first, then the longest path.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteConfig {
    /// The host that callers ask for: `shop.example`, or `*.shop.example` for every name with one part more. Nothing but its routes
    /// answers there. Default: those of the gateway, beside its own paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where it begins: `/cart` is that and all below it. The plugin sees what is behind it. Default: `/`, which takes a `host`.
    #[serde(default = "root")]
    pub path: String,
    /// The name of the HTTP plugin that answers.
    pub plugin: String,
}

fn root() -> String {
    "/".into()
}

/// Refuses routes that would never be taken, and two for the same.
pub(super) fn check(routes: &[RouteConfig], own: &[String]) -> Result<(), (&'static str, String)> {
    let mut known = HashSet::new();
    for route in routes {
        route.check(own).map_err(|says| ("routes", says))?;
        let host = route.host();
        let place = format!("{}{}/", host.as_deref().unwrap_or_default(), route.prefix());
        if !known.insert(place.clone()) {
            return Err(("routes", format!("has `{place}` twice: one place has one plugin")));
        }
    }
    Ok(())
}

impl RouteConfig {
    /// The host as hosts are compared.
    pub(crate) fn host(&self) -> Option<String> {
        self.host.as_deref().map(plain_host)
    }

    /// What its paths begin with, without a slash at the end: nothing for all of them.
    pub(crate) fn prefix(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    fn check(&self, own: &[String]) -> Result<(), String> {
        if !is_path(&self.path) {
            return Err(format!(
                "has the path `{}`; one is written `/cart`, of letters, digits and what needs no `%`",
                self.path
            ));
        }
        match self.host() {
            Some(host) => check_host(&host, own)?,
            None if is_own(self.prefix()) => {
                let says = "which is the gateway's own: give the route another, or a `host`";
                return Err(format!("has the path `{}`, {says}", self.path));
            }
            None => {}
        }
        // One rule for names: this one is as it would be for a plugin.
        match !self.plugin.is_empty() && Manifest::foreign(&self.plugin, World::Http).name == self.plugin {
            true => Ok(()),
            false => Err(format!(
                "has the plugin `{}`; a name has 1 to 64 lower-case letters, digits and hyphens, no hyphen first",
                self.plugin
            )),
        }
    }
}

fn check_host(host: &str, own: &[String]) -> Result<(), String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    if name.parse::<IpAddr>().is_ok() || DnsName::try_from(name).is_err() {
        return Err(format!(
            "has the host `{host}`; one is written `shop.example` or `*.shop.example`, without scheme and port"
        ));
    }
    match host == "localhost" || own.iter().any(|own| plain_host(own) == host) {
        true => Err(format!(
            "has the host `{host}`, which is a name of the gateway itself: leave out `host`, or name another"
        )),
        false => Ok(()),
    }
}

/// Parts behind slashes, as requests have them: an escape could be written in more than one way.
fn is_path(path: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.~!$&'()+,;=:@".contains(&c);
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(plain);
    let Some(parts) = path.strip_prefix('/') else {
        return false;
    };
    let parts = parts.strip_suffix('/').unwrap_or(parts);
    (parts.is_empty() && path == "/") || parts.split('/').all(is_part)
}

/// Whether the gateway itself answers there.
fn is_own(prefix: &str) -> bool {
    let answers = |path: &str| Target::of(path) != Target::Unknown;
    answers(prefix) || answers(&format!("{prefix}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(routes: &str) -> String {
        #[derive(Deserialize)]
        struct File {
            routes: Vec<RouteConfig>,
        }
        let file: File = toml::from_str(routes).unwrap();
        let checked = check(&file.routes, &["Gateway.Example".into()]);
        checked.err().map(|(_, says)| says).unwrap_or_default()
    }

    #[test]
    fn routes_are_taken_as_they_are_written() {
        for routes in [
            "[[routes]]\nhost = \"shop.example\"\nplugin = \"shop\"",
            "[[routes]]\nhost = \"*.Shop.Example.\"\nplugin = \"shop\"",
            "[[routes]]\nhost = \"shop.localhost\"\npath = \"/v2/\"\nplugin = \"shop\"",
            "[[routes]]\npath = \"/cart\"\nplugin = \"cart\"\n[[routes]]\npath = \"/cart/old\"\nplugin = \"cart-1\"",
        ] {
            assert_eq!(says(routes), "", "{routes}");
        }
    }

    #[test]
    fn what_would_lead_nowhere_is_named() {
        for (route, expected) in [
            ("plugin = \"shop\"", "the path `/`, which is the gateway's own"),
            (
                "path = \"/v2/models\"\nplugin = \"shop\"",
                "the path `/v2/models`, which",
            ),
            (
                "path = \"/admin/\"\nplugin = \"shop\"",
                "the path `/admin/`, which",
            ),
            (
                "path = \"/inference.GRPCInferenceService\"\nplugin = \"shop\"",
                "which is the gateway's own",
            ),
            ("path = \"cart\"\nplugin = \"shop\"", "the path `cart`; one is"),
            ("path = \"/a//b\"\nplugin = \"shop\"", "the path `/a//b`"),
            ("path = \"//\"\nplugin = \"shop\"", "the path `//`"),
            ("path = \"/a/../v2\"\nplugin = \"shop\"", "the path `/a/../v2`"),
            ("path = \"/%76\"\nplugin = \"shop\"", "the path `/%76`"),
            ("path = \"/a*\"\nplugin = \"shop\"", "the path `/a*`"),
            ("host = \"\"\nplugin = \"shop\"", "the host ``"),
            (
                "host = \"https://shop.example\"\nplugin = \"shop\"",
                "without scheme",
            ),
            ("host = \"shop.example:80\"\nplugin = \"shop\"", "without scheme"),
            (
                "host = \"a.*.example\"\nplugin = \"shop\"",
                "the host `a.*.example`",
            ),
            ("host = \"192.0.2.1\"\nplugin = \"shop\"", "the host `192.0.2.1`"),
            (
                "host = \"localhost\"\nplugin = \"shop\"",
                "a name of the gateway itself",
            ),
            (
                "host = \"gateway.example.\"\nplugin = \"shop\"",
                "a name of the gateway itself",
            ),
            ("path = \"/cart\"\nplugin = \"Shop\"", "the plugin `Shop`"),
            ("path = \"/cart\"\nplugin = \"\"", "the plugin ``"),
        ] {
            let told = says(&format!("[[routes]]\n{route}"));
            assert!(told.contains(expected), "{route}: {told}");
        }
    }

    #[test]
    fn one_place_has_one_plugin() {
        let twice = |one: &str, other: &str| {
            says(&format!(
                "[[routes]]\n{one}\nplugin = \"a\"\n[[routes]]\n{other}\nplugin = \"b\""
            ))
        };
        assert_eq!(
            twice("path = \"/cart\"", "path = \"/cart/\""),
            "has `/cart/` twice: one place has one plugin"
        );
        let host = "host = \"shop.example\"";
        assert!(twice(host, "host = \"Shop.Example.\"\npath = \"/\"").contains("`shop.example/` twice"));
        assert_eq!(twice(host, "host = \"*.shop.example\""), "");
        assert_eq!(
            twice("path = \"/cart\"", &format!("{host}\npath = \"/cart\"")),
            ""
        );
    }
}
