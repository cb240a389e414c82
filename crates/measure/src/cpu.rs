//! The load of each processor, from `/proc/stat`.

/// The time of each processor, in the kernel's ticks since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes(Vec<Ticks>);

/// The time of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    total: u64,
    /// Idle time, with the time that it waited for a disk.
    idle: u64,
    softirq: u64,
}

/// Shares of a processor's time between two readings, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The share in which it was not idle.
    pub busy: f64,
    /// The share in soft interrupts, in which the kernel handles packets.
    pub softirq: f64,
}

impl CpuTimes {
    /// Reads the times. `None` if the kernel does not report them.
    pub fn read() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        Some(Self::parse(&text)).filter(|times| !times.0.is_empty())
    }

    /// Parses the lines `cpu0`, `cpu1` and so on (proc(5)). Never panics.
    pub fn parse(text: &str) -> Self {
        let processors = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
            name.parse::<u32>().ok()?;
            let ticks: Vec<u64> = rest.split_whitespace().map_while(|n| n.parse().ok()).collect();
            // user nice system idle iowait irq softirq steal. Guest time comes after these, and is part of user.
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
            Some(Ticks {
                total: ticks.iter().take(8).fold(0, |sum, n| sum.saturating_add(*n)),
                idle: at(3).saturating_add(at(4)),
                softirq: at(6),
            })
        });
        Self(processors.collect())
    }

    /// The shares of each processor since `before`. `None` for a processor whose clock did not advance.
    pub fn since(&self, before: &Self) -> Vec<Option<Share>> {
        let share = |(after, before): (&Ticks, &Ticks)| {
            let total = after.total.saturating_sub(before.total) as f64;
            let part = |ticks: fn(&Ticks) -> u64| ticks(after).saturating_sub(ticks(before)) as f64 / total;
            (total > 0.0).then(|| Share {
                busy: (1.0 - part(|t| t.idle)).clamp(0.0, 1.0),
                softirq: part(|t| t.softirq).clamp(0.0, 1.0),
            })
        };
        self.0.iter().zip(&before.0).map(share).collect()
    }
}

/// The busy share of the busiest processor.
pub fn busiest(before: &CpuTimes, after: &CpuTimes) -> Option<f64> {
    let shares = after.since(before).into_iter().flatten();
    shares.map(|share| share.busy).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_refer_to_the_time_between_two_readings() {
        let before = CpuTimes::parse("cpu  9 9 9 9\ncpu0 0 0 0 100 0 0 0 0 0 0\ncpu1 5 0 0 0\nintr 1\n");
        let after = CpuTimes::parse("cpu  9 9 9 9\ncpu0 30 0 10 140 5 5 10 0 30 0\ncpu1 5 0 0 0\n");
        let shares = after.since(&before);
        assert_eq!(
            shares[0],
            Some(Share {
                busy: 0.55,
                softirq: 0.1
            })
        );
        assert_eq!(shares[1], None);
        assert_eq!(busiest(&before, &after), Some(0.55));
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(CpuTimes::read().is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_read(before in "(cpu[0-9]? ?[0-9 ]{0,60}\n){0,4}", after in "\\PC{0,80}") {
            let _ = CpuTimes::parse(&after).since(&CpuTimes::parse(&before));
        }
    }
}
