//! From a text to a module that may go to a driver.

use crate::error::GpuError;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess};

/// How deep a text may be.
const MOST_DEPTH: usize = 256;

pub(super) fn parse(wgsl: &str) -> Result<Module, GpuError> {
    check_depth(wgsl)?;
    naga::front::wgsl::parse_str(wgsl).map_err(|error| {
        let place = error.location(wgsl);
        let place = place
            .map(|place| format!(" in line {}", place.line_number))
            .unwrap_or_default();
        GpuError::shader(&format!("{}{place}", error.message()))
    })
}

pub(super) fn validate(module: &Module, flags: ValidationFlags) -> Result<ModuleInfo, GpuError> {
    let valid = Validator::new(flags, Capabilities::empty()).validate(module);
    valid.map_err(|error| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error.as_inner());
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        GpuError::shader(&text)
    })
}

/// Compilers recurse: into brackets, along chains of operators, and from one `else` to the next. What could be deeper than their
/// stacks is refused before they see it.
fn check_depth(wgsl: &str) -> Result<(), GpuError> {
    let text = without_comments(wgsl);
    // How long the chain is at each open bracket.
    let mut chains = vec![0usize];
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let closes = matches!(byte, b')' | b']' | b'}') && chains.len() > 1;
        if closes {
            chains.pop();
        }
        let goes_on = *byte != b'}' || after.trim_ascii_start().starts_with(b"else");
        match (byte, chains.last_mut()) {
            (b'(' | b'[' | b'{', _) => chains.push(0),
            (b',' | b';', Some(chain)) => *chain = 0,
            (b')' | b']' | b'}', Some(chain)) => *chain = if goes_on { *chain + 1 } else { 0 },
            (byte, Some(chain)) if byte.is_ascii_punctuation() && *byte != b'_' => *chain += 1,
            _ => {}
        }
        if chains.len() + chains.iter().sum::<usize>() > MOST_DEPTH {
            let why = format!("it is nested deeper than {MOST_DEPTH}, or has a chain of operators that long");
            return Err(GpuError::shader(&why));
        }
    }
    Ok(())
}

/// The text as the parser sees it: a space for each comment and for what else is blank (WGSL, 3.1 and 3.2).
fn without_comments(wgsl: &str) -> String {
    let mut text = String::with_capacity(wgsl.len());
    let mut rest = wgsl;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match (first, after.as_bytes().first()) {
            ('/', Some(b'/')) => &after[after.find(ends_line).unwrap_or(after.len())..],
            ('/', Some(b'*')) => {
                text.push(' ');
                after_block(&after[1..])
            }
            _ => {
                text.push(if is_blank(first) { ' ' } else { first });
                after
            }
        };
    }
    text
}

const fn ends_line(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

const fn is_blank(c: char) -> bool {
    ends_line(c) || matches!(c, ' ' | '\t' | '\u{200e}' | '\u{200f}')
}

/// What follows a comment whose beginning was read; there may be others in it.
fn after_block(text: &str) -> &str {
    let (bytes, mut open, mut at) = (text.as_bytes(), 1, 0);
    while open > 0 && at < bytes.len() {
        match &bytes[at..] {
            [b'*', b'/', ..] => (open, at) = (open - 1, at + 2),
            [b'/', b'*', ..] => (open, at) = (open + 1, at + 2),
            _ => at += 1,
        }
    }
    &text[at..]
}

/// Which of its buffers it may write; those that it does not name are outputs that stay zero, or inputs.
pub(super) fn bindings(module: &Module, inputs: usize, buffers: usize) -> Result<Vec<bool>, GpuError> {
    if !module.overrides.is_empty() {
        return Err(GpuError::shader("it has overrides, which nobody sets here"));
    }
    let mut writable: Vec<bool> = (0..buffers).map(|binding| binding >= inputs).collect();
    for (_, global) in module.global_variables.iter() {
        let refused = |why: &str| {
            let name = global.name.as_deref().unwrap_or("a variable");
            Err(GpuError::shader(&format!("`{name}` {why}")))
        };
        let access = match global.space {
            AddressSpace::Private | AddressSpace::WorkGroup => continue,
            AddressSpace::Storage { access } => access,
            _ => return refused("is no storage buffer: only those are bound"),
        };
        let Some(binding) = &global.binding else {
            return refused("has no binding");
        };
        let place = binding.binding as usize;
        if binding.group != 0 || place >= buffers {
            return refused(&format!("is bound beyond the {buffers} buffers of group 0"));
        }
        let writes = access.contains(StorageAccess::STORE);
        if place < inputs && writes {
            return refused("is an input and cannot be written");
        }
        writable[place] = writes;
    }
    Ok(writable)
}
