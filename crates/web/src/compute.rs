//! Computations that take long, on threads of their own: at most two at a time, so that requests are still answered.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::problem::Problem;

/// Places for computations, each of which may use one processor and the memory of a large configuration.
static PLACES: Semaphore = Semaphore::const_new(2);
/// The longest wait for a place. Our choice.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait for a result. After that the request fails, but its place stays taken until the computation ends. Our choice.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a computation on another thread.
pub(super) async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Ok(Ok(place)) = tokio::time::timeout(PATIENCE, PLACES.acquire()).await else {
        return Err(Problem::unavailable("too many requests at once: try again"));
    };
    let task = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    match tokio::time::timeout(DEADLINE, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Problem::unavailable("the computation failed")),
        Err(_) => Err(Problem::unavailable(format!(
            "the computation takes longer than {} s",
            DEADLINE.as_secs()
        ))),
    }
}
