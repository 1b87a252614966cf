use super::*;
use crate::contacts::wall_ms;
use crate::drive::parcels::{TOO_LONG, kept, wants_room};
use karman_store::{Bundle, BundleState, StoreLimits};
use karman_types::{ByteSize, ErrorKind};
use tempfile::TempDir;

const TASK: TaskId = TaskId::from_parts(1, 1);
const OTHER: TaskId = TaskId::from_parts(1, 2);

fn place(key: &str) -> Place {
    ("tally".into(), key.into())
}

/// A store, and a ledger that is opened again and again.
struct Disk {
    store: Store,
    _folder: TempDir,
}

impl Disk {
    fn new(quota: ByteSize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            bundles: quota,
            ..StoreLimits::default()
        };
        Self {
            store: Store::open_with(folder.path(), limits).unwrap(),
            _folder: folder,
        }
    }

    /// As after a restart, with these tasks open.
    fn ledger(&self, open: &[TaskId]) -> Ledger {
        Ledger::open(self.store.clone(), |task| open.contains(&task), wall_ms()).unwrap()
    }

    /// A bundle that is about to leave.
    fn bundle(&self, content: &'static str, left: Duration) -> (Sent, Bytes) {
        let bytes = Bytes::from_static(content.as_bytes());
        let sent = Sent {
            to: NodeId::of_key(b"above"),
            bundle: Digest::of(&bytes),
            expires_ms: wall_ms() + left.as_millis() as u64,
        };
        (sent, bytes)
    }

    fn keep(&self, sent: Sent, bytes: &Bytes) {
        let bundle = Bundle {
            digest: sent.bundle,
            label: "task tally".into(),
            source: NodeId::of_key(b"here"),
            destination: sent.to,
            brought_by: None,
            size: bytes.len() as u64,
            priority: 1,
            created_ms: 0,
            expires_ms: sent.expires_ms,
            state: BundleState::Waiting,
            refused_by: Vec::new(),
        };
        assert!(self.store.bundles().keep(&bundle, bytes).unwrap());
    }

    fn send(&self, ledger: &Ledger, task: TaskId, content: &'static str) -> Sent {
        let (sent, bytes) = self.bundle(content, Duration::from_secs(3600));
        ledger.sends(task, tally(false), sent).unwrap();
        self.keep(sent, &bytes);
        sent
    }

    fn state(&self, sent: Sent) -> BundleState {
        self.store.bundles().get(&sent.bundle).unwrap().unwrap().state
    }

    fn answers(&self) -> usize {
        self.store.mesh().names("away-answer/").unwrap().len()
    }
}

fn tally(kept: bool) -> (Arc<str>, String, bool) {
    ("tally".into(), "tally".into(), kept)
}

fn waits(ledger: &Ledger, task: TaskId, sent: Sent) -> Option<bool> {
    match ledger.stands(task, &sent.bundle, wall_ms()) {
        Stands::Answered => Some(false),
        Stands::Waits(..) => Some(true),
        Stands::Gone => None,
    }
}

#[test]
fn what_is_on_its_way_is_known_after_a_restart_and_what_never_left_is_sent_anew() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let sent = disk.send(&ledger, TASK, "sealed");
    // The power is cut between the row and the bundle.
    let (never, _) = disk.bundle("never kept", Duration::from_secs(3600));
    ledger.sends(OTHER, tally(false), never).unwrap();
    let ledger = disk.ledger(&[TASK, OTHER]);
    assert_eq!(ledger.sent(TASK, wall_ms()), Some(sent));
    assert_eq!(ledger.sent(OTHER, wall_ms()), None);
    assert_eq!(waits(&ledger, OTHER, never), None);
}

#[test]
fn what_is_known_of_a_task_goes_when_it_has_ended_however_that_came() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (ended, crashed) = (disk.send(&ledger, TASK, "one"), disk.send(&ledger, OTHER, "two"));
    ledger.forget(TASK).unwrap();
    assert_eq!(disk.state(ended), BundleState::Expired);
    assert!(
        ledger
            .answer(&crashed.bundle, &Bytes::from_static(b"reply"))
            .unwrap()
    );
    assert_eq!(disk.answers(), 1);
    // It has ended durably, and the power was cut before the ledger heard so.
    let ledger = disk.ledger(&[]);
    assert!(!ledger.knows(OTHER));
    assert_eq!((disk.answers(), disk.state(crashed)), (0, BundleState::Expired));
    assert!(
        !ledger
            .answer(&crashed.bundle, &Bytes::from_static(b"late"))
            .unwrap()
    );
    assert_eq!(disk.answers(), 0);
}

#[test]
fn an_answer_stays_until_the_task_has_ended_or_runs_again() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let sent = disk.send(&ledger, TASK, "one");
    assert!(
        ledger
            .answer(&sent.bundle, &Bytes::from_static(b"first"))
            .unwrap()
    );
    assert!(
        !ledger
            .answer(&sent.bundle, &Bytes::from_static(b"second"))
            .unwrap()
    );
    // Its batch is on the way to its home when the power is cut.
    let ledger = disk.ledger(&[TASK]);
    assert_eq!(waits(&ledger, TASK, sent), Some(false));
    assert_eq!(ledger.answer_to(&sent.bundle).unwrap(), ByteBuf::from(*b"first"));
    ledger.met(TASK).unwrap();
    assert_eq!((waits(&ledger, TASK, sent), disk.answers()), (None, 0));
    assert!(ledger.knows(TASK));
}

#[test]
fn keys_that_are_asked_for_one_after_the_other_are_all_sent_also_after_restarts() {
    let disk = Disk::new(ByteSize::mib(1));
    let mut ledger = disk.ledger(&[]);
    for (round, key) in ["bridge", "road"].into_iter().enumerate() {
        let sent = disk.send(&ledger, TASK, ["first", "second"][round]);
        disk.store
            .bundles()
            .set(&sent.bundle, BundleState::Delivered)
            .unwrap();
        assert!(
            ledger
                .answer(&sent.bundle, &Bytes::from_static(b"needs"))
                .unwrap()
        );
        ledger.asks(TASK, vec![place(key); 3]).unwrap();
        assert_eq!((waits(&ledger, TASK, sent), disk.answers()), (None, 0));
        ledger = disk.ledger(&[TASK]);
    }
    assert_eq!(ledger.places(TASK), [place("bridge"), place("road")]);
}

#[test]
fn a_bundle_that_has_not_left_is_called_back_and_one_that_has_is_not() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (waiting, left) = (disk.send(&ledger, TASK, "one"), disk.send(&ledger, OTHER, "two"));
    let to = left.to;
    let passed = BundleState::Passed { to, at_ms: 1 };
    disk.store.bundles().set(&left.bundle, passed.clone()).unwrap();
    assert!(ledger.call_back(TASK, &waiting.bundle).unwrap());
    assert!(!ledger.call_back(OTHER, &left.bundle).unwrap());
    assert_eq!(
        (waits(&ledger, TASK, waiting), waits(&ledger, OTHER, left)),
        (None, Some(true))
    );
    assert_eq!(
        (disk.state(waiting), disk.state(left)),
        (BundleState::Expired, passed)
    );
}

#[test]
fn a_bundle_that_is_over_frees_its_attempt() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (over, bytes) = disk.bundle("over", Duration::ZERO);
    ledger.sends(TASK, tally(true), over).unwrap();
    disk.keep(over, &bytes);
    assert_eq!(ledger.sent(TASK, wall_ms()), None);
    let stands = ledger.stands(TASK, &over.bundle, wall_ms());
    assert!(matches!(stands, Stands::Waits(left, _) if left.is_zero()));
    ledger.recall(TASK).unwrap();
    assert_eq!(waits(&ledger, TASK, over), None);
    // Of a kept task nothing is remembered longer than that.
    assert!(!disk.ledger(&[]).knows(TASK));
}

#[test]
fn what_a_kept_task_was_answered_outlives_the_time_of_its_bundle() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (over, bytes) = disk.bundle("over", Duration::ZERO);
    ledger.sends(TASK, tally(true), over).unwrap();
    disk.keep(over, &bytes);
    assert!(
        ledger
            .answer(&over.bundle, &Bytes::from_static(b"reply"))
            .unwrap()
    );
    let ledger = disk.ledger(&[]);
    assert_eq!(waits(&ledger, TASK, over), Some(false));
    assert_eq!(ledger.answer_to(&over.bundle).unwrap(), ByteBuf::from(*b"reply"));
}

#[test]
fn what_was_called_back_is_not_away() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    disk.send(&ledger, TASK, "one");
    disk.send(&ledger, OTHER, "two");
    assert_eq!(ledger.away(wall_ms()), 2);
    ledger.recall(TASK).unwrap();
    assert_eq!(ledger.away(wall_ms()), 1);
    assert!(ledger.knows(TASK));
}

#[test]
fn of_a_task_that_ends_while_its_bundle_is_sent_nothing_stays() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (sent, bytes) = disk.bundle("sealed", Duration::from_secs(3600));
    // It ends between the row and the bundle.
    let keep = || -> Result<(), TaskError> {
        ledger.forget(TASK)?;
        disk.keep(sent, &bytes);
        Ok(())
    };
    let ended = ledger.send(TASK, tally(false), sent, keep, || false);
    assert_eq!(ended.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(
        (ledger.knows(TASK), disk.state(sent)),
        (false, BundleState::Expired)
    );
    // After it.
    let (sent, bytes) = disk.bundle("another", Duration::from_secs(3600));
    let keep = || {
        disk.keep(sent, &bytes);
        Ok(())
    };
    let ended = ledger.send(TASK, tally(false), sent, keep, || false);
    assert_eq!(ended.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(
        (ledger.knows(TASK), disk.state(sent)),
        (false, BundleState::Expired)
    );
    assert!(disk.store.mesh().names("away-task/").unwrap().is_empty());
}

#[test]
fn where_there_is_no_room_nothing_is_waited_for() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let (sent, _) = disk.bundle("sealed", Duration::from_secs(3600));
    let full = || Err(TaskError::limit("full"));
    let refused = ledger.send(TASK, tally(false), sent, full, || true);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Limit);
    assert_eq!(waits(&ledger, TASK, sent), None);
    assert_eq!(disk.ledger(&[TASK]).sent(TASK, wall_ms()), None);
}

#[test]
fn an_answer_to_one_bundle_is_none_to_the_next() {
    let disk = Disk::new(ByteSize::mib(1));
    let ledger = disk.ledger(&[]);
    let first = disk.send(&ledger, TASK, "first");
    ledger.asks(TASK, vec![place("bridge")]).unwrap();
    let second = disk.send(&ledger, TASK, "second");
    // The power was cut before what the first one was answered had gone.
    let row = format!("away-answer/{}", first.bundle);
    disk.store.mesh().put(&row, &ByteBuf::from(*b"stale")).unwrap();
    let ledger = disk.ledger(&[TASK]);
    assert_eq!(waits(&ledger, TASK, second), Some(true));
    assert_eq!(disk.answers(), 0);
    let late = Bytes::from_static(b"late");
    assert!(!ledger.answer(&first.bundle, &late).unwrap());
}

#[test]
fn a_row_that_does_not_read_is_forgotten_and_the_others_stay() {
    let disk = Disk::new(ByteSize::mib(1));
    let sent = disk.send(&disk.ledger(&[]), TASK, "sealed");
    let row = format!("away-task/{OTHER}");
    disk.store.mesh().put(&row, &1u8).unwrap();
    let ledger = disk.ledger(&[TASK, OTHER]);
    assert_eq!(
        (ledger.tasks(), ledger.sent(TASK, wall_ms())),
        (vec![TASK], Some(sent))
    );
    assert_eq!(disk.store.mesh().names("away-task/").unwrap().len(), 1);
}

#[test]
fn kept_tasks_are_remembered_until_the_keepers_tell() {
    let disk = Disk::new(ByteSize::mib(1));
    let (sent, bytes) = disk.bundle("sealed", Duration::from_secs(3600));
    disk.ledger(&[]).sends(TASK, tally(true), sent).unwrap();
    disk.keep(sent, &bytes);
    assert_eq!(disk.ledger(&[]).sent(TASK, wall_ms()), Some(sent));
}

#[test]
fn a_full_quota_is_told_from_a_bundle_that_is_too_long() {
    let disk = Disk::new(ByteSize(8));
    let (sent, bytes) = disk.bundle("1234567", Duration::from_secs(60));
    disk.keep(sent, &bytes);
    let full = disk.store.bundles().has_room(2).unwrap();
    let error = kept(disk.store.bundles().keep(
        &Bundle {
            digest: Digest::of(b"89"),
            ..disk.store.bundles().get(&sent.bundle).unwrap().unwrap()
        },
        &Bytes::from_static(b"89"),
    ));
    assert!(!full && wants_room(&error.unwrap_err()));
    let too_long = TaskError::limit("too long").with_field(TOO_LONG);
    assert!(!wants_room(&too_long));
}
