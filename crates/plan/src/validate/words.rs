//! Checks of the words that a section adds to a leaf or to CAKE (`iqdisc_opts`, `eqdisc_opts`), and of the typed options of
//! CAKE that mean the same: what they override, and which of them undo each other or do not do what they seem to.

use std::collections::BTreeMap;

use sqm_core::spec::Qdisc;
use sqm_core::spec::cake::{Cake, Cells, Isolation};
use sqm_core::units::{Nanos, shortened};

use crate::diagnostic::{Finding, Report};
use crate::options;
use crate::plan::Tree;
use crate::settings::{CakeValue, Mechanism};
use crate::side::{DirectionContext, Side};

/// Checks one direction. `base` is its tree without the words, `tree` the one with them.
pub(super) fn check(
    context: DirectionContext<'_>,
    base: Option<&Tree>,
    tree: Option<&Tree>,
    report: &mut Report,
) {
    let checker = Checker {
        context,
        option: options::WORDS.on(context.side).name,
    };
    let leaf = |tree: Option<&Tree>| {
        tree.and_then(|tree| tree.qdiscs.last())
            .map(|leaf| leaf.qdisc.clone())
    };
    match (leaf(base), leaf(tree)) {
        (Some(Qdisc::Cake(base) | Qdisc::CakeMq(base)), Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake))) => {
            let [without, with] = [&base, &cake].map(|cake| Qdisc::Cake(cake.clone()));
            checker.cancelled_words(&without, &with, report);
            checker.missing_units(report);
            checker.cake_overridden(&base, &cake, report);
            checker.cake_in_this_direction(&cake, report);
            checker.cakes_own_rate(&cake, report);
        }
        (Some(base), Some(leaf)) => {
            checker.cancelled_words(&base, &leaf, report);
            checker.missing_units(report);
            checker.leaf_overridden(&base, &leaf, report);
        }
        // A direction without rate has no queues for the words.
        (None, None) if context.settings.gives(checker.option) => {
            let rate = context.side.rate_option(context.settings);
            report.warning(checker.finding(format!("ignored: {rate} is 0, so this direction is not shaped")));
        }
        _ => {}
    }
}

/// A word of a leaf, with the value that follows it.
#[derive(PartialEq, Eq)]
struct Word<'a> {
    keyword: &'a str,
    value: Option<&'a str>,
}

impl Word<'_> {
    /// The word for `tc`.
    fn text(&self) -> String {
        [self.keyword, self.value.unwrap_or_default()].join(" ")
    }

    /// The word for a message.
    fn shown(&self) -> String {
        match self.value {
            Some(value) => format!("{} {}", self.keyword, shortened(value)),
            None => self.keyword.to_owned(),
        }
    }
}

/// The words of a text for a kind of leaf. A word that this kind does not take alone has a value.
fn words<'a>(text: &'a str, kind: &str) -> Vec<Word<'a>> {
    let takes_value = |keyword: &str| Qdisc::parse(&format!("{kind} {keyword}")).is_err();
    let mut rest = text.split_whitespace();
    let mut found = Vec::new();
    while let Some(keyword) = rest.next() {
        let value = takes_value(keyword).then(|| rest.next()).flatten();
        found.push(Word { keyword, value });
    }
    found
}

/// True if the leaf would be another one with `earlier` at its end, but not with `later` after that: all that `earlier` sets,
/// `later` sets again.
fn cancels(base: &Qdisc, leaf: &Qdisc, earlier: &Word<'_>, later: &Word<'_>) -> bool {
    let (earlier, later) = (earlier.text(), later.text());
    let with = |qdisc: &Qdisc, words: &str| {
        let mut changed = qdisc.clone();
        changed.apply(words).ok().map(|()| changed)
    };
    let is_undone = |qdisc| with(qdisc, &format!("{earlier} {later}")) == with(qdisc, &later);
    with(leaf, &earlier).is_some_and(|changed| changed != *leaf) && [base, leaf].into_iter().all(is_undone)
}

struct Checker<'a> {
    context: DirectionContext<'a>,
    /// The option that holds the words.
    option: &'static str,
}

impl Checker<'_> {
    fn text(&self) -> &str {
        &self.context.direction().options
    }

    /// A finding about the words.
    fn finding(&self, message: String) -> Finding {
        self.finding_at(self.option, message)
    }

    fn finding_at(&self, option: &'static str, message: String) -> Finding {
        Finding::at(self.context.settings.line_of(option), message).option(option)
    }

    /// The option that sets a parameter of CAKE: the words if they have one of these, else the typed option.
    fn source(&self, words: &[&str], is_it: impl Fn(CakeValue) -> bool) -> &'static str {
        let has_word = self.text().split_whitespace().any(|word| words.contains(&word));
        let mut typed = self.context.direction().cake.iter();
        match typed.find(|option| is_it(option.value)) {
            Some(typed) if !has_word => typed.name,
            _ => self.option,
        }
    }

    /// Reports each word that a later one undoes. `base` is the leaf without any of the words, `leaf` the one with all of them.
    fn cancelled_words(&self, base: &Qdisc, leaf: &Qdisc, report: &mut Report) {
        let words = words(self.text(), leaf.kind());
        // The last place of each keyword. Only words at these places are compared by what they do: there are few, even in a long text.
        let last: BTreeMap<&str, usize> = (words.iter().enumerate())
            .map(|(at, word)| (word.keyword, at))
            .collect();
        let mut places: Vec<usize> = last.values().copied().collect();
        places.sort_unstable();
        for (at, earlier) in words.iter().enumerate() {
            let later = match last.get(earlier.keyword) {
                // A word that is only repeated changes nothing.
                Some(again) if *again > at => Some(&words[*again]).filter(|later| *later != earlier),
                _ => {
                    let mut after = places.iter().rev().take_while(|place| **place > at);
                    after
                        .find(|place| cancels(base, leaf, earlier, &words[**place]))
                        .map(|place| &words[*place])
                }
            };
            if let Some(later) = later {
                let (earlier, later) = (earlier.shown(), later.shown());
                let message = format!(
                    "'{earlier}' has no effect, because '{later}' comes after it: remove one of the two"
                );
                report.warning(self.finding(message));
            }
        }
    }

    /// `tc` has units of its own for numbers without one, which few people mean.
    fn missing_units(&self, report: &mut Report) {
        /// Less memory than this does not even hold one super-packet of 64 KiB.
        const LEAST_MEMORY: u64 = 1 << 16;

        let mut words = self.text().split_whitespace().peekable();
        while let Some(word) = words.next() {
            let number = words.peek().and_then(|value| value.parse::<u64>().ok());
            let Some(number) = number.filter(|number| *number > 0) else {
                continue;
            };
            let (unit, meant) = match word {
                "rtt" | "target" | "interval" | "ce_threshold" | "tupdate" => ("us", "ms"),
                "bandwidth" => ("bit/s", "kbit"),
                "memlimit" | "memory_limit" if number < LEAST_MEMORY => ("bytes", "mb"),
                _ => continue,
            };
            let message = format!("'{word} {number}' is {number} {unit}, as in tc");
            let meant = format!("{word} {number}{meant}");
            report.warning(self.finding(message).suggest(Some(meant)));
        }
    }

    fn cake_overridden(&self, base: &Cake, cake: &Cake, report: &mut Report) {
        let DirectionContext { settings, side, .. } = self.context;
        let mut warn = |message: String| report.warning(self.finding(message));
        if let Some(rate) = base.bandwidth
            && cake.bandwidth != base.bandwidth
        {
            let option = side.rate_option(settings);
            let to = cake
                .bandwidth
                .map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
            let also = if settings.autorate.is_some() {
                ", and option autorate cannot move it"
            } else {
                ""
            };
            warn(format!("overrides option {option}: {to} instead of {rate}{also}"));
        }
        match self.context.mechanism() {
            Some(Mechanism::Cake) if cake.framing != base.framing => {
                warn(format!(
                    "overrides linklayer, overhead and tcMPU: '{}' instead of '{}'",
                    cake.framing, base.framing
                ));
            }
            Some(Mechanism::TcStab) if cake.framing != base.framing => {
                warn(format!(
                    "'{}' is counted on top of the size table, which counts the framing already",
                    cake.framing
                ));
            }
            _ => {}
        }
        if !cake.framing.from_ip && (cake.framing.cells != Cells::None || cake.framing.mpu > 0) {
            let message = "atm, ptm and mpu without an overhead count from the link header, 14 bytes more on \
                           Ethernet; add 'overhead' with the bytes above IP";
            warn(message.to_owned());
        }
        if self.text().split_whitespace().any(|word| word == "via-ethernet") {
            warn("ignored: 'via-ethernet' has no effect".to_owned());
        }
        for option in &self.context.direction().cake {
            let mut again = cake.clone();
            option.value.apply_to(&mut again);
            if again != *cake {
                warn(format!("overrides option {}", option.name));
            }
        }
    }

    /// Parameters that suit the other direction.
    fn cake_in_this_direction(&self, cake: &Cake, report: &mut Report) {
        let is_download = self.context.is_download();
        if cake.ingress && !is_download {
            let option = self.source(&["ingress"], |value| value == CakeValue::Ingress(true));
            let message = "'ingress' counts packets that the queue drops, because they have used the line already; \
                           in the upload they have not, so that each costs rate for nothing: remove it here";
            report.warning(self.finding_at(option, message.to_owned()));
        }
        let (foreign, own) = match is_download {
            true => (Isolation::DualSrchost, "dual-dsthost"),
            false => (Isolation::DualDsthost, "dual-srchost"),
        };
        if cake.isolation == foreign {
            let words = ["dual-srchost", "dual-dsthost"];
            let option = self.source(&words, |value| matches!(value, CakeValue::Isolation(_)));
            let (word, whom, direction) = match is_download {
                true => (words[0], "senders", "download"),
                false => (words[1], "receivers", "upload"),
            };
            let message = format!(
                "'{word}' shares the {direction} among {whom}, which are hosts of the internet; '{own}' shares it among \
                 the hosts of the home network"
            );
            report.warning(self.finding_at(option, message));
        }
    }

    /// CAKE's own estimate of the rate (`autorate-ingress`).
    fn cakes_own_rate(&self, cake: &Cake, report: &mut Report) {
        if !cake.autorate_ingress {
            return;
        }
        let DirectionContext { settings, side, .. } = self.context;
        let option = self.source(&["autorate-ingress"], |value| {
            value == CakeValue::AutorateIngress(true)
        });
        if side == Side::Egress {
            let remedy = match option {
                "cake_autorate_ingress" => "write ingress_cake_autorate_ingress, for arriving packets alone",
                _ => "remove it here",
            };
            let message = format!(
                "'autorate-ingress' follows arriving traffic and has no use for departing packets: {remedy}"
            );
            report.warning(self.finding_at(option, message));
        }
        if settings.autorate.is_some() {
            let line = settings.line_of("autorate");
            let message = format!(
                "'autorate-ingress' lets CAKE move this rate, and option autorate on line {line} lets the daemon move it: \
                 remove one of the two"
            );
            report.error(self.finding_at(option, message));
        }
    }

    fn leaf_overridden(&self, base: &Qdisc, leaf: &Qdisc, report: &mut Report) {
        let [limit, target, ecn] = [&options::LIMIT, &options::TARGET, &options::ECN]
            .map(|option| option.on(self.context.side).name);
        let ((limit_before, target_before, ecn_before), (limit_now, target_now, ecn_now)) =
            (facts(base), facts(leaf));
        for (option, differs) in [
            (limit, limit_before != limit_now),
            (target, target_before != target_now),
            (ecn, ecn_before != ecn_now),
        ] {
            if differs && self.context.settings.gives(option) {
                report.warning(self.finding(format!("overrides option {option}")));
            }
        }
    }
}

/// Packets or bytes held, delay, and marking of a leaf. A parameter that its kind does not have is equal in all of that kind.
fn facts(qdisc: &Qdisc) -> (Option<u32>, Option<Nanos>, bool) {
    match qdisc {
        Qdisc::FqCodel(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Codel(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Pie(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Sfq(q) => (Some(q.limit), None, false),
        Qdisc::Pfifo(q) | Qdisc::Bfifo(q) | Qdisc::PfifoHeadDrop(q) => (q.limit, None, false),
        _ => (None, None, false),
    }
}
