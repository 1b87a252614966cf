//! What a device in this process keeps of programs for their next runs.

use crate::error::GpuError;
use crate::kernel::Words;
use crate::program::Program;
use karman_types::Digest;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most memory of programs that a device keeps, in bytes.
pub(super) const MOST_KEPT: u64 = 1 << 30;

/// A device that prepares a program once for all its runs.
pub(super) trait RunPrograms {
    /// A program whose constants and buffers are on the device, and whose kernels are compiled.
    type Ready;

    fn programs(&mut self) -> &mut Kept<Self::Ready>;

    /// Puts a program's constants on the device and compiles its kernels.
    fn make_ready(&mut self, program: &Program) -> Result<Self::Ready, GpuError>;

    /// Runs it once.
    fn run_ready(
        &mut self,
        ready: &mut Self::Ready,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError>;

    /// What was made of the program before is used again, where it is still there.
    fn run_program(
        &mut self,
        program: &Program,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        let start = Instant::now();
        program.check_inputs(inputs)?;
        if let Some(outputs) = self.run_again(program.id(), inputs, within) {
            return outputs;
        }
        drop(self.programs().make_room(program.bytes()));
        let mut ready = self.make_ready(program)?;
        let outputs = self.run_ready(&mut ready, inputs, within.saturating_sub(start.elapsed()))?;
        self.programs().put(program.id(), program.bytes(), ready);
        Ok(outputs)
    }

    /// None where the program is not kept. One that failed is not kept any more.
    fn run_again(
        &mut self,
        program: Digest,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Option<Result<Vec<Words>, GpuError>> {
        let (mut ready, bytes) = self.programs().take(program)?;
        let outputs = self.run_ready(&mut ready, inputs, within);
        if outputs.is_ok() {
            self.programs().put(program, bytes, ready);
        }
        Some(outputs)
    }
}

/// What a device made of programs, kept within a bound of bytes. Room is made by the tenant that has the most: it loses the least
/// recently used of its programs. So no tenant's many or large programs push out the few of another.
pub(super) struct Kept<T> {
    most: u64,
    /// Whose the present work is.
    tenant: String,
    /// The latest used last.
    all: Vec<Entry<T>>,
}

struct Entry<T> {
    id: Digest,
    tenant: String,
    bytes: u64,
    kept: T,
}

impl<T> Kept<T> {
    /// Keeps this many bytes at most; what is larger by itself is kept alone.
    pub(super) const fn new(most: u64) -> Self {
        Self {
            most,
            tenant: String::new(),
            all: Vec::new(),
        }
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// What is put from now on belongs to this tenant.
    pub(super) fn set_tenant(&mut self, tenant: &str) {
        tenant.clone_into(&mut self.tenant);
    }

    /// Takes it out, with its bytes, to be used and put back.
    fn take(&mut self, id: Digest) -> Option<(T, u64)> {
        let at = self.all.iter().position(|entry| entry.id == id)?;
        let entry = self.all.remove(at);
        Some((entry.kept, entry.bytes))
    }

    /// Lets go of what has to leave so that the tenant can put this many bytes.
    fn make_room(&mut self, bytes: u64) -> Vec<T> {
        let mut gone = Vec::new();
        while self.bytes().saturating_add(bytes) > self.most {
            let Some(at) = self.next_to_go(bytes) else {
                break;
            };
            gone.push(self.all.remove(at).kept);
        }
        gone
    }

    /// Puts it where it is found the next time, after room was made. It belongs to the tenant that used it last.
    fn put(&mut self, id: Digest, bytes: u64, kept: T) {
        self.all.push(Entry {
            id,
            tenant: self.tenant.clone(),
            bytes,
            kept,
        });
    }

    fn bytes(&self) -> u64 {
        let each = self.all.iter().map(|entry| entry.bytes);
        each.fold(0, u64::saturating_add)
    }

    /// The least recently used of the tenant that has the most, counting what is to come.
    fn next_to_go(&self, bytes: u64) -> Option<usize> {
        let mut had: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &self.all {
            let had = had.entry(&entry.tenant).or_default();
            *had = had.saturating_add(entry.bytes);
        }
        if let Some(had) = had.get_mut(self.tenant.as_str()) {
            *had = had.saturating_add(bytes);
        }
        let most = had.values().copied().max()?;
        let has_most = |entry: &Entry<T>| had.get(entry.tenant.as_str()) == Some(&most);
        self.all.iter().position(has_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn what_was_not_used_for_the_longest_leaves_first() {
        let mut kept = Kept::new(10);
        for (name, bytes) in [("a", 4), ("b", 3), ("c", 3)] {
            assert!(kept.make_room(bytes).is_empty());
            kept.put(id(name), bytes, name);
        }
        assert_eq!(kept.take(id("a")), Some(("a", 4)));
        kept.put(id("a"), 4, "a");
        assert_eq!(kept.make_room(3), ["b"]);
        kept.put(id("d"), 3, "d");
        assert_eq!(kept.take(id("b")), None);
        assert_eq!(kept.make_room(11), ["c", "a", "d"]);
        kept.put(id("e"), 11, "e");
        assert_eq!(kept.take(id("e")), Some(("e", 11)));
        assert_eq!(kept.take(id("e")), None);
    }

    /// What `one` has was not used for the longest, and it stays until `one` has more than the other.
    #[test]
    fn the_tenant_that_has_the_most_loses_first() {
        let mut kept = Kept::new(10);
        let mut room = |tenant: &str, bytes: u64, name: &'static str| {
            kept.set_tenant(tenant);
            let gone = kept.make_room(bytes);
            kept.put(id(name), bytes, name);
            gone
        };
        assert!(room("one", 2, "small").is_empty());
        assert!(room("two", 4, "first").is_empty());
        assert!(room("two", 4, "second").is_empty());
        assert_eq!(room("two", 3, "third"), ["first"]);
        assert_eq!(room("one", 4, "fourth"), ["second"]);
        assert_eq!(room("two", 2, "fifth"), ["small"]);
        assert_eq!(room("three", 5, "sixth"), ["third", "fourth"]);
    }
}
