use karman_types::Digest;
use std::collections::BTreeMap;

/// What a device made of programs, kept for their next runs within a bound of bytes: whoever has the most loses first, and of that what
/// was not used for the longest. So nobody's many or large programs push out the few of another.
pub(super) struct Kept<T> {
    most: u64,
    /// The latest used last.
    all: Vec<Entry<T>>,
}

struct Entry<T> {
    id: Digest,
    owner: String,
    bytes: u64,
    kept: T,
}

impl<T> Kept<T> {
    /// Keeps so many bytes at most; what is larger by itself is kept alone.
    pub(super) const fn new(most: u64) -> Self {
        Self {
            most,
            all: Vec::new(),
        }
    }

    /// Takes it out, to be used and put back.
    pub(super) fn take(&mut self, id: Digest) -> Option<T> {
        let at = self.all.iter().position(|entry| entry.id == id)?;
        Some(self.all.remove(at).kept)
    }

    /// Lets go of what has to leave so that this owner can put so many bytes.
    pub(super) fn make_room(&mut self, owner: &str, bytes: u64) -> Vec<T> {
        let mut gone = Vec::new();
        while self.bytes().saturating_add(bytes) > self.most {
            let Some(at) = self.next_to_go(owner, bytes) else {
                break;
            };
            gone.push(self.all.remove(at).kept);
        }
        gone
    }

    /// Puts it where it is found the next time, after room was made. It belongs to who used it last.
    pub(super) fn put(&mut self, id: Digest, owner: &str, bytes: u64, kept: T) {
        self.all.push(Entry {
            id,
            owner: owner.to_owned(),
            bytes,
            kept,
        });
    }

    fn bytes(&self) -> u64 {
        let each = self.all.iter().map(|entry| entry.bytes);
        each.fold(0, u64::saturating_add)
    }

    /// The oldest of whoever has the most, counting what is to come.
    fn next_to_go(&self, owner: &str, bytes: u64) -> Option<usize> {
        let mut had: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &self.all {
            let had = had.entry(&entry.owner).or_default();
            *had = had.saturating_add(entry.bytes);
        }
        if let Some(had) = had.get_mut(owner) {
            *had = had.saturating_add(bytes);
        }
        let most = had.values().copied().max()?;
        let has_most = |entry: &Entry<T>| had.get(entry.owner.as_str()) == Some(&most);
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
            assert!(kept.make_room("one", bytes).is_empty());
            kept.put(id(name), "one", bytes, name);
        }
        assert_eq!(kept.take(id("a")), Some("a"));
        kept.put(id("a"), "one", 4, "a");
        assert_eq!(kept.make_room("one", 3), ["b"]);
        kept.put(id("d"), "one", 3, "d");
        assert_eq!(kept.take(id("b")), None);
        assert_eq!(kept.make_room("one", 11), ["c", "a", "d"]);
        kept.put(id("e"), "one", 11, "e");
        assert_eq!(kept.take(id("e")), Some("e"));
        assert_eq!(kept.take(id("e")), None);
    }

    /// What `one` has was not used for the longest, and it stays until `one` has more than the other.
    #[test]
    fn whoever_has_the_most_loses_first() {
        let mut kept = Kept::new(10);
        for (name, owner, bytes) in [("small", "one", 2), ("first", "two", 4), ("second", "two", 4)] {
            assert!(kept.make_room(owner, bytes).is_empty());
            kept.put(id(name), owner, bytes, name);
        }
        assert_eq!(kept.make_room("two", 3), ["first"]);
        kept.put(id("third"), "two", 3, "third");
        assert_eq!(kept.make_room("one", 4), ["second"]);
        kept.put(id("fourth"), "one", 4, "fourth");
        assert_eq!(kept.make_room("two", 2), ["small"]);
        assert_eq!(kept.make_room("three", 5), ["fourth"]);
    }
}
