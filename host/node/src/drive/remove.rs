//! Models that are taken away: from this node, and from others of the mesh.

use super::HeldModel;
use super::deploy::OnNode;
use super::flow::forget_measured;
use super::model_tasks::MODEL;
use super::split::forget_order;
use crate::node::Node;
use crate::services::{blocking, to_the_end};
use karman_store::Store;
use karman_types::TaskError;

impl Node {
    /// Takes a model away from this node, and ends its plan where it runs in parts. Requests that run already end as they began.
    ///
    /// # Errors
    /// `unavailable` when there is none of that name; what the disk refuses.
    pub async fn remove_model(&self, name: &str) -> Result<HeldModel, TaskError> {
        let models = self.runtime().models();
        if models.find(name)?.is_none_or(|found| found.model.name != name) {
            return Err(unknown_model(name));
        }
        let (node, name) = (self.clone(), name.to_owned());
        // Once it is gone from the disk it is gone, whoever waits for that.
        to_the_end(async move {
            node.unsplit_model(&name).await?;
            let home = node.runtime().home().clone();
            let removed = blocking(move || remove_stored_model(&home.store()?, &name)).await?;
            node.runtime().models().forget(&removed);
            node.tasks().inner().flows.are_measured_anew();
            node.announce().await;
            Ok(removed.into())
        })
        .await
    }

    /// The same on every node that the selector names and that has it.
    ///
    /// # Errors
    /// `invalid` when the selector does not read, `unavailable` when it names no node in reach that has the model.
    pub async fn remove_model_on(&self, selector: &str, name: &str) -> Result<Vec<OnNode<()>>, TaskError> {
        let here = async {
            match self.runtime().models().find(name) {
                Ok(found) => {
                    found?;
                    Some(self.remove_model(name).await.map(drop))
                }
                Err(error) => Some(Err(error)),
            }
        };
        let asked = format!("{MODEL}{name}");
        self.take_away(selector, (name, &asked), here).await
    }
}

/// Takes a model away from the folder of a node, with the order by which it ran in parts and what was measured of it. Blocks.
///
/// # Errors
/// `unavailable` when there is none of that name; what the disk refuses.
pub fn remove_stored_model(store: &Store, name: &str) -> Result<karman_store::Model, TaskError> {
    let models = store.models();
    models.get(name)?.ok_or_else(|| unknown_model(name))?;
    forget_order(store, name)?;
    forget_measured(store, name)?;
    models.remove(name).map_err(TaskError::from)
}

/// The error that this node has no model of that name.
pub(in crate::drive) fn unknown_model(name: &str) -> TaskError {
    TaskError::unavailable(format!("this node has no model `{name}`"))
        .with_field("name")
        .with_hint("`karman model list` shows those it has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    #[test]
    fn what_was_measured_of_a_file_goes_with_the_last_model_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Home::new(folder.path()).store().unwrap();
        let add = |name, file| {
            store
                .models()
                .add(name, file, None, Default::default())
                .unwrap()
                .digest
        };
        let [digits, other] = [add("digits", b"a".as_slice()), add("other", b"b".as_slice())];
        add("again", b"a".as_slice());
        let profiles = [digits, other].map(|file| format!("{file}/tract-0/1"));
        for name in &profiles {
            store.profiles().put(name, &1u32).unwrap();
        }
        store.profiles().put("power", &2u32).unwrap();
        let kept = || store.profiles().names("").unwrap();
        let kept_of = |name: &String| kept().contains(name);
        remove_stored_model(&store, "digits").unwrap();
        assert!(profiles.iter().all(kept_of));
        remove_stored_model(&store, "again").unwrap();
        assert_eq!(profiles.each_ref().map(kept_of), [false, true]);
        // Another file under the same name takes its place.
        add("other", b"c".as_slice());
        assert_eq!(kept(), ["power"]);
    }
}
