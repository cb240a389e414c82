//! The figures of one seed, as a table.

use std::fmt::Write as _;

use sqm_sim::autorate_bench::Contender;

use super::SignalsArg;
use super::figures::{Run, Sum, percent_more, slowest};

/// The table for one kind of signals. Each trace has a row for sqm, for cake-autorate, for the controller that knows
/// the true capacity, and for the unshaped line.
pub(super) fn table(signals: SignalsArg, runs: &[Run]) -> String {
    let mut text = format!("signals: {}\n", signals.name());
    text += "trace        controller      >30 ms  p95 load  delivered  use down/up  false cuts  fall s  rise s  probes\n";
    text += "                                  %        ms         MB            %      per h                    per s\n";
    for trace in runs.chunks(Contender::ALL.len()) {
        for run in trace {
            let use_both = format!(
                "{:.0}/{:.0}",
                run.utilisation_down_percent, run.utilisation_up_percent
            );
            writeln!(
                text,
                "{:12} {:14} {:7.2} {:9.1} {:10.1} {:>12} {:>11.0} {:>7} {:>7} {:>7.2}",
                run.trace,
                run.controller,
                run.above_30_ms_percent,
                run.loaded_delay_p95_ms,
                run.delivered_bytes() as f64 / 1e6,
                use_both,
                run.false_cuts_per_hour,
                slowest(run.falls.iter()),
                slowest(run.rises.iter()),
                run.probes_per_second,
            )
            .expect("a string takes everything");
        }
        if let [ours, theirs, ..] = trace
            && ours.varies
        {
            let time = percent_more(ours.above_30_ms_percent, theirs.above_30_ms_percent);
            let bytes = percent_more(ours.delivered_bytes() as f64, theirs.delivered_bytes() as f64);
            writeln!(
                text,
                "{:12} {:14} {time:>+6.0} % {bytes:>+19.1} %",
                "", "difference"
            )
            .expect("a string takes everything");
        }
    }
    text
}

/// The last line of a table, over all varying lines.
pub(super) fn in_sum(sum: Option<&Sum>) -> String {
    let text = sum.map(|sum| {
        format!(
            "all lines that vary, in total: {:.0} % less time above 30 ms, {:+.1} % bytes\n",
            sum.less_time_above_30_ms_percent, sum.more_bytes_percent
        )
    });
    text.unwrap_or_default() + "\n"
}
