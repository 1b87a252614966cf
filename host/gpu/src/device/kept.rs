use karman_types::Digest;

/// What a device made of programs, kept for their next runs within a bound of bytes: what was not used for the longest goes first.
pub(super) struct Kept<T> {
    most: u64,
    /// The latest used last.
    all: Vec<(Digest, u64, T)>,
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
        let at = self.all.iter().position(|(kept, ..)| *kept == id)?;
        Some(self.all.remove(at).2)
    }

    /// Lets go of what has to leave so that so many bytes can be put.
    pub(super) fn make_room(&mut self, bytes: u64) -> Vec<T> {
        let mut left = self.most.saturating_sub(bytes);
        let newest_first = self.all.iter().rev();
        let stays = newest_first.take_while(|(_, bytes, _)| match left.checked_sub(*bytes) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        let go = self.all.len() - stays.count();
        self.all.drain(..go).map(|(_, _, kept)| kept).collect()
    }

    /// Puts it where it is found the next time, after room was made.
    pub(super) fn put(&mut self, id: Digest, bytes: u64, kept: T) {
        self.all.push((id, bytes, kept));
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
        assert_eq!(kept.take(id("a")), Some("a"));
        kept.put(id("a"), 4, "a");
        assert_eq!(kept.make_room(3), ["b"]);
        kept.put(id("d"), 3, "d");
        assert_eq!(kept.take(id("b")), None);
        assert_eq!(kept.make_room(11), ["c", "a", "d"]);
        kept.put(id("e"), 11, "e");
        assert_eq!(kept.take(id("e")), Some("e"));
        assert_eq!(kept.take(id("e")), None);
    }
}
