//! How long a node that holds the data waits for another one before it begins with the rest itself: until the result is late, or a word that
//! the first of the data have come. That word is there in a round trip where the link is as it was, and the result often much later.

use super::wire::Station;
use karman_mesh::BEGINNING;
use karman_types::NodeId;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::future::pending;
use std::time::Duration;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// What this node knows of words that data have begun to come.
pub(super) struct Words {
    /// Nodes that have said so: only of these the want of a word tells anything.
    known: Mutex<HashSet<NodeId>>,
    /// One request at a time is begun here for want of a word: a node that is too busy to hear words would be busier with each.
    place: Semaphore,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            place: Semaphore::new(1),
        }
    }
}

/// The patience of one request with the first node of a station.
pub(super) struct Patience<'a> {
    words: &'a Words,
    node: NodeId,
    /// When the result is late; nothing where that is no matter, any more.
    late: Option<Instant>,
    /// When the word is late.
    silent: Option<Instant>,
    /// Where the word comes from, until it has.
    word: Option<Receiver<()>>,
    place: Option<SemaphorePermit<'a>>,
}

impl<'a> Patience<'a> {
    /// From now on, with who gets so many bytes; and what is to be told when the first of them have come, if anything is.
    pub(super) fn new(words: &'a Words, station: &Station, bytes: usize) -> (Self, Option<Sender<()>>) {
        let (now, node) = (Instant::now(), station.nodes[0]);
        let after = |ms| now + Duration::from_millis(ms);
        let silent_ms = station.silent_ms.filter(|_| bytes as u64 >= BEGINNING);
        let (tell, word) = silent_ms.map(|_| oneshot::channel()).unzip();
        let says = words.known.lock().contains(&node);
        let patience = Self {
            words,
            node,
            late: station.late_ms.map(after),
            silent: silent_ms.filter(|_| says).map(after),
            word,
            place: None,
        };
        (patience, tell)
    }

    /// Over, once, when who waits is to begin with the rest itself.
    pub(super) async fn ends(&mut self) {
        loop {
            let Some(late) = self.late else {
                return pending().await;
            };
            let next = self.silent.map_or(late, |silent| silent.min(late));
            let word = async {
                match &mut self.word {
                    Some(word) => word.await.is_ok(),
                    None => pending().await,
                }
            };
            tokio::select! {
                said = word => self.heard(said),
                () = sleep_until(next) => {
                    if next < late {
                        self.silent = None;
                        self.place = self.words.place.try_acquire().ok();
                    }
                    if next == late || self.place.is_some() {
                        return self.give_up();
                    }
                }
            }
        }
    }

    /// Nobody has to begin any more.
    pub(super) const fn give_up(&mut self) {
        (self.late, self.silent) = (None, None);
    }

    /// There is a result, of the node or of another one.
    pub(super) fn answered(&mut self) {
        if let Some(word) = &mut self.word {
            match word.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {}
                said => self.heard(said.is_ok()),
            }
        }
    }

    /// The word has come, or nobody says it any more.
    fn heard(&mut self, said: bool) {
        (self.word, self.silent) = (None, None);
        let mut known = self.words.known.lock();
        match said {
            true => known.insert(self.node),
            false => known.remove(&self.node),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    /// Nobody waits that long here.
    const LATE_MS: u64 = 3_600_000;
    const BYTES: usize = 100_000;

    fn station() -> Station {
        Station {
            stage: 1,
            nodes: vec![NodeId::of_key(&[1; 32])],
            patience_ms: LATE_MS,
            rate_mbit_s: 1.0,
            back_mbit_s: 1.0,
            late_ms: Some(LATE_MS),
            silent_ms: Some(1),
        }
    }

    /// With a node that is known to say that data have begun to come.
    fn words() -> Words {
        let words = Words::default();
        let (mut patience, tell) = Patience::new(&words, &station(), BYTES);
        tell.unwrap().send(()).unwrap();
        patience.answered();
        drop(patience);
        words
    }

    /// Whether it goes on when the word is late by far, and the result is not.
    async fn goes_on(patience: &mut Patience<'_>) -> bool {
        timeout(Duration::from_millis(50), patience.ends()).await.is_err()
    }

    #[tokio::test]
    async fn who_says_that_data_come_and_has_not_is_late_soon() {
        let words = words();
        let (mut patience, _tell) = Patience::new(&words, &station(), BYTES);
        patience.ends().await;
        assert!(goes_on(&mut patience).await, "it ends once");
        let (mut other, _other_tell) = Patience::new(&words, &station(), BYTES);
        assert!(goes_on(&mut other).await, "one at a time is begun here");
        drop(patience);
        let (mut next, _next_tell) = Patience::new(&words, &station(), BYTES);
        next.ends().await;
        drop(next);

        let (mut patience, tell) = Patience::new(&words, &station(), BYTES);
        tell.unwrap().send(()).unwrap();
        assert!(goes_on(&mut patience).await, "it has said so");
        let (_, tell) = Patience::new(&words, &station(), BEGINNING as usize - 1);
        assert!(tell.is_none(), "that is there before anything can be said of it");
    }

    #[tokio::test]
    async fn who_does_not_say_that_data_come_is_not_waited_for() {
        let unknown = Words::default();
        let (mut patience, _tell) = Patience::new(&unknown, &station(), BYTES);
        assert!(goes_on(&mut patience).await, "it may never say so");

        let words = words();
        let (mut patience, tell) = Patience::new(&words, &station(), BYTES);
        drop(tell);
        patience.answered();
        let (mut patience, _tell) = Patience::new(&words, &station(), BYTES);
        assert!(goes_on(&mut patience).await, "it has answered without a word");
    }
}
