//! Parameters of messages of gRPC.

use super::messages::{InferParameter, InferTensor, Parameter, RequestedOutput};
use http::{HeaderMap, HeaderName, HeaderValue};
use karman_node::inference::{NOT_DONE, not_done};
use karman_types::TaskError;
use std::collections::HashMap;

/// What headers say, in the message.
pub(super) fn of_headers(headers: &HeaderMap) -> HashMap<String, InferParameter> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        let choice = Some(Parameter::Text(value.to_str().ok()?.to_owned()));
        Some((name.to_string(), InferParameter { choice }))
    };
    headers.iter().filter_map(text).collect()
}

/// The microseconds of the parameter `timeout`.
pub(super) fn timeout(parameters: &HashMap<String, InferParameter>) -> Result<Option<u64>, TaskError> {
    let Some(parameter) = parameters.get("timeout") else {
        return Ok(None);
    };
    let microseconds = match parameter.choice {
        Some(Parameter::Int(number)) => u64::try_from(number).ok(),
        Some(Parameter::Unsigned(number)) => Some(number),
        _ => None,
    };
    let wrong = || TaskError::invalid("`timeout` is a whole number of microseconds").with_field("timeout");
    microseconds.ok_or_else(wrong).map(Some)
}

/// Refuses what is not done here, as [`InferRequest::check`](karman_node::inference::InferRequest::check) does.
pub(super) fn all_done(inputs: &[InferTensor], outputs: &[RequestedOutput]) -> Result<(), TaskError> {
    let inputs = inputs.iter().map(|input| (&input.name, &input.parameters));
    let outputs = outputs.iter().map(|output| (&output.name, &output.parameters));
    for (name, parameters) in inputs.chain(outputs) {
        let is_given = |parameter: &&&str| parameters.contains_key(**parameter);
        if let Some(parameter) = NOT_DONE.iter().find(is_given) {
            return Err(not_done(name, parameter));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_heeded_or_refused() {
        let given = |name: &str, choice| {
            let choice = Some(choice);
            HashMap::from([(name.to_owned(), InferParameter { choice })])
        };
        assert_eq!(timeout(&HashMap::new()), Ok(None));
        assert_eq!(timeout(&given("timeout", Parameter::Int(5))), Ok(Some(5)));
        assert_eq!(timeout(&given("timeout", Parameter::Unsigned(5))), Ok(Some(5)));
        for wrong in [Parameter::Int(-1), Parameter::Text("5".into())] {
            let error = timeout(&given("timeout", wrong)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("timeout"));
        }
        for parameter in NOT_DONE {
            let parameters = given(parameter, Parameter::Int(1));
            let output = RequestedOutput {
                name: "y".into(),
                parameters: parameters.clone(),
            };
            let input = InferTensor {
                parameters,
                ..InferTensor::default()
            };
            for error in [all_done(&[], &[output]), all_done(&[input], &[])] {
                assert_eq!(error.unwrap_err().field.as_deref(), Some(parameter));
            }
        }
        assert_eq!(
            all_done(&[InferTensor::default()], &[RequestedOutput::default()]),
            Ok(())
        );
    }
}
