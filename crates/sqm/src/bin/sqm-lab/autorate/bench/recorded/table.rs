//! The figures of recorded lines as a table.

use super::figures::{Mean, Report, Summary};
use crate::autorate::bench::seeds::Seeds;

/// The table: a row for each line, kind of signals and controller, then a row for each controller over all of them.
pub(super) fn table(report: &Report, seeds: &Seeds) -> String {
    let lines = report.means.iter().map(|mean| mean.pair.line.chars().count());
    let width = lines.max().unwrap_or(0).max(13);
    let mut text = format!("means over {seeds}\n");
    text += &format!(
        "{:width$} signals  controller      >30 ms      p95      down        up        U  false cuts\n",
        "line"
    );
    text += &format!(
        "{:width$}                              %       ms        MB        MB                 per h\n",
        ""
    );
    for mean in &report.means {
        text += &row(mean, width);
    }
    text += &format!(
        "\n{:width$}  mean U  above cake-autorate  below oracle  worst difference from cake-autorate\n",
        "controller"
    );
    for summary in &report.controllers {
        text += &total(summary, width);
    }
    text
}

fn row(mean: &Mean, width: usize) -> String {
    let figures = &mean.figures;
    format!(
        "{:width$} {:8} {:14} {:7.2} {:8.1} {:9.1} {:9.1} {:8.3} {:11.0}\n",
        mean.pair.line,
        mean.pair.signals,
        mean.controller,
        figures.above_30_ms_percent,
        figures.delay_p95_ms,
        figures.delivered_down_mbytes,
        figures.delivered_up_mbytes,
        figures.utility,
        figures.false_cuts_per_hour,
    )
}

fn total(summary: &Summary, width: usize) -> String {
    let against = summary.against_cake_autorate.as_ref();
    let above = against.map(|against| format!("in {} of {}", against.better_pairs, summary.pairs));
    let worst = against.map(|against| {
        let pair = &against.worst;
        format!(
            "{:+.3} ({}, {})",
            against.worst_difference, pair.line, pair.signals
        )
    });
    let below = summary.mean_below_oracle.map(|gap| format!("{gap:.3}"));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{:width$} {:7.3} {:>20} {:>13}  {}\n",
        summary.controller,
        summary.mean_utility,
        or_dash(above),
        or_dash(below),
        or_dash(worst),
    )
}
