use crate::tables::{VISITING, get, list, put};
use crate::{Store, StoreError, limits};
use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// A model of another node, of which this one runs a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Visitor {
    /// The digest of its file, under which [`Blobs`](crate::Blobs) has it.
    pub digest: Digest,
    /// The length of its file in bytes.
    pub bytes: u64,
    /// The names under which nodes brought it: a right to one opens no other.
    pub names: Vec<String>,
    /// Counts up with each use of any of them: the least is the first to go.
    turn: u64,
}

/// Models of other nodes, of which this one runs parts. They stay within [`visiting`](crate::StoreLimits::visiting) bytes: those
/// that were not used for longest go first.
#[derive(Clone, Copy, Debug)]
pub struct Visiting<'a>(pub(crate) &'a Store);

impl Visiting<'_> {
    /// Takes a model in that a node brings under this name, or notes that it is used again.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when it is larger than all of them may be together; what the disk refused.
    pub fn take_in(&self, name: &str, model: &[u8]) -> Result<Visitor, StoreError> {
        let most = self.0.limits().visiting.0;
        limits::at_most("visiting model", model.len(), most)?;
        self.0.blobs().add(model, |txn, digest| {
            let mut table = txn.open_table(VISITING)?;
            let mut others: Vec<(String, Visitor)> = list(&table, VISITING)?;
            let known = others.iter().find(|(_, visitor)| visitor.digest == digest);
            let mut names = known
                .map(|(_, visitor)| visitor.names.clone())
                .unwrap_or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
            others.retain(|(_, visitor)| visitor.digest != digest);
            let turn = others.iter().map(|(_, visitor)| visitor.turn + 1).max();
            let visitor = Visitor {
                digest,
                bytes: model.len() as u64,
                names,
                turn: turn.unwrap_or_default(),
            };
            put(&mut table, VISITING, &digest.to_string(), &visitor)?;
            others.sort_by_key(|(_, visitor)| visitor.turn);
            let mut all: u64 = visitor.bytes + others.iter().map(|(_, visitor)| visitor.bytes).sum::<u64>();
            let mut gone = Vec::new();
            for (name, visitor) in others {
                if all <= most {
                    break;
                }
                all -= visitor.bytes;
                table.remove(name.as_str())?;
                gone.push(visitor.digest);
            }
            Ok((visitor, gone))
        })
    }

    /// Notes that a model is used again, where it visits.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn used(&self, digest: &Digest) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(VISITING)?;
            let all: Vec<(String, Visitor)> = list(&table, VISITING)?;
            let turn = all
                .iter()
                .map(|(_, visitor)| visitor.turn)
                .max()
                .unwrap_or_default();
            let visitor = all.into_iter().find(|(_, visitor)| visitor.digest == *digest);
            if let Some((key, visitor)) = visitor.filter(|(_, visitor)| visitor.turn < turn) {
                let visitor = Visitor {
                    turn: turn + 1,
                    ..visitor
                };
                put(&mut table, VISITING, &key, &visitor)?;
            }
            Ok(())
        })
    }

    /// The model of this digest, if it is here.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn get(&self, digest: &Digest) -> Result<Option<Visitor>, StoreError> {
        let table = self.0.tables().read()?.open_table(VISITING)?;
        get(&table, VISITING, &digest.to_string())
    }

    /// All of them.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self) -> Result<Vec<Visitor>, StoreError> {
        let table = self.0.tables().read()?.open_table(VISITING)?;
        let all = list::<Visitor>(&table, VISITING)?;
        Ok(all.into_iter().map(|(_, visitor)| visitor).collect())
    }
}
