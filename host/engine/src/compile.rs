use crate::error::LoadError;
use crate::screen::screen;
use parking_lot::Mutex;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Held while one component is compiled. Its functions are compiled on all cores: a second one at the same time would
/// only take memory.
static COMPILING: Mutex<()> = Mutex::new(());

/// Looks through a component, and compiles it.
///
/// # Errors
/// [`LoadError::TooComplex`] before anything is compiled, and [`LoadError::Compile`].
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
    screen(bytes)?;
    let _one = COMPILING.lock();
    Component::from_binary(engine, bytes).map_err(|error| LoadError::Compile(format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_that_costs_too_much_is_not_compiled() {
        let compiled = |locals: usize| {
            let text = format!(
                "(component (core module (func (local {}))))",
                "i32 ".repeat(locals)
            );
            compile(&Engine::default(), &wat::parse_str(text).unwrap())
        };
        assert!(compiled(100).is_ok());
        assert!(matches!(
            compiled(30_000),
            Err(LoadError::TooComplex { has: 30_000, .. })
        ));
    }
}
