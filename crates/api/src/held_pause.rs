//! A pause of the shaping during a test, and its end.

use tokio::runtime::Runtime;

use crate::client::{self, Client, Error, Paused};
use crate::configuration::Apply;
use crate::pause::Pause;
use crate::status::{State, Status};

/// A pause in a program without an asynchronous runtime. It ends when this is dropped, and when the program ends.
pub struct HeldPause {
    client: Client,
    interface: String,
    paused: Paused,
    /// Dropped last: the connection that holds the pause belongs to it.
    runtime: Runtime,
}

/// Why an interface is not known to be shaped after a pause.
#[derive(Debug, thiserror::Error)]
pub enum NotResumed {
    /// Another process has shaped or stopped the interface, or the time was over.
    #[error(
        "the pause of {0} ended before the test without SQM had ended: another program has applied or stopped its shaping"
    )]
    Early(String),
    /// The interface is in another state.
    #[error("{interface} is not shaped after the test without SQM: {why}")]
    NotShaped {
        /// The interface.
        interface: String,
        /// The reason, or the state.
        why: String,
    },
    /// The daemon does not answer.
    #[error(
        "the daemon does not confirm that {interface} is shaped again: {error}; 'sqm status --daemon' tells"
    )]
    Unconfirmed {
        /// The interface.
        interface: String,
        /// The reason.
        error: Error,
    },
}

impl HeldPause {
    /// Begins a pause, and waits until the interface is not shaped.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn begin(client: Client, pause: &Pause) -> Result<Self, Error> {
        let runtime = client::runtime()?;
        let paused = runtime.block_on(client.pause(pause))?;
        Ok(Self {
            client,
            interface: pause.interface.clone(),
            paused,
            runtime,
        })
    }

    /// As [`Client::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(self) -> Result<(), NotResumed> {
        self.runtime
            .block_on(self.client.resume(self.paused, &self.interface))
    }
}

impl Client {
    /// Ends a pause, and waits until the interface is shaped. An interface that another process has stopped meanwhile stays stopped.
    ///
    /// # Errors
    /// The pause was over already, or the interface is not shaped.
    pub async fn resume(&self, paused: Paused, interface: &str) -> Result<(), NotResumed> {
        let unconfirmed = |error| NotResumed::Unconfirmed {
            interface: interface.to_owned(),
            error,
        };
        let before = self.status().await.map_err(unconfirmed)?;
        if state_of(&before, interface).0 != Some(State::Paused) {
            return Err(NotResumed::Early(interface.to_owned()));
        }
        let apply = Apply {
            interface: Some(interface.to_owned()),
        };
        let after = self.apply(&apply).await.map_err(unconfirmed)?;
        drop(paused);
        match state_of(&after, interface) {
            (Some(State::Shaped), _) => Ok(()),
            (_, why) => Err(NotResumed::NotShaped {
                interface: interface.to_owned(),
                why,
            }),
        }
    }
}

/// The state of an interface, and the reason for it in words.
fn state_of(status: &Status, interface: &str) -> (Option<State>, String) {
    let found = status
        .interfaces
        .iter()
        .find(|found| found.interface == interface);
    let Some(found) = found else {
        return (None, "it is no longer configured".to_owned());
    };
    let why = found.why.clone();
    (
        Some(found.state),
        why.unwrap_or_else(|| found.state.name().to_owned()),
    )
}
