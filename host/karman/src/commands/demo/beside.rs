//! What goes on beside the passes, on threads of its own, knows of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How far the story is.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Passes that have begun.
    begun: AtomicUsize,
    trained: AtomicBool,
    over: AtomicBool,
}

/// The story is over when this is dropped, however it ends.
pub(super) struct Ends<'a>(&'a Beside);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

impl Beside {
    /// An act begins, counted from 0.
    pub(super) fn enters(&self, act: usize) {
        self.begun.store(act + 1, Ordering::Relaxed);
    }

    /// The act that it is; nothing before the first.
    pub(super) fn act(&self) -> Option<usize> {
        self.begun.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The boards train no more: there is a new model, or there will be none.
    pub(super) fn trained(&self) {
        self.trained.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_trained(&self) -> bool {
        self.trained.load(Ordering::Relaxed)
    }

    /// Tells the others that it is over, once this is dropped.
    pub(super) const fn until_dropped(&self) -> Ends<'_> {
        Ends(self)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_once_its_end_is_dropped() {
        let beside = Beside::default();
        assert_eq!(beside.act(), None);
        let ends = beside.until_dropped();
        beside.enters(0);
        beside.enters(2);
        assert_eq!((beside.act(), beside.is_over()), (Some(2), false));
        drop(ends);
        assert!(beside.is_over());
    }

    #[test]
    fn that_the_boards_train_no_more_is_told_once_they_do_not() {
        let beside = Beside::default();
        assert!(!beside.is_trained());
        beside.trained();
        assert!(beside.is_trained() && !beside.is_over());
    }
}
