//! Calls to the kernel and to the disk, on the blocking thread pool.

use tokio::task::JoinError;

/// Why work on the thread pool has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockingError<E> {
    #[error(transparent)]
    Failed(E),
    #[error("a bug: {0}")]
    Panic(JoinError),
}

/// Runs `work` on the blocking thread pool once the future is polled.
pub(crate) async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, BlockingError<E>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(BlockingError::Panic)?.map_err(BlockingError::Failed)
}
