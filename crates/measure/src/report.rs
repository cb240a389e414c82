//! Web pages of results, each in a single file. Pure.

use std::fmt::Write as _;

use sqm_core::direction::Direction;

use crate::autorate_trace::Recording;
use crate::compare::Difference;
use crate::grade::Verdict;
use crate::plot::{self, Plot, Run};
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

/// A page of any number of tests, with figures, grades, findings and pictures, and of any number of logs of autorate. The page
/// loads no other resource.
pub fn comparison(
    runs: &[Run<'_>],
    differences: &[Difference],
    plots: &[Plot],
    logs: &[&Recording],
) -> String {
    let mut page = head(if runs.is_empty() {
        "Logs of autorate"
    } else {
        "Tests compared"
    });
    if !runs.is_empty() {
        page.push_str(&comparison_table(runs));
        page.push_str(&difference_list(differences));
    }
    let of_logs = plot::autorate::distribution(logs, runs);
    for picture in logs
        .iter()
        .filter_map(|log| plot::autorate::over_time(log))
        .chain(of_logs)
    {
        writeln!(page, "<figure>{picture}</figure>").expect("a string grows");
    }
    let (of_one, of_all): (Vec<Plot>, Vec<Plot>) = plots.iter().partition(|plot| plot.is_of_one());
    for picture in of_all.iter().filter_map(|plot| plot.draw(runs)) {
        writeln!(page, "<figure>{picture}</figure>").expect("a string grows");
    }
    for run in runs {
        let meta = &run.result.meta;
        write!(
            page,
            "<section>\n<h2>{}</h2>\n<p>{} to {}, {}, {}</p>\n<pre>{}</pre>\n",
            escape(run.name),
            escape(&meta.test),
            escape(&meta.host),
            escape(&meta.time),
            escape(&meta.program),
            escape(&Verdict::of(run.result).to_text())
        )
        .expect("a string grows");
        for picture in of_one.iter().filter_map(|plot| plot.draw(&[*run])) {
            writeln!(page, "<figure>{picture}</figure>").expect("a string grows");
        }
        page.push_str("</section>\n");
    }
    page + FOOT
}

fn comparison_table(runs: &[Run<'_>]) -> String {
    let mut text = String::from(
        "<div class=\"wide\"><table>\n<thead><tr><th>Test</th><th class=\"n\">Idle</th><th class=\"n\">Loaded, median</th>\
         <th class=\"n\">95 %</th><th class=\"n\">99 %</th><th class=\"n\">Download</th><th class=\"n\">Upload</th>\
         <th class=\"n\">Probes lost</th><th class=\"n\">Grade</th></tr></thead>\n<tbody>\n",
    );
    for run in runs {
        let s = &run.result.summary;
        let letter = letter(run.result);
        writeln!(
            text,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{} of {}</td><td class=\"n\">{letter}</td></tr>",
            escape(run.name),
            plot::latency(s.idle_ms),
            plot::latency(s.latency_median_ms),
            plot::latency(s.latency_p95_ms),
            plot::latency(s.latency_p99_ms),
            plot::goodput(s.download_mbit),
            plot::goodput(s.upload_mbit),
            s.probes_lost,
            s.probes_sent
        )
        .expect("a string grows");
    }
    text + "</tbody>\n</table></div>\n"
}

fn difference_list(differences: &[Difference]) -> String {
    let mut text = String::new();
    for difference in differences
        .iter()
        .filter(|difference| difference.interval.is_some() || difference.clear)
    {
        writeln!(text, "<li>{}</li>", escape(&difference.to_string())).expect("a string grows");
    }
    if text.is_empty() {
        return text;
    }
    format!("<ul>\n{text}</ul>\n")
}

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
    fn a_comparison_loads_no_other_resource() {
        let (before, after) = (
            example("before", 1200.0, 20.0, 4.0),
            example("after", 3.0, 19.0, 3.8),
        );
        let runs = [
            Run {
                name: "<before>",
                result: &before,
            },
            Run {
                name: "after",
                result: &after,
            },
        ];
        let page = comparison(&runs, &crate::compare::differences(&runs, None), &Plot::ALL, &[]);
        for request in ["src=", "@import", "url(", "<script", "<link", "<before>"] {
            assert!(!page.contains(request), "{request}");
        }
        // Three pictures of both tests. For each test two: over time, and its flows. The tests have no TCP samples.
        assert_eq!(page.matches("<figure>").count(), 3 + 2 * 2);
        assert!(page.contains("&lt;before&gt;") && page.contains("no grade"));
    }

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
