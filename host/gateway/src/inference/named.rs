//! What a path of the protocol names.

use serde::Deserialize;

/// A model or task, and its version where the path names one.
#[derive(Debug, Deserialize, Eq, PartialEq)]
pub(crate) struct Named {
    pub(super) model: String,
    pub(super) version: Option<String>,
}

impl Named {
    /// What is to be run by a path that is written plainly. Most are: the router, which reads the others, costs more than a small model.
    pub(crate) fn plainly(path: &str) -> Option<Self> {
        let named = path.strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
        let mut parts = named.split('/');
        let (model, version) = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            (model, None, ..) => (model, None),
            (model, Some("versions"), Some(version), None) => (model, Some(version)),
            _ => return None,
        };
        let is_plain = |name: &str| !name.is_empty() && !name.contains('%');
        (is_plain(model) && version.is_none_or(is_plain)).then(|| Self {
            model: model.to_owned(),
            version: version.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_names_what_the_router_reads_in_it_and_others_are_left_to_it() {
        let named = |model: &str, version: Option<&str>| {
            Some(Named {
                model: model.to_owned(),
                version: version.map(str::to_owned),
            })
        };
        for (path, names) in [
            ("/v2/models/digits-m/infer", named("digits-m", None)),
            ("/v2/models/infer/infer", named("infer", None)),
            ("/v2/models/a/versions/1/infer", named("a", Some("1"))),
            ("/v2/models/versions/infer", named("versions", None)),
            ("/v2/models//infer", None),
            ("/v2/models/infer", None),
            ("/v2/models/a%2Fb/infer", None),
            ("/v2/models/a/versions/%31/infer", None),
            ("/v2/models/a/versions//infer", None),
            ("/v2/models/a/b/infer", None),
            ("/v2/models/a/versions/1/2/infer", None),
            ("/v2/models/a/ready", None),
        ] {
            assert_eq!(Named::plainly(path), names, "{path}");
        }
    }
}
