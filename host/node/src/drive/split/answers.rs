//! When nodes last answered for a stage. A node that answers others has work left from before, and ours is in its turn: who passed it over
//! would have the work done twice, by nodes that have less to spare. So it is waited for until it has answered nobody for a while.

use karman_types::{Digest, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most of them that are remembered.
const MOST: usize = 1024;
/// How many times its patience a request waits at most for a node that answers others alone.
const WHILE_OTHERS_ARE_ANSWERED: u32 = 10;

/// A node, and the stage of a model that it was asked for.
pub(super) type Asked = (NodeId, Digest, u8);

/// The last answer of each.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<Asked, Instant>>);

impl Answers {
    /// Waits for the answer to one request until none has come for so long, to this one or to another.
    ///
    /// # Errors
    /// Those of the answer; `deadline` where none has come.
    pub(super) async fn wait<T>(
        &self,
        asked: Asked,
        patience: Duration,
        answer: impl Future<Output = Result<T, TaskError>>,
    ) -> Result<T, TaskError> {
        let (started, mut answer) = (Instant::now(), std::pin::pin!(answer));
        let mut until = started + patience;
        loop {
            if let Ok(answer) = timeout_at(until, &mut answer).await {
                if answer.is_ok() {
                    self.note(asked, Instant::now());
                }
                return answer;
            }
            let later = self.patient_until(&asked, patience, started);
            if later <= until {
                return Err(TaskError::deadline(format!(
                    "node {} has not answered within {:.0?}",
                    asked.0.short(),
                    started.elapsed()
                )));
            }
            until = later;
        }
    }

    /// Until when a request that began then waits, as far as is known.
    fn patient_until(&self, asked: &Asked, patience: Duration, began: Instant) -> Instant {
        let last = self.0.lock().get(asked).copied();
        let from = last.map_or(began, |last| last.max(began));
        (from + patience).min(began + patience * WHILE_OTHERS_ARE_ANSWERED)
    }

    fn note(&self, asked: Asked, now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(&asked) {
            all.clear();
        }
        all.insert(asked, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;
    use std::future::{pending, ready};

    const PATIENCE: Duration = Duration::from_secs(2);

    fn asked(stage: u8) -> Asked {
        (NodeId::of_key(&[1; 32]), Digest::of(b"model"), stage)
    }

    #[test]
    fn who_answers_others_is_waited_for() {
        let (answers, began) = (Answers::default(), Instant::now());
        let until = |asked| answers.patient_until(&asked, PATIENCE, began) - began;
        assert_eq!(until(asked(1)), PATIENCE);
        answers.note(asked(1), began + Duration::from_secs(1));
        answers.note(asked(2), began + Duration::from_secs(60));
        assert_eq!(until(asked(1)), Duration::from_secs(3));
        assert_eq!(
            until(asked(2)),
            PATIENCE * WHILE_OTHERS_ARE_ANSWERED,
            "there is an end to it"
        );
        // What was answered before says nothing of now.
        let later = began + Duration::from_secs(30);
        assert_eq!(
            answers.patient_until(&asked(1), PATIENCE, later),
            later + PATIENCE
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (answers, now) = (Answers::default(), Instant::now());
        for stage in 0..2 * MOST as u64 {
            let model = Digest::of(&stage.to_le_bytes());
            answers.note((NodeId::of_key(&[1; 32]), model, 1), now);
        }
        assert!(answers.0.lock().len() <= MOST);
    }

    #[tokio::test]
    async fn who_answers_nobody_is_late() {
        let answers = Answers::default();
        let patience = Duration::from_millis(20);
        assert_eq!(answers.wait(asked(1), patience, ready(Ok(7))).await, Ok(7));
        let silent = pending::<Result<(), TaskError>>();
        let late = answers.wait(asked(1), patience, silent).await.unwrap_err();
        assert_eq!(late.kind, ErrorKind::Deadline);
    }
}
