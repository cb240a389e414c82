//! Flent's names for tests and their series, so that the same thing has one name in either program. Pure.

use crate::result::{Direction, Settings};

/// Code points of the flows of `rrul`, in their order: best effort, background, CS5, expedited forwarding.
pub const RRUL_DSCP: [u8; 4] = [0, 8, 40, 46];

/// The test in Flent's collection whose series fit these flows.
pub fn test(settings: &Settings) -> &'static str {
    match (settings.down, settings.up) {
        (4, 4) if settings.dscp == RRUL_DSCP => "rrul",
        (4, 4) if settings.dscp == [0] => "rrul_be",
        (1, 1) => "tcp_bidirectional",
        (1, 0) => "tcp_download",
        (0, 1) => "tcp_upload",
        (_, 0) => "tcp_ndown",
        (0, _) => "tcp_nup",
        _ => "rrul_be_nflows",
    }
}

/// Name of the flow with this index, downloads counted first.
pub fn flow(settings: &Settings, index: u32) -> String {
    let (direction, index) = match index.checked_sub(settings.down) {
        None => (Direction::Down, index),
        Some(index) => (Direction::Up, index),
    };
    let way = match direction {
        Direction::Down => "TCP download",
        Direction::Up => "TCP upload",
    };
    match test(settings) {
        "rrul" => format!("{way} {}", ["BE", "BK", "CS5", "EF"][index as usize % 4]),
        "rrul_be" if index == 0 => format!("{way} BE"),
        "rrul_be" => format!("{way} BE{}", index + 1),
        "tcp_bidirectional" | "tcp_download" | "tcp_upload" => way.to_owned(),
        "rrul_be_nflows" => format!("{way} BE::{}", index + 1),
        _ => format!("{way}::{}", index + 1),
    }
}

/// Name of the series of unmarked UDP probes.
pub fn probes(settings: &Settings) -> &'static str {
    match test(settings) {
        "rrul_be" => "Ping (ms) UDP BE1",
        _ => "Ping (ms) UDP BE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(down: u32, up: u32, dscp: &[u8]) -> (&'static str, Vec<String>) {
        let settings = Settings {
            down,
            up,
            dscp: dscp.to_vec(),
            ..Settings::default()
        };
        let flows = (0..down + up).map(|index| flow(&settings, index)).collect();
        (test(&settings), flows)
    }

    #[test]
    fn flows_are_named_as_in_flent() {
        let (test, flows) = names(4, 4, &RRUL_DSCP);
        assert_eq!(test, "rrul");
        assert_eq!(flows[1], "TCP download BK");
        assert_eq!(flows[7], "TCP upload EF");
        let (test, flows) = names(4, 4, &[0]);
        assert_eq!(test, "rrul_be");
        assert_eq!(
            (flows[0].as_str(), flows[5].as_str()),
            ("TCP download BE", "TCP upload BE2")
        );
        assert_eq!(
            names(1, 0, &[0]),
            ("tcp_download", vec!["TCP download".to_owned()])
        );
        assert_eq!(names(0, 2, &[0]).1[1], "TCP upload::2");
        let (test, flows) = names(8, 2, &[46]);
        assert_eq!(test, "rrul_be_nflows");
        assert_eq!(flows[9], "TCP upload BE::2");
    }
}
