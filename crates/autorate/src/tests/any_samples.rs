//! Any sequence of samples.

use proptest::prelude::*;

use super::*;
use crate::cake_autorate::CakeAutorate;

fn signal() -> impl Strategy<Value = Signal> {
    let nanos = || prop_oneof![0..100_000_000u64, any::<u64>()];
    let near =
        || prop_oneof![0..10_000_000_000u64, any::<u64>()].prop_map(|n| Instant(START.0.wrapping_add(n)));
    let signed = || prop_oneof![-100_000_000..100_000_000i64, any::<i64>()];
    prop_oneof![
        (0..8u16, near(), nanos()).prop_map(|(reflector, sent, rtt)| Signal::Echo {
            reflector,
            sent,
            rtt: Nanos(rtt)
        }),
        (any::<u16>(), near(), signed(), signed()).prop_map(|(reflector, sent, download, upload)| {
            Signal::OneWay {
                reflector: reflector % 50,
                sent,
                download,
                upload,
            }
        }),
        (0..8u16, near()).prop_map(|(reflector, sent)| Signal::Waiting { reflector, sent }),
        (0..8u16).prop_map(|reflector| Signal::Lost { reflector }),
        (any::<u64>(), near(), signed(), proptest::option::of(signed())).prop_map(
            |(flow, sent, download, upload)| Signal::Flow {
                flow: flow % 100,
                sent,
                download,
                upload,
            }
        ),
        (any::<bool>(), nanos(), nanos()).prop_map(|(is_download, bytes, span)| Signal::Traffic {
            direction: if is_download {
                Direction::Download
            } else {
                Direction::Upload
            },
            bytes: Bytes(bytes),
            span: Nanos(span)
        }),
        any::<u8>().prop_map(Signal::Hour),
    ]
}

fn optional_rate() -> impl Strategy<Value = Option<Rate>> {
    let rate = prop_oneof![0..100_000_000u64, any::<u64>()];
    proptest::option::of(rate.prop_map(Rate::from_bits_per_sec))
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    (optional_rate(), optional_rate(), optional_rate()).prop_map(|(min, base, max)| Bounds { min, base, max })
}

/// Steps in time: mostly small, sometimes huge, sometimes backward.
fn steps() -> impl Strategy<Value = Vec<(i64, Vec<(u64, Signal)>)>> {
    let step =
        prop_oneof![8 => 0..100_000_000i64, 1 => any::<i64>(), 1 => -3_600_000_000_000..3_600_000_000_000i64];
    let samples = proptest::collection::vec((0..1_000_000_000u64, signal()), 0..6);
    proptest::collection::vec((step, samples), 0..200)
}

proptest! {
    /// Whatever the samples, no controller panics, and rates are within the bounds if these do not contradict each other.
    #[test]
    fn any_sequence_of_samples_leads_to_rates_within_the_bounds(
        download in any_bounds(),
        upload in any_bounds(),
        steps in steps(),
    ) {
        let both = PerDirection { download, upload };
        let mut ours = Autorate::new(START, both, PerDirection::default());
        let mut theirs = CakeAutorate::new(START, both);
        let mut now = START;
        for (step, samples) in steps {
            now = Instant(now.0.saturating_add_signed(step));
            let samples: Vec<_> = samples
                .into_iter()
                .map(|(age, signal)| Sample { at: Instant(now.0.saturating_sub(age)), signal })
                .collect();
            theirs.step(now, &samples);
            let decision = ours.step(now, &samples);
            for direction in Direction::BOTH {
                let rate = decision.rates[direction].rate;
                let Bounds { min, max, .. } = both[direction];
                prop_assert!(max.is_none_or(|max| rate <= max), "{rate} above {max:?}");
                prop_assert!(min.is_none_or(|min| rate >= min.min(max.unwrap_or(min)) || rate >= Rate::from_bits_per_sec(1 << 50)));
            }
        }
    }

    /// Time that runs backward counts as time that stands still.
    #[test]
    fn a_step_back_in_time_counts_as_no_time(steps in steps(), back in 1..3_600_000_000_000u64) {
        let mut straight = Autorate::new(START, PerDirection::default(), PerDirection::default());
        let mut now = START;
        for (step, samples) in steps {
            now = Instant(now.0.saturating_add(step.unsigned_abs()));
            let samples: Vec<_> = samples.into_iter().map(|(_, signal)| Sample { at: now, signal }).collect();
            straight.step(now, &samples);
            let mut jumped = straight.clone();
            let expected = straight.step(now, &[]);
            prop_assert_eq!(jumped.step(Instant(now.0.saturating_sub(back)), &[]), expected);
        }
    }
}
