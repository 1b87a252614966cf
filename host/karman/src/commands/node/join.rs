//! How `karman node up` takes the node into its mesh.

use super::Up;
use crate::app::App;
use crate::error;
use crate::link_profile;
use karman_mesh::membership::{Invitation, MembershipError};
use karman_node::JoinOptions;
use karman_types::TaskError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node that joins waits to be let in.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);

impl Up {
    /// Takes the node into its mesh, and says how that went.
    pub(super) async fn join(
        &self,
        app: &App,
        node: &karman_node::Node,
        given: Option<Given>,
    ) -> Result<(), TaskError> {
        let (word, file) = match given {
            None => (None, None),
            Some(Given::Word(word)) => (Some(*word), None),
            Some(Given::File(word, file)) => (Some(*word), Some(file)),
            Some(Given::Gone(file)) => (None, Some(file)),
        };
        let invited = word.is_some();
        let options = JoinOptions {
            invitation: word,
            links: self.link_profile.as_deref().map(link_profile::read).transpose()?,
        };
        // Who is no member yet needs what the file was to hold, also where it was invited before, in vain.
        let mesh = node.join(options).await?;
        let may_go_on = invited || mesh.is_some_and(|mesh| mesh.standing().was_let_in());
        if let Some(file) = file.as_ref().filter(|_| !may_go_on) {
            return Err(error::file(file, &ErrorKind::NotFound.into()).with_field("join"));
        }
        let Some(mesh) = mesh else {
            return Ok(());
        };
        let name = mesh.standing().mesh().short();
        if !invited {
            app.output.note(match mesh.standing().own_or_why() {
                Some(Err(why)) => format!("warning: outside mesh {name}: this node's own membership: {why}"),
                _ => format!("in mesh {name}"),
            });
            return Ok(());
        }
        let member = mesh.admitted(JOIN_PATIENCE).await?;
        if let Some(note) = file.and_then(|file| delete(&file)) {
            app.output.note(note);
        }
        app.output.note(format!(
            "joined mesh {name} as {} node {}",
            member.tier,
            member.node.short()
        ));
        Ok(())
    }
}

/// Deletes the file of an invitation that was used: it is of no use to anyone any more, and tells where the mesh is. What there is to say
/// where that fails: the node is a member all the same.
fn delete(file: &Path) -> Option<String> {
    let failed = std::fs::remove_file(file).err()?;
    let file = file.display();
    Some(format!(
        "note: {file} could not be deleted ({failed}): its invitation is used, delete it by hand"
    ))
}

/// An invitation as it was given.
#[derive(Debug)]
pub(super) enum Given {
    /// The word itself.
    Word(Box<Invitation>),
    /// The word that this file holds.
    File(Box<Invitation>, PathBuf),
    /// A file that is not there, as after it was used: a service starts with the same arguments every time.
    Gone(PathBuf),
}

impl Given {
    /// The word itself, or the file that holds it.
    ///
    /// # Errors
    /// `invalid` for what is no invitation, and what refuses the file.
    pub(super) fn read(text: &str) -> Result<Self, TaskError> {
        let refused = |error: MembershipError| {
            TaskError::new(error.kind(), format!("the invitation: {error}")).with_field("join")
        };
        let file = Path::new(text);
        let is_word = text
            .trim_start()
            .get(..4)
            .is_some_and(|begin| begin.eq_ignore_ascii_case("kmn1"));
        if file.is_file() {
            let word = std::fs::read_to_string(file).map_err(|failed| error::file(file, &failed))?;
            let invitation = word.trim().parse().map_err(refused)?;
            return Ok(Self::File(Box::new(invitation), file.to_owned()));
        }
        if !is_word && !file.exists() {
            return Ok(Self::Gone(file.to_owned()));
        }
        Ok(Self::Word(Box::new(text.parse().map_err(refused)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_file_is_told_from_a_mistyped_word() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("invitation.txt");
        let read = || Given::read(file.to_str().unwrap());
        assert!(matches!(read(), Ok(Given::Gone(gone)) if gone == file));
        let bare = Given::read("no-such.inv");
        assert!(matches!(bare, Ok(Given::Gone(gone)) if gone == Path::new("no-such.inv")));
        std::fs::write(&file, "kmn1nonsense").unwrap();
        let words = ["kmn1nonsense", " kmn1nonsense\n"].map(|word| Given::read(word).unwrap_err());
        for error in words.into_iter().chain([read().unwrap_err()]) {
            assert_eq!(error.field.as_deref(), Some("join"), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_deleted_is_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let note = delete(folder.path()).unwrap();
        assert!(note.contains(folder.path().to_str().unwrap()), "{note}");
        let file = folder.path().join("invitation.txt");
        std::fs::write(&file, "").unwrap();
        assert_eq!(delete(&file), None);
        assert!(!file.exists());
    }
}
