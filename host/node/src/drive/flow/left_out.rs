//! Implementations that are left out for a while: those that could not be reached, and those that failed while there is another one.

use karman_types::ErrorKind;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For how long.
const WHILE: Duration = Duration::from_secs(5);

/// By task and candidate: how the last call failed that says something of who was asked, and when.
#[derive(Default)]
pub(super) struct LeftOut(Mutex<HashMap<(usize, usize), (ErrorKind, Instant)>>);

impl LeftOut {
    /// A call of a task by a candidate has failed. An error of the task itself, or of who asked, is answered whoever is asked.
    pub(super) fn failed(&self, of: (usize, usize), kind: ErrorKind, now: Instant) {
        if matches!(
            kind,
            ErrorKind::Unavailable | ErrorKind::Limit | ErrorKind::Internal | ErrorKind::Deadline
        ) {
            self.0.lock().insert(of, (kind, now));
        }
    }

    /// The candidates that a task, of so many, does without now. Who failed is asked again where there is nobody else: one request that is
    /// too much for the only one would leave all others without an answer.
    pub(super) fn of(
        &self,
        (task, candidates): (usize, usize),
        now: Instant,
        is_lost: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let failed: Vec<Option<ErrorKind>> = {
            let mut all = self.0.lock();
            all.retain(|_, (_, since)| now.duration_since(*since) < WHILE);
            let kind = |candidate| all.get(&(task, candidate)).map(|(kind, _)| *kind);
            (0..candidates).map(kind).collect()
        };
        let is_gone =
            |candidate: &usize| failed[*candidate] == Some(ErrorKind::Unavailable) || is_lost(*candidate);
        let gone: Vec<usize> = (0..candidates).filter(is_gone).collect();
        let is_left_out = |candidate: &usize| failed[*candidate].is_some() || gone.contains(candidate);
        let all: Vec<usize> = (0..candidates).filter(is_left_out).collect();
        match all.len() < candidates {
            true => all,
            false => gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_is_left_out_for_a_while() {
        let (left_out, now) = (LeftOut::default(), Instant::now());
        let of = |task, now| left_out.of((task, 4), now, |candidate| candidate == 3);
        assert_eq!(of(0, now), [3]);
        left_out.failed((0, 0), ErrorKind::Unavailable, now);
        left_out.failed((0, 1), ErrorKind::Deadline, now + WHILE / 2);
        // That is so whoever is asked.
        for kind in [
            ErrorKind::Failed,
            ErrorKind::Invalid,
            ErrorKind::Denied,
            ErrorKind::Cancelled,
        ] {
            left_out.failed((0, 2), kind, now);
        }
        assert_eq!(of(0, now + WHILE / 2), [0, 1, 3]);
        assert_eq!(of(1, now), [3]);
        assert_eq!(of(0, now + WHILE), [1, 3]);
        assert_eq!(of(0, now + WHILE * 2), [3]);
    }

    #[test]
    fn who_failed_is_asked_where_there_is_nobody_else_and_who_is_not_there_is_not() {
        let (left_out, now) = (LeftOut::default(), Instant::now());
        let of = |lost: usize| left_out.of((0, 2), now, |candidate| candidate == lost);
        left_out.failed((0, 0), ErrorKind::Internal, now);
        assert_eq!((of(9), of(1)), (vec![0], vec![1]));
        left_out.failed((0, 1), ErrorKind::Limit, now);
        assert_eq!(of(9), [0usize; 0]);
        left_out.failed((0, 0), ErrorKind::Unavailable, now);
        left_out.failed((0, 1), ErrorKind::Unavailable, now);
        assert_eq!(of(9), [0, 1]);
    }
}
