use karman_types::TaskId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which task goes by which idempotency key.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Keys(BTreeMap<Arc<str>, TaskId>);

impl Keys {
    pub(crate) fn find(&self, key: Option<&Arc<str>>) -> Option<TaskId> {
        self.0.get(key?).copied()
    }

    /// The first task with a key keeps it.
    pub(crate) fn insert(&mut self, key: Option<&Arc<str>>, task: TaskId) {
        if let Some(key) = key {
            self.0.entry(key.clone()).or_insert(task);
        }
    }

    /// Forgets the key, if it is this task's.
    pub(crate) fn remove(&mut self, key: Option<&Arc<str>>, task: TaskId) {
        if let Some(key) = key
            && self.0.get(key) == Some(&task)
        {
            self.0.remove(key);
        }
    }
}

/// Another request came under this key (or id, where there was none), which is taken. It does not say by which task: who knows the id
/// of a task reads its result and withdraws it, and who comes with another request may be another caller.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("the key `{0}` belongs to a task that asks for something else: use a new key for a new request")]
pub struct KeyReused(pub Arc<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_first() {
        let [one, two] = [1, 2].map(|n| TaskId::from_parts(0, n));
        let key = Arc::from("alice/7");
        let mut keys = Keys::default();
        keys.insert(Some(&key), one);
        keys.insert(Some(&key), two);
        keys.remove(Some(&key), two);
        assert_eq!(keys.find(Some(&key)), Some(one));
        assert_eq!(keys.find(None), None);
        keys.remove(Some(&key), one);
        assert_eq!(keys.find(Some(&key)), None);
    }
}
