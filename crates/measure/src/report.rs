//! Web pages of results, each in a single file. Pure.

mod comparison;

use std::fmt::Write as _;

use sqm_core::direction::Direction;

pub use self::comparison::comparison;
use crate::grade::Verdict;
use crate::plot;
use crate::result::TestResult;
use crate::svg::escape;

/// A line with a test before shaping and one after it.
#[derive(Clone, Debug)]
pub struct ComparedLine<'a> {
    /// A short name without spaces: the anchor of its section in the page.
    pub name: &'a str,
    /// The heading.
    pub title: &'a str,
    /// A description of the line, in a sentence or two.
    pub description: &'a str,
    /// The test without shaping.
    pub before: &'a TestResult,
    /// The test with shaping.
    pub after: &'a TestResult,
    /// The commands that set up the shaping.
    pub plan_text: &'a str,
}

const STYLE: &str = include_str!("report.css");

fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    )
}

const FOOT: &str = "<footer>Latency and throughput are of the steady part of the load. Throughput is TCP payload, counted where \
                    it arrived unless a note says otherwise; a line carries more than that, because packets have \
                    headers.</footer>\n</main>\n</body>\n</html>\n";

/// A page with an overview, and for each line its figures, pictures and commands. The page loads no other resource.
pub fn html(lines: &[ComparedLine<'_>]) -> String {
    let mut page = head("Latency under load, before and after");
    page.push_str(
        "<p class=\"lead\">The round trip of a small packet while downloads and uploads fill the line.</p>\n",
    );
    page.push_str(&overview(lines));
    for line in lines {
        page.push_str(&section(line));
    }
    page + FOOT
}

fn overview(lines: &[ComparedLine<'_>]) -> String {
    let mut text = String::from(
        "<div class=\"wide\"><table>\n<thead><tr><th>Line</th><th class=\"n\">Idle</th><th class=\"n\">Loaded, before</th>\
         <th class=\"n\">Loaded, after</th><th class=\"n\">Grade</th><th class=\"n\">Download, after</th><th class=\"n\">Upload, after</th></tr></thead>\n<tbody>\n",
    );
    for line in lines {
        let (before, after) = (&line.before.summary, &line.after.summary);
        writeln!(
            text,
            "<tr><td><a href=\"#{}\">{}</a></td><td class=\"n\">{}</td><td class=\"n bad\">{}</td>\
             <td class=\"n good\">{}</td><td class=\"n\">{} to {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(line.name),
            escape(line.title),
            plot::latency(before.idle_ms),
            plot::latency(before.latency_median_ms),
            plot::latency(after.latency_median_ms),
            letter(line.before),
            letter(line.after),
            goodput(line.after, Direction::Download),
            goodput(line.after, Direction::Upload)
        )
        .expect("a string grows");
    }
    text + "</tbody>\n</table></div>\n"
}

fn section(line: &ComparedLine<'_>) -> String {
    let title = format!("{}: latency under load", line.title);
    let mut text = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<figure>{}</figure>\n",
        escape(line.name),
        escape(line.title),
        escape(line.description),
        plot::latency_comparison(line.before, line.after, &title)
    );
    text.push_str(&figures(line));
    for (when, result) in [("Before", line.before), ("After", line.after)] {
        write!(
            text,
            "<details><summary>{when}: download, upload and latency over time</summary>\n<figure>{}</figure></details>\n",
            plot::rrul(result)
        )
        .expect("a string grows");
    }
    if !line.plan_text.is_empty() {
        write!(
            text,
            "<details><summary>What was set</summary>\n<pre>{}</pre></details>\n",
            escape(line.plan_text)
        )
        .expect("a string grows");
    }
    text + "</section>\n"
}

fn figures(line: &ComparedLine<'_>) -> String {
    type Figure = fn(&TestResult) -> String;
    let rows: [(&str, Figure); 9] = [
        ("Idle latency, median", |r| plot::latency(r.summary.idle_ms)),
        ("Loaded latency, median", |r| {
            plot::latency(r.summary.latency_median_ms)
        }),
        ("95 % are below", |r| plot::latency(r.summary.latency_p95_ms)),
        ("99 % are below", |r| plot::latency(r.summary.latency_p99_ms)),
        ("Worst", |r| plot::latency(r.summary.latency_max_ms)),
        ("Download", |r| goodput(r, Direction::Download)),
        ("Upload", |r| goodput(r, Direction::Upload)),
        ("Fairness between flows, down / up", |r| {
            format!("{} / {}", index(r.summary.jain_down), index(r.summary.jain_up))
        }),
        ("Probes lost", |r| {
            format!("{} of {}", r.summary.probes_lost, r.summary.probes_sent)
        }),
    ];
    let mut text = String::from(
        "<div class=\"wide\"><table>\n<thead><tr><th></th><th class=\"n\">Before</th><th class=\"n\">After</th></tr></thead>\n<tbody>\n",
    );
    for (name, figure) in rows {
        let (before, after) = (figure(line.before), figure(line.after));
        writeln!(
            text,
            "<tr><td>{name}</td><td class=\"n bad\">{before}</td><td class=\"n good\">{after}</td></tr>"
        )
        .expect("a string grows");
    }
    text + "</tbody>\n</table></div>\n"
}

/// The goodput, or a dash if the test has no flow in this direction.
fn goodput(result: &TestResult, direction: Direction) -> String {
    plot::goodput(match direction {
        Direction::Download => result.summary.download_mbit,
        Direction::Upload => result.summary.upload_mbit,
    })
}

fn letter(result: &TestResult) -> String {
    let grade = Verdict::of(result).grade;
    grade.map_or_else(|| "none".to_owned(), |grade| grade.letter)
}

fn index(jain: Option<f64>) -> String {
    jain.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn a_page_loads_no_other_resource() {
        let (before, after) = (
            example("before", 1200.0, 20.0, 4.0),
            example("after", 3.0, 19.0, 3.8),
        );
        let page = html(&[ComparedLine {
            name: "cable",
            title: "Cable <24/4.4>",
            description: "A cable modem with a large buffer.",
            before: &before,
            after: &after,
            plan_text: "tc qdisc replace dev wan root cake bandwidth 4400kbit\n",
        }]);
        assert!(page.contains("Cable &lt;24/4.4&gt;"));
        assert!(!page.contains("<24/4.4>"));
        for request in ["src=", "@import", "url(", "<script", "<link"] {
            assert!(!page.contains(request), "{request}");
        }
        let without_pictures: Vec<_> = page
            .lines()
            .skip_while(|line| *line != "</style>")
            .filter(|line| line.starts_with("<tr>"))
            .collect();
        insta::assert_snapshot!(without_pictures.join("\n"));
    }
}
