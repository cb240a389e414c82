//! The environment of nats-server.

/// The variables with which a server of 5,000 routers stays below 450 MB (docs/results/fleet.md). Both are of the Go runtime: from this
/// size on it collects garbage more often instead of taking more memory, and it begins when half as much as is in use has been added.
pub const ENVIRONMENT: [(&str, &str); 2] = [("GOMEMLIMIT", "400MiB"), ("GOGC", "50")];

/// The files that a server may have open. A choice: one for each of 50,000 routers, and some.
const OPEN_FILES: u32 = 65_536;

/// A drop-in for the unit of a systemd service that runs the server.
pub fn systemd_drop_in() -> String {
    let variables = ENVIRONMENT.map(|(name, value)| format!("Environment={name}={value}\n"));
    format!("[Service]\n{}LimitNOFILE={OPEN_FILES}\n", variables.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_in_is_one_section_with_a_line_for_each_setting() {
        let expected = "[Service]\nEnvironment=GOMEMLIMIT=400MiB\nEnvironment=GOGC=50\nLimitNOFILE=65536\n";
        assert_eq!(systemd_drop_in(), expected);
    }
}
