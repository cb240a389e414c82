//! The page of any number of tests and logs of autorate.

use std::fmt::Write as _;

use super::{FOOT, head, letter};
use crate::autorate_trace::Recording;
use crate::compare::Difference;
use crate::grade::Verdict;
use crate::plot::{self, Plot, Run, Sheet};
use crate::svg::escape;

/// With more tests than this the details of each are folded at first. A choice: two fit on a screen or two.
const MOST_OPEN: usize = 2;

/// A page of any number of tests, with figures, grades, findings and pictures, and of any number of logs of autorate. Details fold
/// without a script, and are all printed. The page loads no other resource.
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
    let (of_one, of_all): (Vec<Plot>, Vec<Plot>) = plots.iter().partition(|plot| plot.is_of_one());
    if !runs.is_empty() {
        page.push_str(&contents(runs));
        page.push_str("<section id=\"figures\">\n<h2>Figures</h2>\n");
        page.push_str(&comparison_table(runs));
        page.push_str(&difference_list(differences));
        page.push_str("</section>\n");
    }
    for picture in logs.iter().filter_map(|log| plot::autorate::over_time(log)) {
        writeln!(page, "<figure>{picture}</figure>").expect("a string grows");
    }
    if let Some(picture) = plot::autorate::distribution(logs, runs) {
        writeln!(page, "<figure>{picture}</figure>").expect("a string grows");
    }
    let pictures: String = of_all.iter().map(|plot| pictures(*plot, runs)).collect();
    if !pictures.is_empty() {
        write!(
            page,
            "<section id=\"pictures\">\n<h2>Pictures of all tests</h2>\n\
             <details open><summary>Distributions and rates, all tests in one picture</summary>\n{pictures}</details>\n</section>\n"
        )
        .expect("a string grows");
    }
    for (number, run) in (1..).zip(runs) {
        page.push_str(&test(number, run, &of_one, runs.len() <= MOST_OPEN));
    }
    page + FOOT
}

/// The list of the page's parts, with the grade of each test.
fn contents(runs: &[Run<'_>]) -> String {
    let mut text = String::from("<nav aria-label=\"Contents\">\n<ol>\n");
    for (number, run) in (1..).zip(runs) {
        writeln!(
            text,
            "<li><a href=\"#test-{number}\">{}</a> <b>{}</b></li>",
            escape(run.name),
            grade_words(run)
        )
        .expect("a string grows");
    }
    text + "</ol>\n<p><a href=\"#figures\">Figures</a> \u{b7} <a href=\"#pictures\">Pictures of all tests</a></p>\n</nav>\n"
}

fn grade_words(run: &Run<'_>) -> String {
    match Verdict::of(run.result).grade {
        Some(grade) => format!("grade {}", grade.letter),
        None => "no grade".to_owned(),
    }
}

/// The part of one test: its heading, and its details, which fold.
fn test(number: usize, run: &Run<'_>, plots: &[Plot], is_open: bool) -> String {
    let meta = &run.result.meta;
    let verdict = Verdict::of(run.result);
    let sentence = verdict.grade.as_ref().map(|grade| grade.sentence.clone());
    let sentence = sentence.map_or_else(String::new, |text| format!("<p>{}.</p>\n", escape(&text)));
    let pictures: String = plots.iter().map(|plot| pictures(*plot, &[*run])).collect();
    format!(
        "<section id=\"test-{number}\">\n<h2>{}: {}</h2>\n{sentence}<p class=\"lead\">{} to {}, {}, {}</p>\n\
         <details{}><summary>Findings and pictures</summary>\n<pre>{}</pre>\n{pictures}</details>\n</section>\n",
        escape(run.name),
        grade_words(run),
        escape(&meta.test),
        escape(&meta.host),
        escape(&meta.time),
        escape(&meta.program),
        if is_open { " open" } else { "" },
        escape(&verdict.to_text()),
    )
}

/// A picture for large screens and paper, and one for phones, of which the style sheet shows one. Empty if there is nothing to draw.
fn pictures(plot: Plot, runs: &[Run<'_>]) -> String {
    let drawn = [("wide-screen", Sheet::Wide), ("phone", Sheet::Narrow)];
    drawn
        .into_iter()
        .filter_map(|(class, sheet)| Some((class, plot.draw(runs, sheet)?)))
        .map(|(class, picture)| format!("<figure class=\"{class}\">{picture}</figure>\n"))
        .collect()
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
        for class in ["wide-screen", "phone"] {
            let figure = format!("<figure class=\"{class}\">");
            assert_eq!(page.matches(&figure).count(), 3 + 2 * 2, "{class}");
        }
        assert!(page.contains("&lt;before&gt;") && page.contains("no grade"));
    }

    #[test]
    fn six_tests_have_a_contents_list_with_grades_and_fold() {
        let results: Vec<_> = (0..6)
            .map(|n| example(&format!("test {n}"), f64::from(n) * 80.0 + 1.0, 20.0, 4.0))
            .collect();
        let names: Vec<String> = (0..6).map(|n| format!("test {n}")).collect();
        let runs: Vec<_> = results
            .iter()
            .zip(&names)
            .map(|(result, name)| Run { name, result })
            .collect();
        let page = comparison(&runs, &[], &Plot::ALL, &[]);
        let contents = page.split("<nav").nth(1).unwrap().split("</nav>").next().unwrap();
        assert_eq!(contents.matches("<li>").count(), 6);
        for (number, run) in (1..).zip(&runs) {
            let line = format!(
                "<a href=\"#test-{number}\">{}</a> <b>{}</b>",
                run.name,
                grade_words(run)
            );
            assert!(contents.contains(&line), "{contents}");
            assert_eq!(page.matches(&format!("id=\"test-{number}\"")).count(), 1);
        }
        // Those of the single tests are closed, that of all tests is open.
        assert_eq!(page.matches("<details>").count(), 6);
        assert_eq!(page.matches("<details open>").count(), 1);
        assert!(!page.contains("<script"));
        // Two tests are open at once.
        let page = comparison(&runs[..2], &[], &Plot::ALL, &[]);
        assert_eq!(page.matches("<details open>").count(), 3);
    }
}
