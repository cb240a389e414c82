//! The store as a bucket of NATS JetStream.
//!
//! Only plain requests are used, with the subjects and the JSON of the JetStream API that every server since 2.9 understands. A router
//! needs no consumer: it subscribes to its key, then reads it, and reads it again whenever it connects. A consumer for each router would
//! end at a thousand routers, the server's default limit.
//!
//! The bucket is one as the `nats` tool makes them (`nats kv`), so that tool can look into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{AuthError, Client, ConnectOptions, HeaderMap, Request, ServerAddr, Subscriber};
use data_encoding::BASE64;
use futures_util::StreamExt;
use nkeys::KeyPair;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::name::Name;
use crate::transport::{Entry, Error, Event, Key, Kind, Store};
use crate::user;

/// The bucket with everything that must not be lost.
const BUCKET: &str = "fleet";
/// The bucket with the heartbeats: one value for each router, without history.
const HEARTBEATS: &str = "fleet_alive";
/// The values that the bucket keeps of each key; JetStream's highest number for a bucket.
const HISTORY: u32 = 64;
/// The longest wait for an answer. A choice: longer than an election of a new leader among three servers usually takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest login, as long as the server allows (`credentials`). A server to which a whole fleet comes back is slow, and whoever gives up
/// early makes it do its work again.
const LOGIN: Duration = Duration::from_secs(30);
/// How long a request still waits for its answer after the server has refused something. A choice: the answers to requests that were sent
/// before are there by then.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// A request that may be repeated is repeated for this long if there is no answer, because servers elect a new leader or one is started
/// again. A choice: elections among three servers took up to 7 s.
const INSISTENCE: Duration = Duration::from_secs(30);
/// The longest wait for the answer to such a request. A choice: a leader that was killed never answers, and the new one must be asked.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The pause before it is repeated; a choice.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts to connect. A choice: a fleet comes back within a minute of its server.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The requests that are under way at a time when many keys are read. A choice.
const PARALLEL: usize = 256;

/// How to reach the servers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `nats://HOST:4222` or, with encryption, `tls://HOST:4222`; several with commas between them.
    pub url: String,
    /// The credentials file, as `sqm fleet enroll` and `nsc` make it.
    pub credentials: Option<PathBuf>,
    /// The certificate authority of the servers, PEM; `None`: those of the system.
    pub certificate_authority: Option<PathBuf>,
    /// The name that the servers' logs and lists show.
    pub name: String,
}

/// A connection to the servers.
pub struct Nats {
    client: Client,
    events: mpsc::UnboundedReceiver<Event>,
    /// Kept for the forwarding of subscriptions.
    sender: mpsc::UnboundedSender<Event>,
    /// The last refusal of the server. A request that it refuses gets no answer.
    refused: watch::Receiver<Option<String>>,
}

/// Checks options without a connection.
///
/// # Errors
/// [`Error::Options`]: an address that is none.
pub fn check(options: &Options) -> Result<(), Error> {
    servers(&options.url).map(drop)
}

impl Nats {
    /// Prepares a connection, which is made in the background and again whenever it breaks.
    ///
    /// # Errors
    /// Options that cannot work: an address that is none, a credentials file that cannot be read.
    pub async fn connect(options: &Options) -> Result<Self, Error> {
        Self::prepare(options, true).await
    }

    /// Connects now.
    ///
    /// # Errors
    /// As [`Nats::connect`], and if no server answers.
    pub async fn connect_now(options: &Options) -> Result<Self, Error> {
        Self::prepare(options, false).await
    }

    async fn prepare(options: &Options, in_background: bool) -> Result<Self, Error> {
        let (sender, events) = mpsc::unbounded_channel();
        let (refusals, refused) = watch::channel(None);
        let mut connect = ConnectOptions::new()
            .name(&options.name)
            .custom_inbox_prefix(format!("_INBOX.{}", options.name))
            .connection_timeout(LOGIN)
            .request_timeout(Some(PATIENCE))
            .max_reconnects(None)
            .reconnect_delay_callback(pause)
            .event_callback({
                let sender = sender.clone();
                move |event| {
                    let event = event_of(event);
                    if let Some(Event::Refused(why)) = &event {
                        refusals.send_replace(Some(why.clone()));
                    }
                    // Fails when the receiver is gone, and the connection is about to end.
                    let _ = event.map(|event| sender.send(event));
                    std::future::ready(())
                }
            });
        if let Some(file) = &options.credentials {
            connect = with_credentials(connect, file)
                .map_err(|why| Error::Options(format!("the credentials {}: {why}", file.display())))?;
        }
        if let Some(file) = &options.certificate_authority {
            connect = connect.add_root_certificates(file.clone());
        }
        if in_background {
            connect = connect.retry_on_initial_connect();
        }
        let servers = servers(&options.url)?;
        let client = connect
            .connect(servers)
            .await
            .map_err(|error| Error::NoAnswer(format!("{}: {error}", options.url)))?;
        Ok(Self {
            client,
            events,
            sender,
            refused,
        })
    }

    /// Makes the buckets if they are missing, or changes the number of their replicas: 1, or 3 with three servers.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn make_buckets(&self, replicas: u8) -> Result<(), Error> {
        for (bucket, history) in [(BUCKET, HISTORY), (HEARTBEATS, 1)] {
            let stream = json!({
                "name": stream_name(bucket),
                "subjects": [format!("$KV.{bucket}.>")],
                "retention": "limits",
                "discard": "new",
                "storage": "file",
                "max_msgs_per_subject": history,
                "max_msgs": -1,
                "max_bytes": -1,
                "max_age": 0,
                "max_msg_size": -1,
                "num_replicas": replicas,
                "allow_rollup_hdrs": true,
                "deny_delete": true,
                "allow_direct": true,
            });
            let known = self
                .api(&format!("STREAM.INFO.{}", stream_name(bucket)), &Value::Null)
                .await?;
            let verb = if is_not_found(&known) {
                "CREATE"
            } else if checked(known)?.pointer("/config/num_replicas") == Some(&replicas.into()) {
                continue;
            } else {
                "UPDATE"
            };
            let answer = self
                .api(&format!("STREAM.{verb}.{}", stream_name(bucket)), &stream)
                .await?;
            checked(answer)?;
        }
        Ok(())
    }

    /// The names of all keys of a kind, in order.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn names(&self, kind: &Kind) -> Result<Vec<Name>, Error> {
        let bucket = bucket_of(kind);
        let prefix = format!("$KV.{bucket}.{}", kind.prefix());
        let mut names = Vec::new();
        let mut found = 0;
        loop {
            let question = json!({ "subjects_filter": format!("{prefix}>"), "offset": found });
            let answer = checked(
                self.api(&format!("STREAM.INFO.{}", stream_name(bucket)), &question)
                    .await?,
            )?;
            let subjects = answer.pointer("/state/subjects").and_then(Value::as_object);
            let Some(subjects) = subjects.filter(|subjects| !subjects.is_empty()) else {
                break;
            };
            found += subjects.len();
            names.extend(
                subjects
                    .keys()
                    .filter_map(|subject| subject.strip_prefix(&prefix)?.parse::<Name>().ok()),
            );
            let total = answer.get("total").and_then(Value::as_u64).unwrap_or(0);
            if found as u64 >= total {
                break;
            }
        }
        names.sort();
        Ok(names)
    }

    /// The values of these keys, those without a value left out.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_all(&self, kind: &Kind, names: &[Name]) -> Result<Vec<(Name, Entry)>, Error> {
        let keys = names.iter().map(|name| (name.clone(), kind.key(name.clone())));
        let mut answers = futures_util::stream::iter(keys)
            .map(|(name, key)| async move { (name, insist(|| self.get(&key)).await) })
            .buffered(PARALLEL);
        let mut found = Vec::with_capacity(names.len());
        while let Some((name, entry)) = answers.next().await {
            if let Some(entry) = entry? {
                found.push((name, entry));
            }
        }
        Ok(found)
    }

    /// Writes many values, a few hundred at a time. A server that does not answer is waited for.
    ///
    /// # Errors
    /// The first error. Values behind it may have been written.
    pub async fn put_all(&self, values: Vec<(Key, Vec<u8>)>) -> Result<(), Error> {
        let mut answers = futures_util::stream::iter(values)
            .map(|(key, value)| async move { insist(|| self.put(&key, value.clone(), None)).await })
            .buffer_unordered(PARALLEL);
        while let Some(answer) = answers.next().await {
            answer?;
        }
        Ok(())
    }

    /// The values that a key has had, oldest first: at most the last 64.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn history(&self, key: &Key) -> Result<Vec<Entry>, Error> {
        let bucket = bucket_of_key(key);
        let mut entries = Vec::new();
        let mut from = 1;
        loop {
            let question = json!({ "seq": from, "next_by_subj": subject(key) });
            let answer = self
                .api(&format!("STREAM.MSG.GET.{}", stream_name(bucket)), &question)
                .await?;
            if is_not_found(&answer) {
                return Ok(entries);
            }
            let message: StoredMessage = serde_json::from_value(checked(answer)?["message"].take())
                .map_err(|error| Error::Refused(format!("an answer that is none: {error}")))?;
            from = message.seq + 1;
            entries.push(Entry {
                value: BASE64.decode(message.data.as_bytes()).unwrap_or_default(),
                revision: message.seq,
                written: message.time,
            });
        }
    }

    /// A request of the JetStream API. The answer may be an error.
    async fn api(&self, what: &str, question: &Value) -> Result<Value, Error> {
        let payload = match question {
            Value::Null => Vec::new(),
            question => question.to_string().into_bytes(),
        };
        insist(async || {
            let answer = self
                .request(format!("$JS.API.{what}"), payload.clone(), None)
                .await?;
            let answer: Value = serde_json::from_slice(&answer.payload)
                .map_err(|error| Error::Refused(format!("an answer that is no JSON: {error}")))?;
            match answer.pointer("/error/code").and_then(Value::as_u64) {
                Some(code) if code >= CANNOT_NOW => checked(answer),
                _ => Ok(answer),
            }
        })
        .await
    }

    async fn request(
        &self,
        subject: String,
        payload: Vec<u8>,
        headers: Option<HeaderMap>,
    ) -> Result<async_nats::Message, Error> {
        let mut refused = self.refused.clone();
        refused.mark_unchanged();
        let mut request = Request::new().payload(payload.into());
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = self.client.send_request(subject.clone(), request);
        let no_answer = async {
            // Fails only when the connection has ended for good.
            let _ = refused.changed().await;
            // It may have been another request that was refused.
            tokio::time::sleep(AFTER_REFUSAL).await;
        };
        let error = tokio::select! {
            answer = answer => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            },
            () = no_answer => {
                let why = self.refused.borrow().clone().unwrap_or_default();
                return Err(Error::Refused(why));
            }
        };
        Err(match error.kind() {
            RequestErrorKind::NoResponders => {
                Error::NoAnswer("JetStream is not enabled there, has no leader, or has no such bucket".into())
            }
            RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                Error::Options(format!("{subject}: {error}"))
            }
            _ => Error::NoAnswer(error.to_string()),
        })
    }
}

impl Store for Nats {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error> {
        let stream = stream_name(bucket_of_key(key));
        let question = format!("$JS.API.DIRECT.GET.{stream}.{}", subject(key));
        let answer = self.request(question, Vec::new(), None).await?;
        match answer.status.map(|status| status.as_u16()) {
            Some(404) => return Ok(None),
            Some(status) if status != 200 => {
                let why = answer.description.unwrap_or_default();
                return Err(error_of(status.into(), format!("{status} {why}")));
            }
            _ => {}
        }
        let header = |name: &str| Some(answer.headers.as_ref()?.get(name)?.as_str().to_owned());
        let revision = header("Nats-Sequence").and_then(|text| text.parse().ok());
        let is_deleted = header("KV-Operation").is_some();
        match revision {
            Some(_) if is_deleted => Ok(None),
            Some(revision) => Ok(Some(Entry {
                value: answer.payload.to_vec(),
                revision,
                written: header("Nats-Time-Stamp").unwrap_or_default(),
            })),
            None => Err(Error::Refused("an answer without a sequence number".into())),
        }
    }

    async fn put(&self, key: &Key, value: Vec<u8>, expected: Option<u64>) -> Result<u64, Error> {
        /// The server's number of the error "wrong last sequence".
        const WRONG_LAST_SEQUENCE: u64 = 10_071;
        let headers = expected.map(|revision| {
            let mut headers = HeaderMap::new();
            headers.insert(
                "Nats-Expected-Last-Subject-Sequence",
                revision.to_string().as_str(),
            );
            headers
        });
        let answer = self.request(subject(key), value, headers).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)
            .map_err(|error| Error::Refused(format!("an answer that is no JSON: {error}")))?;
        if answer.pointer("/error/err_code").and_then(Value::as_u64) == Some(WRONG_LAST_SEQUENCE) {
            return Err(Error::Changed(key.clone()));
        }
        let answer = checked(answer)?;
        answer
            .get("seq")
            .and_then(Value::as_u64)
            .ok_or_else(|| Error::Refused("an answer without a sequence number".into()))
    }

    async fn publish(&self, key: &Key, value: Vec<u8>) -> Result<(), Error> {
        let sent = self.client.publish(subject(key), value.into()).await;
        sent.map_err(|error| Error::NoAnswer(error.to_string()))
    }

    async fn subscribe(&self, key: &Key) -> Result<(), Error> {
        let subscriber = self.client.subscribe(subject(key)).await;
        let subscriber = subscriber.map_err(|error| Error::NoAnswer(error.to_string()))?;
        tokio::spawn(forward(subscriber, self.sender.clone()));
        Ok(())
    }

    async fn next(&mut self) -> Event {
        // `sender` is kept here, so the channel never closes.
        self.events.recv().await.unwrap_or(Event::Disconnected)
    }
}

#[derive(Deserialize)]
struct StoredMessage {
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    time: String,
}

fn with_credentials(connect: ConnectOptions, file: &Path) -> Result<ConnectOptions, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    let wrong = || "this is no credentials file".to_owned();
    let token = user::token_in(&text).ok_or_else(wrong)?;
    let key = KeyPair::from_seed(user::seed_in(&text).ok_or_else(wrong)?).map_err(|_| wrong())?;
    Ok(connect.jwt(token.to_owned(), move |nonce| {
        std::future::ready(key.sign(&nonce).map_err(AuthError::new))
    }))
}

async fn forward(mut subscriber: Subscriber, events: mpsc::UnboundedSender<Event>) {
    while let Some(message) = subscriber.next().await {
        if events.send(Event::Changed(message.payload.to_vec())).is_err() {
            return;
        }
    }
}

fn event_of(event: async_nats::Event) -> Option<Event> {
    match event {
        async_nats::Event::Connected => Some(Event::Connected),
        async_nats::Event::Disconnected | async_nats::Event::Closed => Some(Event::Disconnected),
        async_nats::Event::ServerError(error) => Some(Event::Refused(error.to_string())),
        // A subscription that lost a message reads its key again.
        async_nats::Event::SlowConsumer(_) => Some(Event::Connected),
        // Each is followed by a disconnection, or by nothing.
        async_nats::Event::ClientError(_) | async_nats::Event::LameDuckMode | async_nats::Event::Draining => {
            None
        }
    }
}

/// Doubles from a tenth of a second, with a part that differs among routers: ten thousand of them do not come back at the same moment.
fn pause(attempts: usize) -> Duration {
    let longest = Duration::from_millis(100)
        .saturating_mul(1 << attempts.min(12))
        .min(MAX_PAUSE);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    longest / 2 + longest.mul_f64(f64::from(nanos) / 2e9)
}

fn servers(url: &str) -> Result<Vec<ServerAddr>, Error> {
    let parts = url.split(',').map(str::trim).filter(|part| !part.is_empty());
    let servers: Result<Vec<ServerAddr>, Error> = parts
        .map(|part| {
            let wrong = |why: String| Error::Options(format!("'{part}' is no address of a server: {why}"));
            let server: ServerAddr = part.parse().map_err(|error| wrong(format!("{error}")))?;
            match (server.scheme(), server.host()) {
                (_, "") => Err(wrong("it has no host".into())),
                ("nats" | "tls", _) => Ok(server),
                _ => Err(wrong("it begins with nats:// or tls://".into())),
            }
        })
        .collect();
    match servers {
        Ok(servers) if servers.is_empty() => Err(Error::Options(
            "no server is given, such as tls://hub.example.net:4222".into(),
        )),
        servers => servers,
    }
}

const fn bucket_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Heartbeat => HEARTBEATS,
        _ => BUCKET,
    }
}

const fn bucket_of_key(key: &Key) -> &'static str {
    match key {
        Key::Heartbeat(_) => HEARTBEATS,
        _ => BUCKET,
    }
}

fn subject(key: &Key) -> String {
    format!("$KV.{}.{key}", bucket_of_key(key))
}

fn stream_name(bucket: &str) -> String {
    format!("KV_{bucket}")
}

fn is_not_found(answer: &Value) -> bool {
    answer.pointer("/error/code").and_then(Value::as_u64) == Some(404)
}

/// The lowest number of errors that say that the server cannot do it now, as in HTTP: servers that elect a leader answer 503.
const CANNOT_NOW: u64 = 500;

/// The answer, if it is no error.
fn checked(answer: Value) -> Result<Value, Error> {
    let code = answer.pointer("/error/code").and_then(Value::as_u64);
    match answer.pointer("/error/description").and_then(Value::as_str) {
        Some(why) => Err(error_of(code.unwrap_or(0), why.to_owned())),
        None => Ok(answer),
    }
}

fn error_of(code: u64, why: String) -> Error {
    if code >= CANNOT_NOW {
        Error::NoAnswer(format!("it cannot do it now: {why}"))
    } else {
        Error::Refused(why)
    }
}

/// Repeats a request that may be repeated until it is answered.
async fn insist<T>(request: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let begin = tokio::time::Instant::now();
    loop {
        let answer = tokio::time::timeout(ATTEMPT, request()).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Error::NoAnswer(format!(
                "it has said nothing for {} s",
                ATTEMPT.as_secs()
            )))
        });
        match answer {
            Err(Error::NoAnswer(_)) if begin.elapsed() < INSISTENCE => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_one_option() {
        let hosts = |text: &str| {
            servers(text).map(|found| found.iter().map(ServerAddr::host).map(str::to_owned).collect())
        };
        assert_eq!(
            hosts("tls://a:4222, nats://b"),
            Ok(vec!["a".to_owned(), "b".to_owned()])
        );
        for wrong in ["", " , ", "http://a", "tls://"] {
            let error: Result<Vec<String>, Error> = hosts(wrong);
            assert!(matches!(error, Err(Error::Options(_))), "{wrong}: {error:?}");
        }
    }

    #[test]
    fn pauses_grow_and_end_at_half_a_minute() {
        for (attempts, longest_ms) in [(0, 100), (1, 200), (5, 3200), (20, 30_000), (usize::MAX, 30_000)] {
            let pause = pause(attempts).as_millis();
            assert!(
                (longest_ms / 2..=longest_ms).contains(&pause),
                "{attempts}: {pause} ms"
            );
        }
    }
}
