use super::{Checkpoint, Entry, What};
use karman_types::Digest;
use std::collections::HashMap;

/// What was written down of a policy from its last checkpoint on: all that it takes to go on with it ([`Logged::resumed`](super::Logged::resumed)).
#[derive(Clone, Debug)]
pub struct Tail {
    /// The name and instance of the policy.
    of: (String, u64),
    pub(super) checkpoint: Checkpoint,
    /// What came after it, in its order.
    pub(super) after: Vec<What>,
}

/// The tails of the policies in a log, the oldest entry first, by what each is known by. Of several that are known by the same, that of
/// the last one.
pub fn tails(entries: impl IntoIterator<Item = Entry>) -> HashMap<Digest, Tail> {
    let mut tails: HashMap<Digest, Tail> = HashMap::new();
    let mut known: HashMap<(String, u64), Digest> = HashMap::new();
    for entry in entries {
        let of = (entry.policy, entry.instance);
        match entry.what {
            What::Checkpoint(checkpoint) => {
                let Some(known_by) = checkpoint.known_by else {
                    continue;
                };
                known.insert(of.clone(), known_by);
                let tail = Tail {
                    of,
                    checkpoint: *checkpoint,
                    after: Vec::new(),
                };
                tails.insert(known_by, tail);
            }
            what => {
                let tail = known.get(&of).and_then(|known_by| tails.get_mut(known_by));
                // Another one that is known by the same may have taken its place.
                if let Some(tail) = tail.filter(|tail| tail.of == of) {
                    tail.after.push(what);
                }
            }
        }
    }
    tails
}
