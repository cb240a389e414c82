//! The page of a fleet's hub. This crate knows nothing of fleets: whoever starts the server answers its questions, in JSON
//! (docs/openapi.yaml).

use hyper::StatusCode;
use sqm_http::full;
use tokio::sync::{mpsc, oneshot};

use super::problem::{ApiResult, Problem};
use super::routes::Read;

/// A question of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All routers and roll-outs.
    Fleet,
    /// The history of the router with this name.
    Router(String),
    /// The history of the roll-out with this name.
    RollOut(String),
}

/// JSON; `None` if there is nothing with that name. The error says why there is no answer now.
pub type Answer = Result<Option<String>, String>;
/// The questions, each with the place for its answer.
pub type Questions = mpsc::Receiver<(Question, oneshot::Sender<Answer>)>;

/// Questions that wait. A choice: as many as the server has requests under way.
const MOST: usize = 48;

/// The page's side.
pub(super) struct Hub(mpsc::Sender<(Question, oneshot::Sender<Answer>)>);

impl Hub {
    /// Starts a thread that answers.
    pub(super) fn start(answer: Box<dyn FnOnce(Questions) + Send>) -> std::io::Result<Self> {
        let (asker, questions) = mpsc::channel(MOST);
        std::thread::Builder::new()
            .name("hub".into())
            .spawn(move || answer(questions))?;
        Ok(Self(asker))
    }

    /// Answers a request. `parts` are the variable parts of its path.
    pub(super) async fn read(&self, read: Read, parts: &[&str]) -> ApiResult {
        let question = match read {
            Read::Fleet => Question::Fleet,
            Read::FleetRouter => Question::Router(parts[0].to_owned()),
            Read::FleetRollOut => Question::RollOut(parts[0].to_owned()),
            _ => return Err(not_here()),
        };
        match self.ask(question).await {
            Some(Ok(Some(answer))) => Ok(full(StatusCode::OK, "application/json", answer)),
            Some(Ok(None)) => Err(Problem::not_found("there is no such name")),
            Some(Err(why)) => Err(Problem::unavailable(why)),
            None => Err(Problem::unavailable(
                "the server failed to answer this: restart it",
            )),
        }
    }

    async fn ask(&self, question: Question) -> Option<Answer> {
        let (reply, answer) = oneshot::channel();
        self.0.send((question, reply)).await.ok()?;
        answer.await.ok()
    }
}

/// The error for a request of the router's page.
pub(super) fn not_here() -> Problem {
    Problem::not_found(
        "this is the page of a fleet, which 'sqm fleet web' serves; 'sqm web' on a router has this path",
    )
}
