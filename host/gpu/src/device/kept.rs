//! What a device in this process keeps of programs for their next runs.

use super::Done;
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

    /// Gives back what is only kept for later: the programs of all tenants, and whatever else.
    fn let_go(&mut self);

    /// Does some work, and once more where the device had no memory left for it before it let go of what it only keeps.
    fn with_room(
        &mut self,
        within: Duration,
        work: impl Fn(&mut Self, Duration) -> Result<Vec<Words>, GpuError>,
    ) -> Result<Done, GpuError> {
        let start = Instant::now();
        let outputs = match work(self, within) {
            Err(GpuError::Exhausted) => {
                self.let_go();
                work(self, within.saturating_sub(start.elapsed()))
            }
            outputs => outputs,
        };
        Ok(Done::since(start, outputs?))
    }

    /// What a run of a program that was kept gave. Where it found no memory it counts as not kept: it is sent once more, and finds room then.
    fn kept_with_room(
        &mut self,
        start: Instant,
        outputs: Result<Vec<Words>, GpuError>,
    ) -> Option<Result<Done, GpuError>> {
        if outputs == Err(GpuError::Exhausted) {
            self.let_go();
            return None;
        }
        Some(outputs.map(|outputs| Done::since(start, outputs)))
    }

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

    /// A device that has memory for what it keeps or for its work, but not for both.
    struct Full(Kept<()>);

    impl RunPrograms for Full {
        type Ready = ();

        fn programs(&mut self) -> &mut Kept<()> {
            &mut self.0
        }

        fn let_go(&mut self) {
            self.0.clear();
        }

        fn make_ready(&mut self, _: &Program) -> Result<(), GpuError> {
            Ok(())
        }

        fn run_ready(&mut self, (): &mut (), _: &[&[u32]], _: Duration) -> Result<Vec<Words>, GpuError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn what_is_kept_gives_way_to_work_that_finds_no_memory() {
        let mut device = Full(Kept::new(10));
        let work = |device: &mut Full, _: Duration| match device.0.bytes() {
            0 => Ok(vec![vec![1]]),
            _ => Err(GpuError::Exhausted),
        };
        for _ in 0..2 {
            device.0.put(id("a"), 4, ());
            let done = device.with_room(Duration::from_secs(1), work).unwrap();
            assert_eq!(done.outputs, [[1]]);
        }
        device.0.put(id("a"), 4, ());
        let outputs = work(&mut device, Duration::ZERO);
        assert_eq!(device.kept_with_room(Instant::now(), outputs), None);
        assert_eq!(device.0.bytes(), 0);
        let never = |_: &mut Full, _: Duration| Err(GpuError::Exhausted);
        let refused = device.with_room(Duration::from_secs(1), never);
        assert_eq!(refused, Err(GpuError::Exhausted));
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
