//! Load of each processor between two looks.

use std::collections::BTreeMap;
use std::fs;

use super::collect::read;
use super::facts::Processor;

/// The kernel's counters at one moment.
#[derive(Default)]
pub(super) struct Look {
    /// `/proc/stat`
    stat: String,
    /// `/proc/net/softnet_stat`
    softnet: String,
    /// `/proc/PID/stat` of each thread that handles packets.
    threads: Vec<String>,
}

impl Look {
    pub(super) fn now() -> Self {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbered = processes.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
        let states = numbered.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        Self {
            threads: states
                .filter(|stat| PacketThread::parse(stat).is_some())
                .collect(),
            stat: read("/proc/stat"),
            softnet: read("/proc/net/softnet_stat"),
        }
    }

    /// The load of each processor since an earlier look.
    pub(super) fn since(&self, earlier: &Self) -> Vec<Processor> {
        let before = times(&earlier.stat);
        let threads = self.threads_since(earlier);
        let counted = |number: usize, column: usize| {
            let [before, after] = [earlier, self].map(|look| softnet(&look.softnet, number, column));
            after.saturating_sub(before)
        };
        times(&self.stat)
            .into_iter()
            .filter_map(|(number, after)| {
                let before = before.get(&number)?;
                let spent: Vec<u64> = after
                    .iter()
                    .zip(before)
                    .map(|(after, before)| after.saturating_sub(*before))
                    .collect();
                // Columns: user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user time.
                let at = |column: usize| spent.get(column).copied().unwrap_or(0);
                let total = spent
                    .iter()
                    .take(8)
                    .fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
                let percent = |ticks: u64| ticks as f64 * 100.0 / total.max(1) as f64;
                let threads = threads.get(&number).copied().unwrap_or_default();
                Some(Processor {
                    number,
                    idle_percent: if total == 0 {
                        100.0
                    } else {
                        percent(at(3).saturating_add(at(4)))
                    },
                    packets_percent: percent(threads.of_napi.saturating_add(threads.of_ksoftirqd.max(at(6))))
                        .min(100.0),
                    governor: governor(number),
                    overrun: counted(number, 1),
                    squeezed: counted(number, 2),
                })
            })
            .collect()
    }

    fn threads_since(&self, earlier: &Self) -> BTreeMap<usize, Spent> {
        let parsed = |look: &Self| {
            look.threads
                .iter()
                .filter_map(|stat| PacketThread::parse(stat))
                .collect()
        };
        let before: Vec<PacketThread> = parsed(earlier);
        let mut spent = BTreeMap::<usize, Spent>::new();
        for thread in parsed(self) {
            let before = before.iter().find(|before| before.pid == thread.pid);
            let ticks = thread
                .ticks
                .saturating_sub(before.map_or(0, |before| before.ticks));
            let spent = spent.entry(thread.processor).or_default();
            let sum = if thread.is_ksoftirqd {
                &mut spent.of_ksoftirqd
            } else {
                &mut spent.of_napi
            };
            *sum = sum.saturating_add(ticks);
        }
        spent
    }
}

/// Processor time of the threads that handle packets, ticks.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// `/proc/stat` counts it as soft interrupts as well. User Mode Linux counts it as a program's time instead.
    of_ksoftirqd: u64,
    /// Threaded NAPI, which `/proc/stat` counts as system time.
    of_napi: u64,
}

/// A thread that handles packets, from `/proc/PID/stat`.
struct PacketThread {
    pid: u32,
    is_ksoftirqd: bool,
    /// The processor that it last ran on.
    processor: usize,
    ticks: u64,
}

impl PacketThread {
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let is_ksoftirqd = name.starts_with("ksoftirqd/");
        if !is_ksoftirqd && !name.starts_with("napi/") {
            return None;
        }
        // `fields` begins with the third field of proc_pid_stat(5).
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            is_ksoftirqd,
            processor: field(39)? as usize,
            ticks: field(14)?.checked_add(field(15)?)?,
        })
    }
}

/// Ticks of each processor, by column of `/proc/stat`.
fn times(stat: &str) -> BTreeMap<usize, Vec<u64>> {
    stat.lines()
        .filter_map(|line| {
            let (name, times) = line.split_once(' ')?;
            let number = name.strip_prefix("cpu")?.parse().ok()?;
            let times = times.split_whitespace().map_while(|t| t.parse().ok());
            Some((number, times.collect()))
        })
        .collect()
}

/// Reads a column of `/proc/net/softnet_stat`: the second counts packets dropped for a full backlog, the third how
/// often the time or the budget ran out.
fn softnet(text: &str, number: usize, column: usize) -> u64 {
    let counted = |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    text.lines().nth(number).and_then(counted).unwrap_or(0)
}

fn governor(number: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor");
    Some(read(&path).trim().to_owned()).filter(|governor| !governor.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(stat: &str, softnet: &str, threads: &[String]) -> Look {
        Look {
            stat: stat.to_owned(),
            softnet: softnet.to_owned(),
            threads: threads.to_vec(),
        }
    }

    fn thread(pid: u32, name: &str, processor: u32, user: u64, system: u64) -> String {
        let unused = "0 ".repeat(23);
        format!("{pid} ({name}) R 2 0 0 0 -1 69238848 0 0 0 0 {user} {system} {unused}{processor} 0 0 0\n")
    }

    #[test]
    fn processors_are_compared_between_two_looks() {
        let before = look(
            "cpu  1 2 3\ncpu0 100 0 50 800 50 0 100 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n",
            "0 1 00000001\n0 0 0\n",
            &[],
        );
        let after = look(
            "cpu  1 2 3\ncpu0 100 0 60 805 50 0 185 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 9\n",
            "0 a 00000011\n0 0 0\n",
            &[],
        );
        let found = after.since(&before);
        assert_eq!((found[0].idle_percent, found[0].packets_percent), (5.0, 85.0));
        assert_eq!((found[0].overrun, found[0].squeezed), (9, 16));
        assert_eq!(found[1].idle_percent, 100.0);
        assert!(look("garbage", "", &[]).since(&Look::default()).is_empty());
    }

    #[test]
    fn threads_that_handle_packets_count_however_their_time_is_accounted() {
        let before = "cpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n";
        let after = "cpu0 96 0 0 0 0 0 4 0 0 0\ncpu1 0 0 30 10 0 0 60 0 0 0\n";
        let earlier = [
            thread(14, "ksoftirqd/0", 0, 5, 5),
            thread(300, "napi/eth0-(8) 1", 0, 0, 7),
        ];
        let later = [
            thread(14, "ksoftirqd/0", 0, 45, 55),
            thread(20, "ksoftirqd/1", 1, 0, 60),
            // The thread moved to another processor, and counts there.
            thread(300, "napi/eth0-(8) 1", 1, 0, 37),
            thread(301, "kworker/0:1", 0, 0, 500),
        ];
        let found = look(after, "", &later).since(&look(before, "", &earlier));
        let shares: Vec<f64> = found.iter().map(|found| found.packets_percent).collect();
        assert_eq!(shares, [90.0, 90.0]);
    }

    #[test]
    fn damaged_lines_of_threads_are_skipped() {
        for damaged in [
            "",
            "1 (ksoftirqd/0)",
            "1 (ksoftirqd/0) S 2 0",
            "x (napi/a) ",
            ") 1 (",
        ] {
            assert!(PacketThread::parse(damaged).is_none(), "{damaged}");
        }
    }
}
