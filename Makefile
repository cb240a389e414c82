# The few commands people type. Each installs what it needs (lab/deps.sh says what, and asks for root only then).

.PHONY: demo test lint lab-kernel flent fuzz

# Measure a bloated line, apply SQM, measure again: demo-out/index.html
demo:
	lab/deps.sh run
	cargo build --release --bin sqm
	target/release/sqm lab demo --out demo-out

# All tests. Builds the lab's virtual-time kernel once, about 10 minutes, cached outside the source tree.
test: lint lab-kernel flent
	cargo test --workspace --no-fail-fast

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

lab-kernel:
	lab/deps.sh build
	lab/build-kernel.sh

# The real Flent, which tests open our files with; about a minute, once.
flent:
	lab/flent.sh

# Each target for a minute; needs a nightly toolchain and `cargo install cargo-fuzz`.
fuzz:
	cd fuzz && for target in $$(cargo fuzz list); do cargo fuzz run $$target -- -max_total_time=60 || exit 1; done
