//! What is worked out from a text: away from the thread that answers everybody, a few at a time.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::problem::Problem;

/// Each may take one processor and the memory of a large configuration.
static PLACES: Semaphore = Semaphore::const_new(2);
/// For a place.
const PATIENCE: Duration = Duration::from_secs(10);
/// For the answer. Whoever asked is told that it took too long; the place is kept until the work has ended.
const DEADLINE: Duration = Duration::from_secs(30);

/// Works something out on another thread.
pub(super) async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Ok(Ok(place)) = tokio::time::timeout(PATIENCE, PLACES.acquire()).await else {
        return Err(Problem::unavailable("too much is asked at once: try again"));
    };
    let task = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    match tokio::time::timeout(DEADLINE, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Problem::unavailable("it could not be worked out")),
        Err(_) => Err(Problem::unavailable(format!(
            "it takes longer than {} s to work out",
            DEADLINE.as_secs()
        ))),
    }
}
