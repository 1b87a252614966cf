//! A connection whose caller asks again at once: a program on the same machine that waits for one answer and sends the next request. The
//! thread that sleeps in between has to be woken each time, which takes longer than most calls; so it stays awake for a moment, if the
//! last ones came within one. It does so for a connection that asks alone. Where several ask, there is mostly something to do, and who looks for
//! it time and again takes the processor from those who do it: there it stays awake only for a connection that is answered on the spot, at doors
//! behind which that is the rule.
//!
//! A connection only says for how long ([`Awake`]). One task of its thread stays awake for all of them ([`keep`]): each turn looks at the network
//! once, however many are waited for.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

/// A thread stays awake for so long at most. Over a network the next request takes longer: for that nobody stays awake.
const MOST: Duration = Duration::from_micros(150);

/// How often the connections of this process have asked, all of them together.
static ASKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How often this thread has turned to one of its connections.
    static TURNS: Cell<u64> = const { Cell::new(0) };
    /// What this thread stays awake for.
    static STAYS: Cell<Option<Stays>> = const { Cell::new(None) };
    /// Who keeps it awake, while there is nothing to do so for.
    static KEEPER: Cell<Option<Waker>> = const { Cell::new(None) };
}

/// For how long a thread stays awake.
#[derive(Clone, Copy, Debug)]
struct Stays {
    until: Instant,
    /// What [`ASKED`] was: where somebody else asks meanwhile, it does not stay.
    alone: Option<u64>,
}

impl Stays {
    fn still(self, now: Instant) -> bool {
        now < self.until
            && self
                .alone
                .is_none_or(|asked| ASKED.load(Ordering::Relaxed) == asked)
    }
}

/// Keeps the thread that it runs on awake for the connections there which want that.
pub(super) async fn keep() {
    poll_fn(|context| {
        if STAYS.get().is_some_and(|stays| stays.still(Instant::now())) {
            // Whoever else has something to do on this core goes first: a thread that is busy with waiting is not made to stop before its
            // time is up.
            std::thread::yield_now();
            // The runtime looks at the network and comes back here, after whatever else there is to do.
            let _ = pin!(yield_now()).poll(context);
        } else {
            STAYS.set(None);
            KEEPER.set(Some(context.waker().clone()));
        }
        Poll::<()>::Pending
    })
    .await;
}

/// What serves a connection, with its turns counted: what is asked and answered in one of them was answered on the spot.
pub(super) async fn counted<F: Future>(serve: F) -> F::Output {
    let mut serve = pin!(serve);
    poll_fn(|context| {
        TURNS.set(TURNS.get() + 1);
        serve.as_mut().poll(context)
    })
    .await
}

/// How soon requests follow answers on one connection. Pure: time is an argument.
#[derive(Debug, Default)]
struct Pauses {
    answered: Option<Instant>,
    /// A moving mean, a quarter of it the last; nothing before there was one.
    usual: Option<Duration>,
}

impl Pauses {
    fn answers(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    fn asks(&mut self, now: Instant) {
        let Some(answered) = self.answered.take() else {
            return;
        };
        // One long pause is forgotten soon: it may have been the last of its kind.
        let pause = now.duration_since(answered).min(2 * MOST);
        self.usual = Some(self.usual.map_or(pause, |usual| (usual * 3 + pause) / 4));
    }

    /// Until when the next request may come so soon that sleep does not pay.
    fn may_ask_until(&self) -> Option<Instant> {
        self.usual.filter(|usual| *usual < MOST)?;
        Some(self.answered? + MOST)
    }
}

/// A connection that is waited for awake while its next request may come at any moment. Others are served meanwhile.
#[derive(Debug)]
pub struct Awake<S> {
    stream: S,
    pauses: Pauses,
    /// What [`ASKED`] was when it asked.
    asked: u64,
    /// What [`TURNS`] was then.
    turn: u64,
    /// Whether its last answer was there on the spot.
    is_prompt: bool,
    /// Whether its reader waits for the next request already. It may begin to before the last one is answered.
    is_awaited: bool,
    /// Whether that is enough to be waited for.
    waits_if_prompt: bool,
}

impl<S> Awake<S> {
    /// Nothing is known of its caller yet.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            pauses: Pauses::default(),
            asked: 0,
            turn: 0,
            is_prompt: false,
            is_awaited: false,
            waits_if_prompt: false,
        }
    }

    /// Waited for also beside others, while it is answered on the spot: for a door that mostly leads to models, which run on the thread that
    /// answers. Guests leave it when they take long, for threads that need the cores.
    pub fn also_beside_others(stream: S) -> Self {
        Self {
            waits_if_prompt: true,
            ..Self::new(stream)
        }
    }

    fn asks(&mut self) {
        // If it is not answered on the spot, there is other work to do.
        STAYS.set(None);
        self.pauses.asks(Instant::now());
        self.asked = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
        self.turn = TURNS.get();
    }

    fn answers(&mut self) {
        self.pauses.answers(Instant::now());
        self.is_prompt = self.turn == TURNS.get();
        if self.is_awaited {
            self.stay();
        }
    }

    /// Has its thread stay awake for its next request, if that may come at any moment.
    fn stay(&self) {
        if let Some(stays) = self.stays() {
            STAYS.set(Some(stays));
            if let Some(keeper) = KEEPER.take() {
                keeper.wake();
            }
        }
    }

    /// For how long its thread stays awake for its next request: not where another one needs the processor meanwhile.
    fn stays(&self) -> Option<Stays> {
        let until = self.pauses.may_ask_until()?;
        let beside_others = self.waits_if_prompt && self.is_prompt;
        let alone = (!beside_others).then_some(self.asked);
        Some(Stays { until, alone })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Awake<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.is_awaited = read.is_pending();
        match self.is_awaited {
            true => self.stay(),
            false => self.asks(),
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Awake<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.answers();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, pieces));
        self.answers();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const SOON: Duration = Duration::from_micros(20);

    #[test]
    fn only_a_caller_that_usually_asks_at_once_is_waited_for_awake() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        pauses.answers(now);
        assert_eq!(pauses.may_ask_until(), None, "nothing is known of it");
        pauses.asks(now + SOON);
        assert_eq!(pauses.may_ask_until(), None, "it has asked");
        pauses.answers(now);
        assert_eq!(pauses.may_ask_until(), Some(now + MOST));
        for _ in 0..3 {
            pauses.asks(now + Duration::from_secs(1));
            now += Duration::from_secs(2);
            pauses.answers(now);
        }
        assert_eq!(pauses.may_ask_until(), None, "it asks once a second by now");
        for _ in 0..5 {
            pauses.asks(now + SOON);
            now += 2 * SOON;
            pauses.answers(now);
        }
        assert_eq!(pauses.may_ask_until(), Some(now + MOST));
    }

    #[tokio::test]
    async fn what_is_sent_comes_through_and_silence_is_slept_through() {
        tokio::spawn(keep());
        let (here, mut there) = duplex(64);
        let mut here = Awake::new(here);
        let mut heard = [0; 4];
        for _ in 0..3 {
            there.write_all(b"asks").await.unwrap();
            here.read_exact(&mut heard).await.unwrap();
            here.write_all(b"told").await.unwrap();
            there.read_exact(&mut heard).await.unwrap();
        }
        assert!(here.pauses.usual.is_some());
        // It ends though nothing wakes it but the caller, a while later.
        let asks = async {
            tokio::time::sleep(2 * MOST).await;
            there.write_all(b"asks").await.unwrap();
        };
        let (read, ()) = tokio::join!(here.read_exact(&mut heard), asks);
        assert_eq!((read.unwrap(), &heard), (4, b"asks"));
        assert!(STAYS.get().is_none(), "who has asked is not waited for");
    }

    #[tokio::test]
    async fn who_waits_for_the_next_request_before_it_answers_is_kept_awake_too() {
        let (here, mut there) = duplex(64);
        let mut here = Awake::new(here);
        let mut heard = [0; 4];
        there.write_all(b"asks").await.unwrap();
        here.read_exact(&mut heard).await.unwrap();
        here.pauses.usual = Some(SOON);
        assert!(futures::poll!(pin!(here.read(&mut heard))).is_pending());
        assert!(STAYS.get().is_none(), "it has yet to answer");
        here.write_all(b"told").await.unwrap();
        assert!(STAYS.get().is_some());
    }

    #[tokio::test]
    async fn a_thread_is_kept_awake_for_a_while_and_sleeps_then() {
        tokio::spawn(keep());
        yield_now().await;
        for _ in 0..3 {
            let keeper = KEEPER.take().expect("it sleeps");
            let until = Instant::now() + MOST;
            STAYS.set(Some(Stays { until, alone: None }));
            keeper.wake();
            while STAYS.get().is_some() {
                yield_now().await;
            }
            assert!(Instant::now() >= until);
        }
        // Not at all, where somebody else has asked meanwhile.
        let others = Some(ASKED.load(Ordering::Relaxed).wrapping_sub(1));
        let until = Instant::now() + Duration::from_secs(3600);
        STAYS.set(Some(Stays { until, alone: others }));
        KEEPER.take().expect("it sleeps").wake();
        yield_now().await;
        assert!(STAYS.get().is_none());
    }

    #[tokio::test]
    async fn who_does_not_ask_alone_is_waited_for_awake_only_where_it_is_answered_on_the_spot() {
        for (mut one, on_the_spot, waits) in [
            (Awake::also_beside_others(()), true, true),
            (Awake::also_beside_others(()), false, false),
            (Awake::new(()), true, false),
        ] {
            let mut other = Awake::new(());
            counted(async {
                one.asks();
                if !on_the_spot {
                    yield_now().await;
                }
                one.answers();
            })
            .await;
            other.asks();
            one.pauses = Pauses {
                answered: Some(Instant::now()),
                usual: Some(SOON),
            };
            let stays = one.stays().is_some_and(|stays| {
                Stays {
                    until: Instant::now() + MOST,
                    ..stays
                }
                .still(Instant::now())
            });
            assert_eq!(stays, waits, "{on_the_spot}");
        }
    }
}
