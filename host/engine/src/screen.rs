//! Looks through a component before it is compiled.
//!
//! What compiling costs is not linear in a file: a compiler follows every value through every block of a function, and a few bytes
//! are enough for many of either. So everything is validated first, which is linear, and what it would cost to compile is counted on
//! the way.

mod function;
mod items;

use crate::error::LoadError;
use function::{Counter, LARGE, MOST_EFFORT, MOST_FUNCTIONS, MOST_VALUES};
use items::{Items, MOST_ITEMS};
use wasmparser::{Encoding, Parser, Payload, ValidPayload, Validator, WasmFeatures};

/// Passes a component that is valid and that compiles in bounded time and memory.
///
/// # Errors
/// [`LoadError::Compile`] where it is not valid, [`LoadError::TooComplex`] where it is over a bound.
pub(crate) fn screen(bytes: &[u8]) -> Result<(), LoadError> {
    // What of this the compiler does not know, it refuses itself.
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let (mut counter, mut items) = (Counter::default(), Items::default());
    let (mut modules, mut functions, mut effort, mut large) = (0u64, 0u64, 0u64, 0u64);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(invalid)?;
        if let ValidPayload::Func(function, body) = validator.payload(&payload).map_err(invalid)? {
            let place = format!("function {} of module {}", function.index, modules - 1);
            let cost = counter.count(function, &body).map_err(invalid)?;
            cost.keep_within(&place)?;
            effort = effort.saturating_add(cost.effort());
            if cost.values() > LARGE {
                large += cost.values();
                at_most("the component", "values in large functions", large, MOST_VALUES)?;
            }
            continue;
        }
        match &payload {
            Payload::Version {
                encoding: Encoding::Module,
                ..
            } => modules += 1,
            Payload::FunctionSection(section) => functions += u64::from(section.count()),
            _ => {}
        }
        items.add(&payload).map_err(invalid)?;
        at_most("the component", "functions", functions, MOST_FUNCTIONS)?;
        at_most("the component", "items of components", items.most(), MOST_ITEMS)?;
    }
    at_most("the component", "values times blocks", effort, MOST_EFFORT)
}

fn at_most(place: &str, what: &'static str, has: u64, most: u64) -> Result<(), LoadError> {
    match has > most {
        false => Ok(()),
        true => Err(LoadError::TooComplex {
            place: place.into(),
            what,
            has,
            most,
        }),
    }
}

fn invalid(error: wasmparser::Error) -> LoadError {
    LoadError::Compile(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a component of one module with these fields.
    fn says(fields: &str) -> String {
        let bytes = wat::parse_str(format!("(component (core module {fields}))")).unwrap();
        match screen(&bytes) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    fn function(locals: usize, body: &str) -> String {
        format!("(func (local {}) {body})", "i32 ".repeat(locals))
    }

    #[test]
    fn what_costs_more_than_its_bytes_is_refused_by_name() {
        let ifs = "local.get 0 if end ".repeat(10_000);
        let nest =
            |depth: usize, inner: &str| format!("{} {inner} {}", "loop ".repeat(depth), "end ".repeat(depth));
        let set = |locals: usize| -> String {
            (0..locals)
                .map(|local| format!("i32.const 1 local.set {local} "))
                .collect()
        };
        let thousand = format!("(type $t (func (result {})))", "i32 ".repeat(1000));
        let gives = format!("{thousand} (import \"a\" \"b\" (func $f (type $t))) ");
        for (fields, expected) in [
            (function(20_000, ""), ""),
            (function(1, &ifs), ""),
            (function(20_001, ""), "20001 locals"),
            (function(10_000, &ifs), "locals times blocks"),
            (
                function(
                    0,
                    &format!("{} {}", "i32.const 1 ".repeat(3000), "drop ".repeat(3000)),
                ),
                "2001 values on the stack",
            ),
            (
                format!("{gives}{}", function(0, &"call $f ".repeat(100_000))),
                "values on the stack",
            ),
            (
                format!(
                    "{gives}{}",
                    function(0, &"block call $f br 0 end ".repeat(300)).repeat(7)
                ),
                "values in large functions",
            ),
            (function(0, &nest(11_000, "")), "10001 blocks within each other"),
            (function(1000, &nest(1000, &set(1000))), "locals to merge"),
            (
                gives + &function(0, &"block call $f br 0 end ".repeat(2001)),
                "values",
            ),
            (
                format!(
                    "(func (local {}) {})",
                    "externref ".repeat(1001),
                    "call 0 ".repeat(1000)
                ),
                "references at calls",
            ),
            ("(func)".repeat(140_001), "functions"),
        ] {
            let said = says(&fields);
            assert!(said.contains(expected), "{expected}: {said}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
        }
    }

    #[test]
    fn an_error_names_the_function_and_the_bound() {
        let bytes = wat::parse_str(format!(
            "(component (core module) (core module (func) {}))",
            function(30_000, "")
        ))
        .unwrap();
        let error = screen(&bytes).unwrap_err();
        assert_eq!(error.kind(), karman_types::ErrorKind::Limit);
        assert_eq!(
            error.to_string(),
            "function 1 of module 1 has 30000 locals; 20000 is the most that is compiled"
        );
    }

    #[test]
    fn a_block_counts_what_is_set_within_it_once() {
        // The function, the loop and the block around the second; the first is set twice in the loop.
        let body =
            "loop i32.const 1 local.set 0 i32.const 2 local.set 0 block i32.const 1 local.set 1 end end";
        let bytes = wat::parse_str(format!("(module {})", function(2, body))).unwrap();
        let mut validator = Validator::new();
        let mut counted = Vec::new();
        for payload in Parser::new(0).parse_all(&bytes) {
            if let ValidPayload::Func(function, body) = validator.payload(&payload.unwrap()).unwrap() {
                counted.push(Counter::default().count(function, &body).unwrap().merges());
            }
        }
        assert_eq!(counted, [2 + 3]);
    }

    #[test]
    fn components_within_components_are_bounded() {
        let mut nested = "(component $c)".to_owned();
        for _ in 0..30 {
            nested =
                format!("(component $c {nested} (instance (instantiate $c)) (instance (instantiate $c)))");
        }
        let error = screen(&wat::parse_str(&nested).unwrap()).unwrap_err();
        assert!(error.to_string().contains("items"), "{error}");
    }

    #[test]
    fn what_is_not_valid_is_not_compiled() {
        let bytes = wat::parse_str("(component (core module (func (result i32))))").unwrap();
        assert!(matches!(screen(&bytes), Err(LoadError::Compile(_))));
    }
}
