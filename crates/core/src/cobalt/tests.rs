use alloc::vec::Vec;

use super::*;

const MILLISECOND: u64 = 1_000_000;

/// Long after the zero that means "never".
const START: u64 = 10_000 * MILLISECOND;

/// Draws that never let BLUE drop.
struct Lenient;

impl Random for Lenient {
    fn r16(&mut self) -> u16 {
        0
    }

    fn r32(&mut self) -> u32 {
        u32::MAX
    }
}

/// Target 5 ms, interval 100 ms, no rate.
fn params(profile: Profile) -> Params {
    Params::new(5 * MILLISECOND, 100 * MILLISECOND, 0, profile)
}

/// Judges a packet every 20 ms after the start, up to `until` ms, and notes when one is dropped or marked, with `count`.
fn episode(
    cobalt: &mut Cobalt,
    profile: Profile,
    until: u64,
    ecn: bool,
    sojourn: impl Fn(u64) -> u64,
) -> Vec<(u64, Verdict, u32)> {
    (0..=until / 20)
        .map(|step| step * 20)
        .map(|at| {
            let now = START + at * MILLISECOND;
            let verdict = cobalt.judge(
                &params(profile),
                now,
                sojourn(at) * MILLISECOND,
                0,
                || ecn,
                &mut Lenient,
            );
            (at, verdict, cobalt.count())
        })
        .collect()
}

fn drops(judged: &[(u64, Verdict, u32)]) -> Vec<u64> {
    judged
        .iter()
        .filter(|(_, verdict, _)| verdict.drop)
        .map(|(at, ..)| *at)
        .collect()
}

#[test]
fn signals_are_an_interval_over_the_square_root_of_the_count_apart() {
    let mut cobalt = Cobalt::new(Profile::FIXED);
    let steps = (1..=9).map(|count| {
        cobalt.count = count;
        cobalt.update_inverse_sqrt();
        cobalt.control_law(&params(Profile::FIXED), 0)
    });
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [
            99_999_999, 70_710_678, 57_735_026, 49_999_999, 44_721_359, 40_824_829, 37_796_447, 35_355_339,
            33_333_333
        ]
    );
    for (count, root) in [
        (15, 1_108_955_788),
        (16, 1_071_990_595),
        (17, 1_040_347_021),
        (18, 1_011_159_980),
        (19, 984_308_765),
        (20, 959_482_442),
    ] {
        cobalt.count = count;
        cobalt.update_inverse_sqrt();
        assert_eq!(cobalt.inverse_sqrt, root);
    }
}

#[test]
fn the_first_episode_waits_one_interval_unless_the_kernels_defect_is_wanted() {
    let kernel = Profile {
        cobalt_first_episode: true,
        ..Profile::FIXED
    };
    let judged = episode(&mut Cobalt::new(kernel), kernel, 480, false, |_| 20);
    assert_eq!(
        drops(&judged),
        [20, 80, 140, 180, 240, 280, 320, 340, 380, 420, 440, 480]
    );
    assert_eq!(judged.last().unwrap().2, 13);
    let judged = episode(
        &mut Cobalt::new(Profile::FIXED),
        Profile::FIXED,
        480,
        false,
        |_| 20,
    );
    assert_eq!(drops(&judged), [100, 180, 240, 280, 340, 380, 420, 440, 480]);
}

#[test]
fn the_count_of_a_good_queue_falls_as_fast_as_it_rose() {
    let mut cobalt = Cobalt::new(Profile::FIXED);
    let late = |at| if (100..500).contains(&at) { 20 } else { 1 };
    let judged = episode(&mut cobalt, Profile::FIXED, 880, false, late);
    assert_eq!(drops(&judged), [200, 280, 340, 380, 440, 480]);
    let count_at = |at: usize| judged[at / 20].2;
    assert_eq!(count_at(480), 7);
    let unwound = [520, 560, 600, 640, 700, 780, 880].map(count_at);
    assert_eq!(unwound, [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(cobalt.drop_next, START + 980 * MILLISECOND);
}

#[test]
fn an_ecn_packet_is_marked_and_not_dropped() {
    let mut cobalt = Cobalt::new(Profile::FIXED);
    let judged = episode(&mut cobalt, Profile::FIXED, 220, true, |_| 20);
    assert_eq!(drops(&judged), []);
    let marked = judged
        .iter()
        .filter(|(_, verdict, _)| verdict.marked)
        .map(|(at, ..)| *at);
    assert_eq!(marked.collect::<Vec<_>>(), [100, 180]);
}

#[test]
fn after_a_pause_the_count_falls_at_once() {
    for (ago, count, next) in [(500, 0, 100 * MILLISECOND), (50, 2, 20_710_678)] {
        let mut cobalt = Cobalt::new(Profile::FIXED);
        cobalt.count = 3;
        cobalt.update_inverse_sqrt();
        cobalt.drop_next = START - ago * MILLISECOND;
        let verdict = cobalt.judge(
            &params(Profile::FIXED),
            START,
            MILLISECOND,
            0,
            || false,
            &mut Lenient,
        );
        assert!(!verdict.drop);
        assert_eq!((cobalt.count, cobalt.drop_next - START), (count, next));
    }
}

#[test]
fn long_intervals_are_cut_only_by_the_kernels_defect() {
    let gap = |profile| {
        let params = Params::new(5 * MILLISECOND, 1_000_000_000_000, 0, profile);
        let mut cobalt = Cobalt::new(profile);
        cobalt.count = 1;
        cobalt.update_inverse_sqrt();
        cobalt.control_law(&params, 0)
    };
    let kernel = Profile {
        cobalt_interval_32_bits: true,
        ..Profile::FIXED
    };
    assert_eq!(gap(kernel), 3_567_587_327);
    assert_eq!(gap(Profile::FIXED), 999_999_999_767);
}

#[test]
fn slow_lines_may_hold_four_packets_and_downloads_two_per_bulk_flow() {
    let params = Params::new(
        5 * MILLISECOND,
        100 * MILLISECOND,
        10 * MILLISECOND,
        Profile::FIXED,
    );
    let becomes_dropping = |sojourn, bulk_flows| {
        let mut cobalt = Cobalt::new(Profile::FIXED);
        cobalt.judge(
            &params,
            START,
            sojourn * MILLISECOND,
            bulk_flows,
            || false,
            &mut Lenient,
        );
        cobalt.dropping
    };
    assert!(!becomes_dropping(40, 0) && becomes_dropping(41, 0));
    assert!(!becomes_dropping(200, 10) && becomes_dropping(201, 10));
}

#[test]
fn blue_rises_at_overflow_and_falls_when_empty() {
    let params = params(Profile::FIXED);
    let mut cobalt = Cobalt::new(Profile::FIXED);
    let at = |milliseconds: u64| START + milliseconds * MILLISECOND;
    for (after, probability, blue) in [
        (0, 16_777_216, Blue::Awoke),
        (3, 16_777_216, Blue::Unchanged),
        (6, 33_554_432, Blue::Unchanged),
        (12, 50_331_648, Blue::Unchanged),
    ] {
        assert_eq!(cobalt.on_overflow(&params, at(after)), blue);
        assert_eq!(
            (cobalt.drop_probability, cobalt.count, cobalt.drop_next),
            (probability, 1, at(after))
        );
    }
    assert_eq!(cobalt.on_empty(&params, at(13)), Blue::Unchanged);
    assert_eq!(
        (cobalt.count, cobalt.drop_next),
        (0, at(12) + 100 * MILLISECOND - 1)
    );
    for (after, probability) in [(18, 49_283_072), (24, 48_234_496), (130, 47_185_920)] {
        cobalt.on_empty(&params, at(after));
        assert_eq!(cobalt.drop_probability, probability);
    }
    cobalt.drop_probability = BLUE_DECREMENT;
    assert_eq!(cobalt.on_empty(&params, at(200)), Blue::Rested);
}

#[test]
fn blue_drops_even_a_packet_just_marked() {
    struct Harsh;
    impl Random for Harsh {
        fn r16(&mut self) -> u16 {
            0
        }
        fn r32(&mut self) -> u32 {
            0
        }
    }
    let mut cobalt = Cobalt::new(Profile::FIXED);
    cobalt.on_overflow(&params(Profile::FIXED), START);
    let verdict = cobalt.judge(
        &params(Profile::FIXED),
        START + 1,
        20 * MILLISECOND,
        0,
        || true,
        &mut Harsh,
    );
    assert_eq!(
        verdict,
        Verdict {
            drop: true,
            marked: true
        }
    );
}
