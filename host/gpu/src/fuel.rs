//! A budget of loops, built into a shader.
//!
//! A device cannot be asked to stop. So every loop of a plugin's shader first takes one from a count that its invocation keeps; at
//! zero it says so in a buffer and leaves, and so does every loop around it. What has no loops ends anyway: WGSL has no recursion.

use naga::{
    AddressSpace, Arena, BinaryOperator, Block, Expression, GlobalVariable, Handle, Literal,
    MemoryDecorations, Module, Range, ResourceBinding, Scalar, Span, Statement, StorageAccess, Type,
    TypeInner,
};

/// What the code of a function refers to.
struct Handles {
    /// The count that is left.
    left: Handle<Expression>,
    /// The flag that says that it was used up.
    flag: Handle<Expression>,
    zero: Handle<Expression>,
    one: Handle<Expression>,
}

/// Gives every invocation this many iterations of loops; the flag is bound at `binding` of group 0.
pub(crate) fn add(module: &mut Module, loops: u32, binding: u32) {
    let nowhere = Span::UNDEFINED;
    let count = module.types.insert(
        Type {
            name: None,
            inner: TypeInner::Scalar(Scalar::U32),
        },
        nowhere,
    );
    let budget = module
        .global_expressions
        .append(Expression::Literal(Literal::U32(loops)), nowhere);
    let variable = |name: &str, space, binding, init| GlobalVariable {
        name: Some(name.into()),
        space,
        binding,
        ty: count,
        init,
        memory_decorations: MemoryDecorations::empty(),
    };
    let left = variable("karman_loops_left", AddressSpace::Private, None, Some(budget));
    let left = module.global_variables.append(left, nowhere);
    let space = AddressSpace::Storage {
        access: StorageAccess::LOAD | StorageAccess::STORE,
    };
    let flag = variable(
        "karman_loops_used_up",
        space,
        Some(ResourceBinding { group: 0, binding }),
        None,
    );
    let flag = module.global_variables.append(flag, nowhere);
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    for function in functions.chain(module.entry_points.iter_mut().map(|entry| &mut entry.function)) {
        let mut append = |expression| function.expressions.append(expression, nowhere);
        let handles = Handles {
            left: append(Expression::GlobalVariable(left)),
            flag: append(Expression::GlobalVariable(flag)),
            zero: append(Expression::Literal(Literal::U32(0))),
            one: append(Expression::Literal(Literal::U32(1))),
        };
        bound(&mut function.body, &mut function.expressions, &handles);
    }
}

/// Bounds every loop of a block.
fn bound(block: &mut Block, expressions: &mut Arena<Expression>, handles: &Handles) {
    for statement in block.iter_mut() {
        match statement {
            Statement::Block(block) => bound(block, expressions, handles),
            Statement::If { accept, reject, .. } => {
                bound(accept, expressions, handles);
                bound(reject, expressions, handles);
            }
            Statement::Switch { cases, .. } => {
                cases
                    .iter_mut()
                    .for_each(|case| bound(&mut case.body, expressions, handles));
            }
            Statement::Loop { body, continuing, .. } => {
                bound(body, expressions, handles);
                bound(continuing, expressions, handles);
                let mut bounded = toll(expressions, handles);
                bounded.extend_block(std::mem::take(body));
                *body = bounded;
            }
            _ => {}
        }
    }
}

/// `if left == 0 { flag = 1; break; } left = left - 1;`
fn toll(expressions: &mut Arena<Expression>, handles: &Handles) -> Block {
    let nowhere = Span::UNDEFINED;
    let left = expressions.append(
        Expression::Load {
            pointer: handles.left,
        },
        nowhere,
    );
    let binary = |op, right| Expression::Binary { op, left, right };
    let used_up = expressions.append(binary(BinaryOperator::Equal, handles.zero), nowhere);
    let less = expressions.append(binary(BinaryOperator::Subtract, handles.one), nowhere);
    let leave = vec![
        Statement::Store {
            pointer: handles.flag,
            value: handles.one,
        },
        Statement::Break,
    ];
    Block::from_vec(vec![
        Statement::Emit(Range::new_from_bounds(left, less)),
        Statement::If {
            condition: used_up,
            accept: Block::from_vec(leave),
            reject: Block::new(),
        },
        Statement::Store {
            pointer: handles.left,
            value: less,
        },
    ])
}
