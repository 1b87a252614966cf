use anyhow::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;

/// One way to have a call answered by another process.
pub(super) trait Contender: Send + Sync {
    /// The body goes there, the answer comes back.
    fn call(&self, body: Bytes) -> BoxFuture<'_, Result<Bytes>>;

    /// The processes of the other side.
    fn others(&self) -> Vec<u32>;
}

/// Seconds that each of these calls took, one after the other, as a task of the runtime like any handler's.
pub(super) async fn times(contender: Arc<dyn Contender>, body: Bytes, calls: usize) -> Result<Vec<f64>> {
    let answer = body.len().to_string();
    let block = async move {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let started = Instant::now();
            let said = contender.call(body.clone()).await?;
            times.push(started.elapsed().as_secs_f64());
            anyhow::ensure!(said == answer, "answered {said:?}");
        }
        Ok(times)
    };
    tokio::spawn(block).await?
}
