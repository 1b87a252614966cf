use super::at_most;
use crate::error::LoadError;
use wasmparser::{
    FuncToValidate, FuncValidatorAllocations, FunctionBody, Operator, OperatorsReader, Result, ValType,
    ValidatorResources,
};

// The bounds are at least ten times what the interpreters of Python (CPython) and JavaScript (SpiderMonkey) have, which is given with each.
// What lies just below any of them takes less than 1 GiB to compile, and 70 MB more on each further core.

/// The functions that all modules of a file define: 13,500.
pub(super) const MOST_FUNCTIONS: u64 = 140_000;

/// Values times blocks, over all functions: 4.7 billion. By this goes the time to follow values through blocks.
pub(super) const MOST_EFFORT: u64 = 50_000_000_000;

/// The same of one function: 1.2 billion.
const MOST_EFFORT_AT_ONCE: u64 = 12_000_000_000;

/// The values that the operators of a function give: 170,000. The compiler keeps some 350 bytes for each.
pub(super) const MOST_VALUES: u64 = 2_000_000;

/// A function with more values than any of theirs. As many are compiled at once as there are cores, so all of these together have no more than
/// one alone may.
pub(super) const LARGE: u64 = 200_000;

/// Parameters and locals of a function: 273; a function that was not optimised has many more.
const MOST_LOCALS: u64 = 20_000;

/// Values on the operand stack: 64.
const MOST_OPERANDS: u64 = 2_000;

/// Blocks within each other: 782.
const MOST_NESTED: u64 = 10_000;

/// Locals and operands times blocks, of one function: 1.3 million. The compiler keeps 4 bytes or more for each.
const MOST_PATHS: u64 = 20_000_000;

/// For each block of a function, the locals that are set within it: 18,000. Each may have to be merged where the block begins or ends.
const MOST_MERGES: u64 = 500_000;

/// References that have to be found again, over all calls of a function: none.
const MOST_REFERENCES: u64 = 200_000;

/// What compiling a function costs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Cost {
    values: u64,
    locals: u64,
    operands: u64,
    nested: u64,
    blocks: u64,
    merges: u64,
    references: u64,
}

impl Cost {
    pub(super) const fn values(&self) -> u64 {
        self.values
    }

    pub(super) const fn effort(&self) -> u64 {
        self.values.saturating_mul(self.blocks)
    }

    #[cfg(test)]
    pub(super) const fn merges(&self) -> u64 {
        self.merges
    }

    const fn paths(&self) -> u64 {
        (self.locals + self.operands).saturating_mul(self.blocks)
    }

    /// # Errors
    /// [`LoadError::TooComplex`] of this place.
    pub(super) fn keep_within(&self, place: &str) -> Result<(), LoadError> {
        for (what, has, most) in [
            ("values", self.values, MOST_VALUES),
            ("locals", self.locals, MOST_LOCALS),
            ("values on the stack", self.operands, MOST_OPERANDS),
            ("blocks within each other", self.nested, MOST_NESTED),
            ("locals times blocks", self.paths(), MOST_PATHS),
            ("locals to merge", self.merges, MOST_MERGES),
            ("references at calls", self.references, MOST_REFERENCES),
            ("values times blocks", self.effort(), MOST_EFFORT_AT_ONCE),
        ] {
            at_most(place, what, has, most)?;
        }
        Ok(())
    }
}

/// Counts one function after the other.
#[derive(Default)]
pub(super) struct Counter {
    spare: FuncValidatorAllocations,
    merges: Merges,
}

impl Counter {
    /// Validates a function, and counts.
    ///
    /// # Errors
    /// What makes it invalid.
    pub(super) fn count(
        &mut self,
        function: FuncToValidate<ValidatorResources>,
        body: &FunctionBody<'_>,
    ) -> Result<Cost> {
        let mut validator = function.into_validator(std::mem::take(&mut self.spare));
        let mut reader = body.get_binary_reader();
        validator.read_locals(&mut reader)?;
        let locals = validator.len_locals();
        let mut cost = Cost {
            locals: locals.into(),
            ..Cost::default()
        };
        let is_reference = |kind: Option<ValType>| matches!(kind, Some(ValType::Ref(_)));
        let references = (0..locals).filter(|local| is_reference(validator.get_local_type(*local)));
        let references = references.count() as u64;
        let mut any_reference = references > 0;
        self.merges.begin(locals);

        let mut operators = OperatorsReader::new(reader);
        let (bytes, start) = (body.as_bytes(), body.range().start);
        while !operators.eof() {
            let at = operators.original_position();
            let opcode = bytes[at - start];
            let operator = operators.read()?;
            let (takes, gives) = operator.operator_arity(&validator).unwrap_or_default();
            validator.op(at, &operator)?;

            let ways = match &operator {
                Operator::BrTable { targets } => u64::from(targets.len()) + 1,
                _ => 1,
            };
            // What a branch takes with it is a value of the block that it leads to.
            let values = if blocks(opcode) == 0 {
                gives
            } else {
                takes.max(gives)
            };
            cost.values += ways * u64::from(values.max(1));
            cost.blocks += ways * blocks(opcode);
            cost.operands = cost.operands.max(validator.operand_stack_height().into());
            cost.nested = cost.nested.max(validator.control_stack_height().into());
            // The validator keeps all of these: what has too many already is not looked at to its end.
            if cost.operands > MOST_OPERANDS || cost.nested > MOST_NESTED || cost.values > MOST_VALUES {
                return Ok(cost);
            }
            if let Operator::LocalSet { local_index } | Operator::LocalTee { local_index } = operator {
                self.merges.set(local_index);
            }
            self.merges.go_on(validator.control_stack_height());
            // Once there was one, any operand may be one.
            any_reference |=
                (0..gives as usize).any(|depth| is_reference(validator.get_operand_type(depth).flatten()));
            if is_call(opcode) {
                let operands = if any_reference {
                    validator.operand_stack_height()
                } else {
                    0
                };
                cost.references += references + u64::from(operands);
            }
        }
        operators.finish()?;
        cost.merges = self.merges.count;
        self.spare = validator.into_allocations();
        Ok(cost)
    }
}

/// The blocks that the compiler makes of an operator, by the first byte of its code; of `br_table`, for each of its targets.
const fn blocks(opcode: u8) -> u64 {
    match opcode {
        // What runs straight through, ends a block, or ends with one: `end`, `br`, `call`, locals, loads, numbers, vectors.
        0x00 | 0x01 | 0x05 | 0x0b | 0x0c | 0x0f | 0x10 | 0x1a..=0x1c | 0x20..=0x24 => 0,
        0x28..=0x3f | 0x41..=0xc4 | 0xfd => 0,
        // `block`, `br_if`, `br_table`.
        0x02 | 0x0d | 0x0e => 1,
        // `if`, a call through a table, `loop`, which looks whether its time is over, and all that is rare.
        _ => 4,
    }
}

/// Whether it may call something, which has to find the references that are in use.
const fn is_call(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x10) || blocks(opcode) == 4
}

/// Counts, for each block, the locals that are set within it.
#[derive(Default)]
struct Merges {
    count: u64,
    now: u32,
    /// When the blocks that are open began, from the outermost on.
    open: Vec<u32>,
    /// When each local was last set.
    set: Vec<u32>,
}

impl Merges {
    fn begin(&mut self, locals: u32) {
        (self.count, self.now) = (0, 1);
        self.open.clear();
        self.open.push(0);
        self.set.clear();
        self.set.resize(locals as usize, 0);
    }

    fn set(&mut self, local: u32) {
        // A block that was open when it was last set has counted it.
        let last = self.set[local as usize];
        let counted = self.open.partition_point(|began| *began < last);
        self.count += (self.open.len() - counted) as u64;
        self.set[local as usize] = self.now;
    }

    /// To the next operator, with as many blocks open.
    fn go_on(&mut self, open: u32) {
        self.now += 1;
        self.open.resize(open as usize, self.now);
        self.now += 1;
    }
}
