//! Instances that wait for their next call.
//!
//! Each of them keeps a place of the pool, which all plugins share. So only some of the places are for those that wait; where more would,
//! the plugin with the most gives its oldest one up, and calls find the other places free.

use crate::plugin::Plugin;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The idle instances of one plugin.
pub(crate) struct Idle<T>(Mutex<VecDeque<(T, Counted)>>);

impl<T> Idle<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// The one that came last: its memory is most likely still in the caches of the processor.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().pop_back().map(|(instance, _)| instance)
    }

    pub(crate) fn put(&self, instance: T, counted: Counted) {
        self.0.lock().push_back((instance, counted));
    }

    /// The one that has waited longest.
    pub(crate) fn give_up(&self) -> Option<T> {
        self.0.lock().pop_front().map(|(instance, _)| instance)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// The idle instances of all plugins of an engine.
pub(crate) struct IdlePlaces {
    most: usize,
    taken: Arc<AtomicUsize>,
    plugins: Mutex<Vec<Weak<Plugin>>>,
}

/// A place of an instance that waits, until this is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IdlePlaces {
    /// Of so many instances that may live at once.
    pub(crate) fn of(live: u32) -> Self {
        Self {
            most: live as usize / 4,
            taken: Arc::default(),
            plugins: Mutex::default(),
        }
    }

    /// Places that are for no others.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// From now on this plugin may be asked to give one up.
    pub(crate) fn add(&self, plugin: &Arc<Plugin>) {
        let mut plugins = self.plugins.lock();
        plugins.retain(|plugin| plugin.strong_count() > 0);
        plugins.push(Arc::downgrade(plugin));
    }

    pub(crate) fn take(&self) -> Counted {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Counted(self.taken.clone())
    }

    /// Makes room again where more wait than there are places.
    pub(crate) fn make_room(&self) {
        if self.taken.load(Ordering::Relaxed) <= self.most {
            return;
        }
        let plugins: Vec<Arc<Plugin>> = self.plugins.lock().iter().filter_map(Weak::upgrade).collect();
        if let Some(richest) = plugins.iter().max_by_key(|plugin| plugin.idle()) {
            richest.give_up_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_again_however_an_instance_goes() {
        let (places, idle) = (IdlePlaces::of(16), Idle::new());
        for instance in 0..3 {
            idle.put(instance, places.take());
        }
        let taken = || places.taken.load(Ordering::Relaxed);
        assert_eq!((places.most(), taken(), idle.len()), (4, 3, 3));
        assert_eq!((idle.take(), idle.give_up(), taken()), (Some(2), Some(0), 1));
        drop(idle);
        assert_eq!(taken(), 0);
    }
}
