//! Samples the queues at regular times: for each browser that watches them, and for the history.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, channel};

use crate::app_state::AppState;
use crate::live::RateMeter;
use sqm_http::event;

/// Events that are queued for a browser; a slower one is disconnected.
const MOST_BEHIND: usize = 8;

/// A stream of samples, `hz` each second.
pub(super) fn stream(state: &Arc<AppState>, hz: u32) -> Receiver<Bytes> {
    let (sender, receiver) = channel(MOST_BEHIND);
    let state = Arc::clone(state);
    tokio::spawn(async move {
        let mut meter = RateMeter::default();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / hz);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = sender.closed() => return,
            }
            let known = state.interfaces.known(&state.daemon).await;
            let sample = meter.sample(&state.counters.read(&known));
            if sender.try_send(event("sample", &sample)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Records a row each second, as long as the server runs.
pub(super) async fn remember(state: Arc<AppState>) {
    let mut meter = RateMeter::default();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let known = state.interfaces.known(&state.daemon).await;
        if !known.is_empty() {
            state.history.add(&meter.sample(&state.counters.read(&known)));
        }
    }
}
