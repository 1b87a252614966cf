use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The live bytes of one board, and the most there ever were: rows computed and received, sums, packets and scratch. Clones count
/// together.
///
/// It stands in for an allocator of the board's own: a global one would see all boards of a process as one, and attributing
/// its bytes to them takes unsafe code.
#[derive(Clone, Debug, Default)]
pub struct Account(Arc<Balance>);

#[derive(Debug, Default)]
struct Balance {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl Account {
    /// A counted buffer of this many default elements.
    pub fn take<T: Clone + Default>(&self, length: usize) -> Counted<T> {
        let mut buffer = self.empty();
        buffer.grow(&vec![T::default(); length]);
        buffer
    }

    /// A counted buffer without elements.
    pub fn empty<T>(&self) -> Counted<T> {
        Counted {
            values: Vec::new(),
            account: self.clone(),
        }
    }

    /// All live bytes.
    pub fn live(&self) -> usize {
        self.0.live.load(Ordering::Relaxed)
    }

    /// The most live bytes there were at any time.
    pub fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        let live = self.0.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0.peak.fetch_max(live, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.live.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Elements that are counted as long as they exist.
#[derive(Debug)]
pub struct Counted<T> {
    values: Vec<T>,
    account: Account,
}

impl<T> Counted<T> {
    /// Appends elements.
    pub fn grow(&mut self, elements: &[T])
    where
        T: Clone,
    {
        self.account.add(size_of_val(elements));
        self.values.extend_from_slice(elements);
    }
}

impl<T> Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.account.subtract(size_of_val(&self.values[..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_no_longer_live_but_stays_in_the_peak() {
        let account = Account::default();
        let rows = account.take::<i8>(100);
        let mut sums = account.take::<i32>(10);
        sums.grow(&[1, 2]);
        assert_eq!(account.live(), 148);
        drop(rows);
        let _other = account.take::<u8>(50);
        assert_eq!((account.live(), account.peak()), (98, 148));
    }
}
