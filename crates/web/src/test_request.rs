//! The body of `POST /tests`, and its translation to arguments of `sqm test`. Values are checked here, and none can become an option.

use std::ffi::OsString;
use std::time::Duration;

use serde::Deserialize;
use sqm_api::pause::MAX_SECONDS;
use sqm_measure::scenario::TESTS;

use super::problem::Problem;
use sqm_http::non_null;

/// The longest URL, in bytes. Our choice.
const MOST_URL: usize = 2048;
/// The idle time before and after the load.
const IDLE: Duration = Duration::from_secs(3);
/// The longest test without SQM: the daemon's limit for a pause, less [`LATEST`] and the grace period of the child. A choice.
const LONGEST_WITHOUT: Duration = Duration::from_secs(MAX_SECONDS as u64 - 10);
/// The default kind of test, as of `sqm test` without `--test`: its name and description.
const THREE_PHASES: (&str, &str) = (
    "three_phases",
    "downloads alone, uploads alone, then both at once",
);
/// The kind of test with plain URLs: its name and description.
const URL: (&str, &str) = (
    "url",
    "downloads and uploads of plain URLs, where no 'sqm serve' runs",
);
/// The kind of test with a responsiveness server.
const RPM: (&str, &str) = (
    "rpm",
    "responsiveness: round trips per minute over HTTP, with any server of that protocol",
);

/// The body of `POST /tests`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    #[serde(default, deserialize_with = "non_null")]
    host: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    url: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    upload_url: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    reflector: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    insecure: Option<bool>,
    #[serde(default, deserialize_with = "non_null")]
    port: Option<u16>,
    #[serde(default, deserialize_with = "non_null")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    duration_s: Option<u32>,
    #[serde(default, deserialize_with = "non_null")]
    title: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    family: Option<u8>,
    #[serde(default, deserialize_with = "non_null")]
    secret: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    without_and_with: Option<String>,
}

/// The kind of server that the line is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `sqm serve`.
    Server,
    /// Any web server.
    Url,
    /// A responsiveness server. Its result has another format.
    Rpm,
}

/// A checked request.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) way: Way,
    pub(super) kind: String,
    /// The host or URL, for the list of tests.
    pub(super) host: String,
    pub(super) duration_s: u32,
    /// The longest duration, without the time for connecting and results.
    pub(super) longest: Duration,
    pub(super) title: Option<String>,
    pub(super) secret: Option<String>,
    /// The interface whose shaping is paused for a first test, before a second one.
    pub(super) without_and_with: Option<String>,
    /// The options of `sqm test`.
    options: Vec<OsString>,
    /// The operand of `sqm test`.
    operand: Option<String>,
}

/// The kinds of tests with their descriptions, the default first: those that need one `sqm serve` and no number of flows, and those without `sqm serve`.
pub(super) fn kinds() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    const OTHERS: [&str; 5] = [
        "rtt_fair",
        "rtt_fair4be",
        "rrul_be_nflows",
        "tcp_ndown",
        "tcp_nup",
    ];
    let of_server = TESTS.iter().filter(|(name, _)| !OTHERS.contains(name));
    [&THREE_PHASES].into_iter().chain(of_server).chain([&URL, &RPM])
}

impl Start {
    pub(super) fn check(self) -> Result<Wanted, Problem> {
        let kind = self.kind.clone().unwrap_or_else(|| THREE_PHASES.0.to_owned());
        if kinds().all(|(name, _)| *name != kind) {
            return Err(Problem::bad_request(
                "unknown kind of test; GET /tests lists them",
            ));
        }
        let way = match kind.as_str() {
            name if name == URL.0 => Way::Url,
            name if name == RPM.0 => Way::Rpm,
            _ => Way::Server,
        };
        self.check_fields(way)?;
        let seconds = match way {
            Way::Rpm => 20,
            Way::Server if kind == THREE_PHASES.0 => 30,
            Way::Server | Way::Url => 60,
        };
        let duration_s = self.duration_s.unwrap_or(seconds);
        let longest = longest(way, duration_s);
        if self.without_and_with.is_some() && longest > LONGEST_WITHOUT {
            let most = LONGEST_WITHOUT.as_secs();
            return Err(Problem::bad_request(format!(
                "a test without SQM lasts at most {most} s, and this one would last {} s: choose a smaller duration_s",
                longest.as_secs()
            )));
        }
        let host = self
            .host
            .as_ref()
            .or(self.url.as_ref())
            .or(self.upload_url.as_ref());
        Ok(Wanted {
            way,
            host: host.cloned().unwrap_or_default(),
            duration_s,
            options: self.options(way, &kind, duration_s),
            operand: self.host,
            title: self.title.filter(|title| !title.trim().is_empty()),
            secret: self.secret,
            without_and_with: self.without_and_with,
            longest,
            kind,
        })
    }

    /// Checks that every value is valid and that this kind of test has every field that is given.
    fn check_fields(&self, way: Way) -> Result<(), Problem> {
        let fields = [
            ("host", self.host.is_some(), way != Way::Url),
            ("url", self.url.is_some(), way == Way::Url),
            ("upload_url", self.upload_url.is_some(), way == Way::Url),
            ("reflector", self.reflector.is_some(), way == Way::Url),
            ("insecure", self.insecure.is_some(), way != Way::Server),
            ("port", self.port.is_some(), way != Way::Url),
            ("family", self.family.is_some(), way != Way::Rpm),
            ("secret", self.secret.is_some(), way == Way::Server),
        ];
        if let Some((name, ..)) = fields.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            return Err(Problem::bad_request(format!("a test of this kind has no {name}")));
        }
        match (&self.host, way) {
            (None, Way::Server | Way::Rpm) => return Err(Problem::bad_request("host is missing")),
            (None, Way::Url) if self.url.is_none() && self.upload_url.is_none() => {
                return Err(Problem::bad_request("url is missing, or upload_url"));
            }
            _ => {}
        }
        self.host
            .iter()
            .chain(&self.reflector)
            .try_for_each(|host| check_host(host))?;
        self.url
            .iter()
            .chain(&self.upload_url)
            .try_for_each(|url| check_url(url))?;
        check_secret(self.secret.as_deref())?;
        check_port(self.port)?;
        if self
            .duration_s
            .is_some_and(|seconds| !(6..=300).contains(&seconds))
        {
            return Err(Problem::bad_request("duration_s is from 6 to 300"));
        }
        let is_title =
            |title: &String| title.chars().count() <= 100 && !title.contains(|c: char| c.is_ascii_control());
        if !self.title.as_ref().is_none_or(is_title) {
            return Err(Problem::bad_request(
                "title is one line of at most 100 characters",
            ));
        }
        if !matches!(self.family, None | Some(4 | 6)) {
            return Err(Problem::bad_request("family is 4 or 6"));
        }
        Ok(())
    }

    fn options(&self, way: Way, kind: &str, duration_s: u32) -> Vec<OsString> {
        let mut options = vec![
            "--quiet".to_owned(),
            "--progress=json".to_owned(),
            format!("--duration={duration_s}s"),
        ];
        let idle = format!("--idle={}s", IDLE.as_secs());
        match way {
            Way::Server if kind == THREE_PHASES.0 => options.push(idle),
            Way::Server => options.extend([idle, format!("--test={kind}")]),
            Way::Url => options.push(idle),
            Way::Rpm => options.push("--rpm".to_owned()),
        }
        let mut give = |name: &str, value: Option<&str>| {
            options.extend(value.map(|value| format!("--{name}={value}")));
        };
        give("url", self.url.as_deref());
        give("upload-url", self.upload_url.as_deref());
        give("reflector", self.reflector.as_deref());
        give("port", self.port.map(|port| port.to_string()).as_deref());
        options.extend(self.family.map(|family| format!("-{family}")));
        options.extend((self.insecure == Some(true)).then(|| "--insecure".to_owned()));
        options.into_iter().map(Into::into).collect()
    }
}

fn longest(way: Way, duration_s: u32) -> Duration {
    let load = Duration::from_secs(duration_s.into());
    match way {
        Way::Server | Way::Url => IDLE + load + IDLE,
        // The test loads one direction after the other.
        Way::Rpm => load * 2,
    }
}

impl Wanted {
    /// The arguments of our own program, with further options.
    pub(super) fn arguments(&self, more: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["test".into()];
        arguments.extend(self.options.iter().cloned());
        arguments.extend(more);
        // Arguments after this are not parsed as options.
        arguments.push("--".into());
        arguments.extend(self.operand.as_ref().map(Into::into));
        arguments
    }
}

/// Checks that a text is a host name or an address.
pub(super) fn check_host(host: &str) -> Result<(), Problem> {
    let is_good = (1..=253).contains(&host.len())
        && host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._:%-".contains(&b));
    if is_good {
        return Ok(());
    }
    Err(Problem::bad_request("host is not a host name or an address"))
}

pub(super) fn check_secret(secret: Option<&str>) -> Result<(), Problem> {
    let is_good = |secret: &str| {
        (1..=256).contains(&secret.len())
            && secret.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
            && secret.trim() == secret
    };
    if secret.is_none_or(is_good) {
        return Ok(());
    }
    Err(Problem::bad_request(
        "secret has 1 to 256 printable ASCII characters, without spaces around them",
    ))
}

pub(super) fn check_port(port: Option<u16>) -> Result<(), Problem> {
    if port == Some(0) {
        return Err(Problem::bad_request("a port is from 1 to 65535"));
    }
    Ok(())
}

pub(super) fn check_url(url: &str) -> Result<(), Problem> {
    let place = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let is_good = |place: &str| !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_graphic());
    if url.len() <= MOST_URL && place.is_some_and(is_good) {
        return Ok(());
    }
    Err(Problem::bad_request(
        "a URL begins with http:// or https:// and has no spaces",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(body: &str) -> Result<Vec<String>, Problem> {
        let start: Start = serde_json::from_str(body).expect("the fields are known");
        let arguments = start.check()?.arguments(["--save=x".into()]);
        Ok(arguments
            .into_iter()
            .map(|argument| argument.into_string().expect("text"))
            .collect())
    }

    #[test]
    fn each_kind_becomes_its_arguments() {
        for (body, expected) in [
            (
                r#"{"host":"a"}"#,
                "test --quiet --progress=json --duration=30s --idle=3s --save=x -- a",
            ),
            (
                r#"{"host":"a","kind":"three_phases","duration_s":12}"#,
                "test --quiet --progress=json --duration=12s --idle=3s --save=x -- a",
            ),
            (
                r#"{"host":"a","kind":"rrul_be"}"#,
                "test --quiet --progress=json --duration=60s --idle=3s --test=rrul_be --save=x -- a",
            ),
            (
                r#"{"kind":"url","url":"https://a/b","upload_url":"http://a/","reflector":"192.0.2.1:53","insecure":true,"family":6}"#,
                "test --quiet --progress=json --duration=60s --idle=3s --url=https://a/b --upload-url=http://a/ \
                 --reflector=192.0.2.1:53 -6 --insecure --save=x --",
            ),
            (
                r#"{"kind":"rpm","host":"a","port":443,"insecure":false,"duration_s":6}"#,
                "test --quiet --progress=json --duration=6s --rpm --port=443 --save=x -- a",
            ),
        ] {
            assert_eq!(arguments(body).expect(body).join(" "), expected);
        }
    }

    #[test]
    fn fields_that_a_kind_does_not_have_are_refused() {
        for body in [
            r#"{}"#,
            r#"{"url":"https://a/"}"#,
            r#"{"kind":"url"}"#,
            r#"{"kind":"url","host":"a"}"#,
            r#"{"kind":"url","url":"file:///etc/passwd"}"#,
            r#"{"kind":"url","url":"https://"}"#,
            r#"{"kind":"url","url":"https://a/ b"}"#,
            r#"{"kind":"rpm","host":"a","secret":"b"}"#,
            r#"{"kind":"rpm","host":"a","family":4}"#,
            r#"{"host":"a","insecure":true}"#,
            r#"{"host":"a","duration_s":105,"without_and_with":"wan0"}"#,
            r#"{"host":"a","kind":"rpm","duration_s":56,"without_and_with":"wan0"}"#,
        ] {
            assert!(arguments(body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_host_is_never_an_option() {
        for good in [
            "server.example",
            "192.0.2.1",
            "2001:db8::1",
            "fe80::1%eth0",
            "::1",
        ] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        for wrong in ["", "-h", "--write", "a b", "a/b", "a;b", "$(a)", "ä", ".a"] {
            assert!(check_host(wrong).is_err(), "{wrong}");
        }
    }
}
