//! Streams over libp2p, where the other side says first that it has taken the stream.

use crate::ask::{CallHead, RemoteReport};
use crate::body::{Body, Takes};
use crate::call::{ANSWER, Expects, broken, exchange};
use crate::wire::WireError;
use karman_types::{TaskError, TaskResponse};
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// The first byte from the other side of a stream over libp2p. One that ends without it has reached nobody: where many come at
/// once, libp2p drops some unseen, and then the call may be made again without being run twice.
const TAKEN: u8 = 1;

/// [`ask`](crate::call::ask) on a stream that the other side has to [`take`]; nothing where nobody did, so that the call has begun nowhere.
///
/// # Errors
/// Those of [`ask`](crate::call::ask).
pub(crate) async fn ask_if_taken(
    (input, output): (impl AsyncRead + Unpin, impl Takes),
    head: CallHead,
    body: Body,
    expects: &mut Expects,
) -> Result<Option<(TaskResponse, RemoteReport)>, TaskError> {
    let mut input = Greeted { input, taken: false };
    let outcome = exchange((&mut input, output), head, body, expects).await;
    match outcome {
        Ok(answer) => answer.map(Some),
        Err(_) if !input.taken => Ok(None),
        Err(error) => Err(broken(error)),
    }
}

/// Says that this side has taken the stream.
///
/// # Errors
/// When the stream is broken.
pub(crate) async fn take(output: &mut (impl AsyncWrite + Unpin)) -> Result<(), WireError> {
    let taken = async {
        output.write_all(&[TAKEN]).await?;
        output.flush().await
    };
    taken.await.map_err(|error| ANSWER.broken(error))
}

/// A stream that begins with the word of the other side that it has taken it.
struct Greeted<R> {
    input: R,
    taken: bool,
}

impl<R: AsyncRead + Unpin> AsyncRead for Greeted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if !this.taken {
            let mut word = [0];
            let mut word = ReadBuf::new(&mut word);
            ready!(Pin::new(&mut this.input).poll_read(context, &mut word))?;
            if word.filled() != [TAKEN] {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            this.taken = true;
        }
        Pin::new(&mut this.input).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::answer;
    use crate::call::tests::{any, anyway, echo, head, link};
    use bytes::Bytes;

    #[tokio::test]
    async fn a_stream_that_nobody_took_is_told_apart() {
        let [ours, theirs] = link(64 << 10);
        drop(theirs);
        let asked = ask_if_taken(ours, head("echo"), Body::default(), &mut any()).await;
        assert_eq!(asked.unwrap(), None);
        let [ours, mut theirs] = link(64 << 10);
        let mut any = any();
        let asking = ask_if_taken(ours, head("echo"), Bytes::from_static(b"1").into(), &mut any);
        let taking = async {
            take(&mut theirs.1).await.unwrap();
            answer(theirs, |_, _| Ok(()), anyway, echo).await.unwrap();
        };
        let (asked, ()) = tokio::join!(asking, taking);
        assert_eq!(asked.unwrap().unwrap().0.body, "1");
    }
}
