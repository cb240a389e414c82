//! The commands that the guide shows, with their outputs.
//!
//! A comment before a block of a page says where its commands (`$ sqm …`) are run: `<!-- run: PLACE -->`. `here` is this machine; other
//! places are hosts of the virtual home network. `, first: SHELL` runs a line of shell before it.

#![allow(
    dead_code,
    reason = "each test program that includes this file uses a part of it"
)]

use std::fs;
use std::path::PathBuf;

/// The pages of the guide, in the order of its contents.
pub(crate) const PAGES: [&str; 12] = [
    "before-you-begin",
    "install",
    "setup",
    "test",
    "tune",
    "queues",
    "web",
    "autorate",
    "openwrt",
    "fleet",
    "openwisp",
    "trouble",
];

/// A fenced block with commands, and the place where they run.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) page: PathBuf,
    /// `None` if the page does not say.
    pub(crate) place: Option<String>,
    pub(crate) first: Option<String>,
    /// Each command without `$ sqm`, and the lines that it prints.
    pub(crate) commands: Vec<(String, String)>,
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide"))
}

/// All blocks with a command, page by page.
pub(crate) fn blocks() -> Vec<Block> {
    let pages = PAGES.map(|page| folder().join(page).with_extension("md"));
    pages.into_iter().flat_map(blocks_of).collect()
}

fn blocks_of(page: PathBuf) -> Vec<Block> {
    let text = fs::read_to_string(&page).expect("a page of the guide");
    let parts: Vec<&str> = text.split("\n```").collect();
    let mut blocks = Vec::new();
    for pair in parts.chunks(2) {
        let [before, block] = pair else { continue };
        let Some((_, body)) = block.split_once('\n') else {
            continue;
        };
        if !body
            .lines()
            .any(|line| line.starts_with("$ sqm ") || line.starts_with("$ sudo sqm "))
        {
            continue;
        }
        let marker = before
            .lines()
            .last()
            .and_then(|line| line.strip_prefix("<!-- run: "));
        let marker = marker
            .and_then(|line| line.strip_suffix(" -->"))
            .unwrap_or_default();
        let (place, first) = split(marker, ", first: ");
        blocks.push(Block {
            page: page.clone(),
            place: Some(place.to_owned()).filter(|place| !place.is_empty()),
            first: first.map(str::to_owned),
            commands: commands(body),
        });
    }
    blocks
}

fn split<'a>(text: &'a str, at: &str) -> (&'a str, Option<&'a str>) {
    text.split_once(at)
        .map_or((text, None), |(before, after)| (before, Some(after)))
}

fn commands(body: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in body.lines() {
        let command = line
            .strip_prefix("$ sudo sqm ")
            .or_else(|| line.strip_prefix("$ sqm "));
        match (command, found.last_mut()) {
            (Some(command), _) => found.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}

/// A text without what differs from one measurement to the next: each number becomes `#` without its sign, columns are one blank apart,
/// and the direction in which a few probes were lost is left out.
pub(crate) fn without_figures(text: &str) -> String {
    let mut plain = String::new();
    let mut last_digit = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if matches!(c, '+' | '-') && chars.peek().is_some_and(char::is_ascii_digit) {
            last_digit = false;
            continue;
        }
        let is_part = c.is_ascii_digit() || (c == '.' && last_digit);
        match (is_part, last_digit) {
            (true, true) => {}
            (true, false) => plain.push('#'),
            (false, _) => plain.push(c),
        }
        last_digit = is_part;
    }
    let lines = plain.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("# up of #", "# of #")
        .replace("# down of #", "# of #")
        .trim()
        .to_owned()
}
