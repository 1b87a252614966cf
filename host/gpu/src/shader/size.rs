//! How large a checked module is for a driver: what it keeps, and what it compiles to.

use super::ShaderLimits;
use crate::error::GpuError;
use naga::proc::TypeResolution;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{AddressSpace, Block, Function, Handle, Module, Statement, Type};

/// Whether its variables fit.
///
/// # Errors
/// [`GpuError::Memory`] when a workgroup or an invocation keeps too much.
pub(super) fn check_variables(module: &Module, limits: &ShaderLimits) -> Result<(), GpuError> {
    let of = |wanted: AddressSpace| -> u64 {
        let globals = module.global_variables.iter().map(|(_, global)| global);
        globals
            .filter(|global| global.space == wanted)
            .map(|global| bytes(module, global.ty))
            .fold(0, u64::saturating_add)
    };
    let functions = module.functions.iter().map(|(_, function)| function);
    let functions = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
    let locals = functions.flat_map(|function| function.local_variables.iter());
    let locals = locals.map(|(_, local)| bytes(module, local.ty));
    let private = locals.fold(of(AddressSpace::Private), u64::saturating_add);
    for (what, asked, most) in [
        (
            "what a workgroup shares",
            of(AddressSpace::WorkGroup),
            limits.shared,
        ),
        ("the variables of an invocation", private, limits.private),
    ] {
        if asked > most {
            return Err(GpuError::Memory {
                what: what.into(),
                asked,
                most,
            });
        }
    }
    Ok(())
}

/// Whether what a driver compiles is small enough. Drivers write out every call where it stands, so functions that call each other
/// twice grow without bound; and they take arrays apart, so a value counts once for each 16 bytes.
///
/// # Errors
/// [`GpuError::Limit`] when it is too much.
pub(super) fn check_expanded(
    module: &Module,
    info: &ModuleInfo,
    limits: &ShaderLimits,
) -> Result<(), GpuError> {
    let constants = module.global_expressions.iter();
    let constants = constants.map(|(handle, _)| weight(module, &info[handle]));
    let constants = constants.fold(0, u64::saturating_add);
    // A function calls only those before it.
    let mut expanded: Vec<u64> = Vec::new();
    for (handle, function) in module.functions.iter() {
        expanded.push(whole(module, function, &info[handle], &expanded));
    }
    let entries = module.entry_points.iter().enumerate();
    let entries = entries
        .map(|(number, entry)| whole(module, &entry.function, info.get_entry_point(number), &expanded));
    let asked = entries.fold(0, u64::max).saturating_add(constants);
    match asked <= limits.steps {
        true => Ok(()),
        false => Err(GpuError::Limit {
            what: "steps, with calls and arrays written out,".into(),
            asked,
            most: limits.steps,
        }),
    }
}

/// A function's statements and values, those of the functions it calls included.
fn whole(module: &Module, function: &Function, info: &FunctionInfo, functions: &[u64]) -> u64 {
    let values = function.expressions.iter();
    let values = values.map(|(handle, _)| weight(module, &info[handle].ty));
    values.fold(count(&function.body, functions), u64::saturating_add)
}

fn weight(module: &Module, ty: &TypeResolution) -> u64 {
    let size = ty.inner_with(&module.types).try_size(module.to_ctx());
    u64::from(size.unwrap_or(u32::MAX)).div_ceil(16).max(1)
}

/// The size of a type; what 32 bits cannot count is too large for anything.
fn bytes(module: &Module, ty: Handle<Type>) -> u64 {
    let size = module.types[ty].inner.try_size(module.to_ctx());
    u64::from(size.unwrap_or(u32::MAX))
}

/// The statements of a block, those of the functions it calls included.
fn count(block: &Block, functions: &[u64]) -> u64 {
    let inner = |statement: &Statement| match statement {
        Statement::Block(block) => count(block, functions),
        Statement::If { accept, reject, .. } => {
            count(accept, functions).saturating_add(count(reject, functions))
        }
        Statement::Switch { cases, .. } => cases
            .iter()
            .map(|case| count(&case.body, functions))
            .fold(0, u64::saturating_add),
        Statement::Loop { body, continuing, .. } => {
            count(body, functions).saturating_add(count(continuing, functions))
        }
        Statement::Call { function, .. } => functions.get(function.index()).copied().unwrap_or(u64::MAX),
        _ => 0,
    };
    block
        .iter()
        .map(|statement| inner(statement).saturating_add(1))
        .fold(0, u64::saturating_add)
}
