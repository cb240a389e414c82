//! The page's options in the file of the services' options. Pure.

use std::net::{IpAddr, SocketAddr};

/// The variable that the page's service reads.
const VARIABLE: &str = "SQM_WEB_OPTIONS";
/// Port of a page that other machines reach: the usual one for HTTPS without privileges.
pub(super) const OPEN_PORT: u16 = 8443;
/// Port of a page for this machine alone, as `sqm web` has it.
pub(super) const LOCAL_PORT: u16 = 8080;

/// The words of `sqm web`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageOptions {
    words: Vec<String>,
}

impl PageOptions {
    /// The options in the text of the file; none if it does not set them.
    pub(super) fn of(text: &str) -> Self {
        let value = text.lines().rev().find_map(value);
        let words = value.map(|value| value.split_whitespace().map(str::to_owned).collect());
        Self {
            words: words.unwrap_or_default(),
        }
    }

    /// The address that the page listens on, if the options name one.
    pub(super) fn listen(&self) -> Option<SocketAddr> {
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let address = match word.strip_prefix("--listen") {
                Some("") => words.next().map(String::as_str),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            };
            if let Some(address) = address {
                return address.parse().ok();
            }
        }
        None
    }

    /// Listens on this address: with HTTPS, unless only this machine reaches it.
    pub(super) fn set_listen(&mut self, address: SocketAddr) {
        let mut kept = Vec::new();
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--listen" => _ = words.next(),
                "--tls" => {}
                word if word.starts_with("--listen=") => {}
                word => kept.push(word.to_owned()),
            }
        }
        let tls = (!address.ip().is_loopback()).then(|| "--tls".to_owned());
        self.words = ["--listen".to_owned(), address.to_string()]
            .into_iter()
            .chain(tls)
            .chain(kept)
            .collect();
    }

    pub(super) fn has_tls(&self) -> bool {
        self.words.iter().any(|word| word == "--tls")
    }

    pub(super) fn is_for_this_machine(&self) -> bool {
        self.listen().is_none_or(|address| address.ip().is_loopback())
    }

    /// The options as they are typed.
    pub(super) fn words(&self) -> String {
        self.words.join(" ")
    }

    /// The address to open in a browser. A page that listens on all addresses is also at `here`.
    pub(super) fn url(&self, here: IpAddr) -> String {
        let scheme = if self.has_tls() { "https" } else { "http" };
        match self.listen() {
            None => format!("{scheme}://127.0.0.1:{LOCAL_PORT}/"),
            Some(address) if address.ip().is_unspecified() => {
                format!("{scheme}://{}/", SocketAddr::new(here, address.port()))
            }
            Some(address) => format!("{scheme}://{address}/"),
        }
    }

    /// The file with these options; everything else in it stays.
    pub(super) fn in_file(&self, text: &str) -> String {
        if Self::of(text) == *self {
            return text.to_owned();
        }
        let line = format!("{VARIABLE}=\"{}\"", self.words());
        let mut lines: Vec<&str> = text.lines().collect();
        match lines.iter().rposition(|line| value(line).is_some()) {
            Some(at) => lines[at] = &line,
            None => lines.push(&line),
        }
        lines.join("\n") + "\n"
    }
}

/// The value of the variable on this line, without quotation marks.
fn value(line: &str) -> Option<&str> {
    let value = line.trim().strip_prefix(VARIABLE)?.strip_prefix('=')?.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_the_service_reads_them() {
        for (text, words, url) in [
            ("", "", "http://127.0.0.1:8080/"),
            ("# SQM_WEB_OPTIONS=\"--tls\"\n", "", "http://127.0.0.1:8080/"),
            (
                "SQM_WEB_OPTIONS=\"--listen 192.168.1.1:8443 --tls --name router.lan\"\n",
                "--listen 192.168.1.1:8443 --tls --name router.lan",
                "https://192.168.1.1:8443/",
            ),
            (
                "SQM_WEB_OPTIONS=old\nSQM_WEB_OPTIONS='--listen=[fd00::1]:80'",
                "--listen=[fd00::1]:80",
                "http://[fd00::1]:80/",
            ),
            (
                "SQM_WEB_OPTIONS=\"--listen 0.0.0.0:8443 --tls\"",
                "--listen 0.0.0.0:8443 --tls",
                "https://10.0.0.1:8443/",
            ),
        ] {
            let options = PageOptions::of(text);
            assert_eq!(
                (
                    options.words().as_str(),
                    options.url([10, 0, 0, 1].into()).as_str()
                ),
                (words, url),
                "{text}"
            );
            assert_eq!(options.in_file(text), text, "unchanged options change nothing");
        }
    }

    #[test]
    fn a_new_address_keeps_names_and_the_other_lines_of_the_file() {
        let text = "# mine\nSQM_SERVE_OPTIONS=\"--port 1\"\nSQM_WEB_OPTIONS=\"--name r.lan --listen 127.0.0.1:80\"\nOTHER=1";
        let mut options = PageOptions::of(text);
        options.set_listen("192.168.1.1:8443".parse().unwrap());
        let line = "SQM_WEB_OPTIONS=\"--listen 192.168.1.1:8443 --tls --name r.lan\"";
        assert_eq!(
            options.in_file(text),
            format!("# mine\nSQM_SERVE_OPTIONS=\"--port 1\"\n{line}\nOTHER=1\n")
        );
        // Loopback needs no HTTPS.
        options.set_listen("[::1]:8080".parse().unwrap());
        assert_eq!(
            options.in_file(""),
            "SQM_WEB_OPTIONS=\"--listen [::1]:8080 --name r.lan\"\n"
        );
        assert!(options.is_for_this_machine() && !options.has_tls());
    }
}
