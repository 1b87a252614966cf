//! What a caller wants of an answer besides the answer, in headers of the request, which are also metadata of gRPC.

use crate::refusal::Refusal;
use http::{HeaderMap, HeaderName};
use karman_node::Bounds;
use karman_types::{TaskError, parse_duration};
use std::time::Duration;

/// Bounds the time of this request: `200 ms`. What is later is given up.
const WITHIN: HeaderName = HeaderName::from_static("karman-within");
/// Before the name of a bound, as [`Bounds`] has them.
const PREFIX: &str = "karman-";
/// The least share of right answers: `0.95`.
const ACCURACY: HeaderName = HeaderName::from_static("karman-accuracy");
/// What 95 of a hundred of its answers take at most: `50 ms`.
const P95: HeaderName = HeaderName::from_static("karman-p95");
/// What an answer costs at most, in the currency of the profiles: `0.002`.
const COST: HeaderName = HeaderName::from_static("karman-cost");

/// What a caller wants of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Objectives {
    pub(crate) bounds: Bounds,
    pub(crate) within: Option<Duration>,
}

impl Objectives {
    /// Those that the headers have.
    ///
    /// # Errors
    /// `invalid`, with the header as its field.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, TaskError> {
        let objectives = Self {
            bounds: Bounds {
                accuracy: read(headers, ACCURACY, str::parse::<f64>)?,
                p95: read(headers, P95, parse_duration)?,
                cost: read(headers, COST, str::parse::<f64>)?,
            },
            within: read(headers, WITHIN, parse_duration)?,
        };
        objectives.check()?;
        Ok(objectives)
    }

    /// The same within so many microseconds, too; 0 bounds nothing.
    pub(super) fn within_too(self, microseconds: Option<u64>) -> Self {
        let too = microseconds
            .filter(|number| *number > 0)
            .map(Duration::from_micros);
        Self {
            within: self.within.into_iter().chain(too).min(),
            ..self
        }
    }

    fn check(&self) -> Result<(), TaskError> {
        let Bounds { accuracy, p95, cost } = self.bounds;
        let none = Bounds::default();
        let each = [
            (ACCURACY, Bounds { accuracy, ..none }),
            (P95, Bounds { p95, ..none }),
            (COST, Bounds { cost, ..none }),
        ];
        each.into_iter().try_for_each(|(header, bound)| {
            let checked = bound.check();
            checked.map_err(|error| {
                TaskError::invalid(format!("`{header}`: {error}")).with_field(header.as_str())
            })
        })
    }
}

fn read<T, E: ToString>(
    headers: &HeaderMap,
    header: HeaderName,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, TaskError> {
    let mut values = headers.get_all(&header).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let wrong = |why: String| TaskError::invalid(format!("`{header}`: {why}")).with_field(header.as_str());
    if values.next().is_some() {
        return Err(wrong("it is given more than once".to_owned()));
    }
    let text = value.to_str().unwrap_or_default().trim();
    let read = read(text).map_err(|error| wrong(format!("`{text}` does not read: {}", error.to_string())))?;
    Ok(Some(read))
}

/// An error of the node; a bound that nobody meets is told as such, by its header.
pub(super) fn told(error: TaskError) -> Refusal {
    match error.field.as_deref() {
        Some(field @ ("accuracy" | "cost" | "p95")) => {
            let header = format!("{PREFIX}{field}");
            let message = format!("`{header}` cannot be met: {}", error.message);
            Refusal::unmet(TaskError {
                message,
                field: Some(header),
                ..error
            })
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn of(pairs: &[(HeaderName, &'static str)]) -> Result<Objectives, TaskError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        Objectives::of(&headers)
    }

    #[test]
    fn objectives_are_read_from_headers() {
        assert_eq!(of(&[]), Ok(Objectives::default()));
        let all = of(&[
            (ACCURACY, "0.95"),
            (P95, "50 ms"),
            (COST, "0.002"),
            (WITHIN, "1 s"),
        ]);
        let bounds = Bounds {
            accuracy: Some(0.95),
            p95: Some(Duration::from_millis(50)),
            cost: Some(0.002),
        };
        let within = Some(Duration::from_secs(1));
        assert_eq!(all, Ok(Objectives { bounds, within }));
    }

    #[test]
    fn the_shorter_of_two_times_counts() {
        let within = |own: Option<Duration>, too| {
            let objectives = Objectives {
                within: own,
                ..Objectives::default()
            };
            objectives.within_too(too).within
        };
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(within(Some(long), Some(1000)), Some(short));
        assert_eq!(within(Some(short), Some(1_000_000)), Some(short));
        assert_eq!(within(None, Some(1000)), Some(short));
        assert_eq!(
            (within(Some(long), Some(0)), within(None, None)),
            (Some(long), None)
        );
    }

    #[test]
    fn what_does_not_read_is_named() {
        for (header, value) in [
            (ACCURACY, "high"),
            (ACCURACY, "1.5"),
            (ACCURACY, "NaN"),
            (P95, "soon"),
            (P95, "0 ms"),
            (COST, "-1"),
            (COST, "inf"),
            (WITHIN, "200"),
        ] {
            let error = of(&[(header.clone(), value)]).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(header.as_str()), "{error}");
        }
        let twice = of(&[(COST, "1"), (COST, "2")]).unwrap_err();
        assert!(twice.message.contains("more than once"), "{twice}");
    }

    #[test]
    fn a_bound_that_nobody_meets_is_told_from_what_does_not_answer() {
        let unmet = told(TaskError::unavailable("the best has 0.97").with_field("accuracy"));
        assert_eq!(unmet.error.field.as_deref(), Some(ACCURACY.as_str()));
        let status = |refusal: &Refusal| refusal.response(crate::refusal::Speaks::Inference).status();
        assert_eq!(status(&unmet), StatusCode::PRECONDITION_FAILED);
        assert_eq!(unmet.into_grpc().code(), tonic::Code::FailedPrecondition);
        let away = told(TaskError::unavailable("none can be reached"));
        assert_eq!(status(&away), StatusCode::SERVICE_UNAVAILABLE);
    }
}
