use super::Plan;
use crate::kernel::{Argument, Role};
use std::collections::HashMap;

/// Where the buffers of a program lie: slots that are not needed at the same time share one of the same length.
pub(crate) struct Layout {
    /// Words of each buffer: first those of the constants, then those of the inputs.
    pub(crate) buffers: Vec<usize>,
    /// The buffer of each slot.
    pub(crate) slots: Vec<usize>,
    /// For each call the buffers of its arguments, in the kernel's order.
    pub(crate) calls: Vec<Vec<usize>>,
    /// For each call the slots that no later call reads.
    pub(crate) over: Vec<Vec<usize>>,
}

impl Layout {
    /// The layout of a plan whose slots are there and as long as its kernels take them; with the arguments of each call.
    pub(super) fn new(plan: &Plan, arguments: &[Vec<Argument>]) -> Self {
        let first_made = plan.first_made();
        let over = over(plan, arguments);
        let mut layout = Self {
            buffers: plan.constants.iter().chain(&plan.inputs).copied().collect(),
            slots: (0..first_made).collect(),
            calls: Vec::with_capacity(plan.calls.len()),
            over,
        };
        let mut free: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, (call, arguments)) in plan.calls.iter().zip(arguments).enumerate() {
            let (mut bound, mut scratch) = (Vec::with_capacity(arguments.len()), Vec::new());
            for (place, argument) in arguments.iter().enumerate() {
                let buffer = match call.inputs.get(place) {
                    // A kernel's inputs come first.
                    Some(slot) => layout.slots[*slot],
                    None => layout.take(&mut free, argument.words),
                };
                match argument.role {
                    Role::Input => {}
                    Role::Output => layout.slots.push(buffer),
                    Role::Scratch => scratch.push(buffer),
                }
                bound.push(buffer);
            }
            // What this call reads is free only after it: no kernel writes to what it reads.
            let read = layout.over[number].iter().map(|slot| layout.slots[*slot]);
            for buffer in read.chain(scratch) {
                free.entry(layout.buffers[buffer]).or_default().push(buffer);
            }
            layout.calls.push(bound);
        }
        layout
    }

    /// A buffer of this many words that is free, or one more.
    fn take(&mut self, free: &mut HashMap<usize, Vec<usize>>, words: usize) -> usize {
        if let Some(buffer) = free.get_mut(&words).and_then(Vec::pop) {
            return buffer;
        }
        self.buffers.push(words);
        self.buffers.len() - 1
    }

    /// Words of all buffers together.
    pub(crate) fn words(&self) -> u64 {
        let buffers = self.buffers.iter().map(|words| *words as u64);
        buffers.fold(0, u64::saturating_add)
    }

    /// Words of a slot.
    pub(crate) fn words_of(&self, slot: usize) -> usize {
        self.buffers[self.slots[slot]]
    }
}

/// For each call the slots made by it or before it that nobody reads after it and that are not given back, each once.
fn over(plan: &Plan, arguments: &[Vec<Argument>]) -> Vec<Vec<usize>> {
    let mut last: HashMap<usize, usize> = HashMap::new();
    let mut next = plan.first_made();
    for (number, (call, arguments)) in plan.calls.iter().zip(arguments).enumerate() {
        let read = call
            .inputs
            .iter()
            .copied()
            .filter(|slot| *slot >= plan.first_made());
        last.extend(read.map(|slot| (slot, number)));
        let made = arguments.iter().filter(|argument| argument.role == Role::Output);
        for _ in made {
            // Until somebody reads it.
            last.insert(next, number);
            next += 1;
        }
    }
    let mut over = vec![Vec::new(); plan.calls.len()];
    for (slot, number) in last {
        if !plan.outputs.contains(&slot) {
            over[number].push(slot);
        }
    }
    over.iter_mut().for_each(|slots| slots.sort_unstable());
    over
}
