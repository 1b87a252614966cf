//! Tokens that do not hold, for each address that they come from: judging one takes time, so nobody has that done as often as they like.

use super::rate::Bucket;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Addresses that are counted apart; those beyond are counted together.
const MOST_ADDRESSES: usize = 10_000;
/// How often those are forgotten that may fail as often as if they never had.
const SWEEP: Duration = Duration::from_secs(1);

/// Who sent how many of them lately.
#[derive(Debug)]
pub(super) struct Failures {
    /// How many one address may send in a second.
    rate: u32,
    counted: Mutex<Counted>,
    /// All that were counted, and all that were not looked at.
    judged: AtomicU64,
    kept_out: AtomicU64,
}

/// Tokens that did not hold, since the gateway began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct FailedTokens {
    /// Those that were judged.
    pub(crate) judged: u64,
    /// Those that nobody looked at, for too many had come from their address.
    pub(crate) kept_out: u64,
}

#[derive(Debug, Default)]
struct Counted {
    by_address: HashMap<IpAddr, Bucket>,
    others: Option<Bucket>,
    swept: Duration,
}

impl Failures {
    pub(super) fn new(rate: u32) -> Self {
        Self {
            rate,
            counted: Mutex::default(),
            judged: AtomicU64::new(0),
            kept_out: AtomicU64::new(0),
        }
    }

    /// How many there were.
    pub(super) fn all(&self) -> FailedTokens {
        FailedTokens {
            judged: self.judged.load(Ordering::Relaxed),
            kept_out: self.kept_out.load(Ordering::Relaxed),
        }
    }

    /// Counts one that is not looked at.
    pub(super) fn keep_out(&self) {
        self.kept_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether one more may be judged that comes from there; else how long until then.
    pub(super) fn may(&self, peer: IpAddr, now: Duration) -> Result<(), Duration> {
        let counted = self.counted.lock();
        let bucket = match counted.by_address.get(&network(peer)) {
            None if counted.by_address.len() >= MOST_ADDRESSES => counted.others.as_ref(),
            known => known,
        };
        bucket.map_or(Ok(()), |bucket| bucket.has(self.rate, now))
    }

    /// Counts one; when it is one too many, says how long until the next.
    pub(super) fn count(&self, peer: IpAddr, now: Duration) -> Result<(), Duration> {
        self.judged.fetch_add(1, Ordering::Relaxed);
        let mut counted = self.counted.lock();
        counted.bucket(network(peer), self.rate, now).take(self.rate, now)
    }
}

impl Counted {
    fn bucket(&mut self, network: IpAddr, rate: u32, now: Duration) -> &mut Bucket {
        let is_new = !self.by_address.contains_key(&network);
        if is_new && self.by_address.len() >= MOST_ADDRESSES && now >= self.swept + SWEEP {
            self.by_address.retain(|_, bucket| !bucket.is_full(rate, now));
            self.swept = now;
        }
        let full = || Bucket::full(rate, now);
        match is_new && self.by_address.len() >= MOST_ADDRESSES {
            true => self.others.get_or_insert_with(full),
            false => self.by_address.entry(network).or_insert_with(full),
        }
    }
}

/// The holder of one IPv6 address has all of its /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const START: Duration = Duration::from_secs(100);

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn who_fails_too_often_waits_and_others_do_not() {
        let failures = Failures::new(3);
        let one = peer("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(failures.may(one, START), Ok(()));
            assert_eq!(failures.count(one, START), Ok(()));
        }
        assert_eq!((failures.all().judged, failures.all().kept_out), (3, 0));
        let wait = failures.may(one, START).unwrap_err();
        assert_eq!(failures.count(one, START), Err(wait));
        assert_eq!(
            failures.may(peer("::ffff:192.0.2.1"), START),
            Err(wait),
            "the same"
        );
        assert_eq!(failures.may(peer("192.0.2.2"), START), Ok(()));
        assert_eq!(failures.may(one, START + wait + Duration::from_micros(1)), Ok(()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let failures = Failures::new(1);
        failures.count(peer("2001:db8::1"), START).unwrap();
        assert!(failures.may(peer("2001:db8::ffff:1:2:3"), START).is_err());
        assert!(failures.may(peer("2001:db8:0:1::1"), START).is_ok());
    }

    #[test]
    fn however_many_fail_what_is_remembered_of_them_is_bounded() {
        let failures = Failures::new(1);
        let address = |number: usize| IpAddr::from(Ipv4Addr::from(number as u32));
        for number in 0..MOST_ADDRESSES {
            assert_eq!(failures.count(address(number), START), Ok(()));
        }
        // Those beyond have one bucket.
        assert_eq!(failures.count(address(MOST_ADDRESSES), START), Ok(()));
        assert!(failures.may(address(MOST_ADDRESSES + 1), START).is_err());
        assert!(failures.count(address(MOST_ADDRESSES + 2), START).is_err());
        assert_eq!(failures.counted.lock().by_address.len(), MOST_ADDRESSES);
        // Who has not failed for a while is forgotten.
        let later = START + Duration::from_secs(10);
        assert_eq!(failures.count(address(MOST_ADDRESSES), later), Ok(()));
        assert_eq!(failures.counted.lock().by_address.len(), 1);
    }
}
