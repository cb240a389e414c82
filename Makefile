# The commands that people type. Each installs the Debian packages that it needs and names them first (lab/deps.sh); only that
# needs root.

.PHONY: check demo demo-fleet size test test-programs lab-suites browser page-suites page-lab-suites other-suites nightly deny lint lab-packages lab-kernel flent nats fuzz web test-web test-web-lab test-api deb test-deb tarball router router-memory test-mips check-32-bit

# Measure a bloated line, apply SQM, measure again: demo-out/index.html
demo:
	lab/deps.sh run
	cargo build --release --bin sqm --bin sqm-lab
	$${CARGO_TARGET_DIR:-target}/release/sqm-lab demo --out demo-out

# Twenty virtual routers under one hub, a bad roll-out and a good one, in virtual time: demo-out/fleet
demo-fleet: lab-kernel nats
	cargo build --release --bin sqm --bin sqm-lab
	$${CARGO_TARGET_DIR:-target}/release/sqm-lab fleet-demo --out demo-out/fleet

# Format, lints and unit tests, for before each commit: minutes.
check: export CARGO_INCREMENTAL = 0
check: lint
	cargo test --workspace --lib --exclude sqm-core --exclude sqm-sim

# All tests, without the lints, which compile everything once more. Builds the lab's virtual-time kernel once, about 10 minutes, cached
# outside the source tree. The page is tested while the test programs are compiled. Then all other suites run at the same time: a guest
# of the lab uses at most one processor, and the page on the lab's router, which is tested in real time because of the browser, mostly
# waits for the line.
test: export CARGO_INCREMENTAL = 0
test:
	$(MAKE) --keep-going --jobs=4 page-suites page-lab-suites lab-suites other-suites

# The lab's program comes last: before the others it would wait alone for the crates that it needs, on one processor.
test-programs: lab-packages web
	cargo test --workspace --no-run
	cargo test -p sqm --test lab --no-run

# The lab takes the processor time that the others leave: in virtual time a slow machine changes nothing, and two guests at a time leave
# no processor idle when the others have ended.
lab-suites: test-programs lab-kernel nats
	nice -n 5 cargo test -p sqm --test lab

browser:
	lab/deps.sh browser

page-suites: web browser
	npm --prefix web test

page-lab-suites: test-programs lab-kernel browser
	npm --prefix web run test:lab

# Twice as many tests at a time as there are processors in CI: many of them wait in real time.
other-suites: export RUST_TEST_THREADS = 4
other-suites: test-programs flent nats
	cargo test --workspace --no-fail-fast

# Every test of the lab, and those that take too long for every change: each setup script on each line, each change from one
# configuration to another, tune on each line, each fault at each step.
nightly: lab-kernel flent deny
	lab/deps.sh shells
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
	$(MAKE) check-32-bit
	RUSTFLAGS="--cfg fuzzing" cargo check --manifest-path fuzz/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}/fuzz-check
	SQM_NIGHTLY=1 cargo test -p sqm --test compare --test daemon --test hostile --test web --test writers -- --nocapture
	SQM_NIGHTLY=1 cargo test -p sqm-configuration -p sqm-sim -- --nocapture
	SQM_NIGHTLY=1 cargo test -p sqm-measure --lib --test real_flent
	SQM_NIGHTLY=1 cargo test -p sqm-plan --test memory
	cargo test -p sqm --test nightly -- --nocapture

# Licences, sources and duplicate versions of the dependencies; and known vulnerabilities, if their database can be fetched.
# Installs cargo-deny.
deny:
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check licenses bans sources
	@if cargo deny fetch db; then cargo deny --offline check advisories; \
	else echo "deny: cannot fetch the database of vulnerabilities: dependencies were NOT checked for them" >&2; fi

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p sqm --test lab --test nightly -- -D warnings

lab-packages:
	lab/deps.sh build

lab-kernel: lab-packages
	lab/build-kernel.sh

# The real Flent, with which tests open our files; about a minute, once.
flent:
	lab/flent.sh

# The servers with which the fleet is tested: Debian's and a current one, built once in about 2 minutes and cached.
nats:
	lab/nats-server.sh >/dev/null

# The page, in web/dist, from which a build packs it into the program.
web:
	lab/deps.sh web
	npm --prefix web ci --no-audit --no-fund
	npm --prefix web run build

# Tests of the page in Chromium, about a minute; pictures in web/test-out/.
test-web: export SQM_PICTURES = 1
test-web: page-suites

# Tests of the page against the program on the lab's router: a browser makes changes, and the kernel and tc show their effect.
test-web-lab: export SQM_PICTURES = 1
test-web-lab: web lab-kernel browser
	cargo build -p sqm
	npm --prefix web run test:lab

# Each fuzz target for a minute. Installs cargo-fuzz; no nightly toolchain is needed.
fuzz:
	lab/deps.sh fuzz
	fuzz/run 60
	SQM_REQUESTS=20000 cargo test -p sqm --test daemon random_requests

# Random requests to the page's server, made from docs/openapi.yaml, for five minutes (schemathesis from PyPI, in its own folder).
# Nightly.
test-api:
	cargo build -p sqm
	crates/sqm/tests/web/schemathesis.sh $${CARGO_TARGET_DIR:-target}/debug/sqm

# The Debian package, in deb-out/.
deb: web
	cargo build --release --bin sqm --bin sqm-lab
	packaging/debian/build.sh $${CARGO_TARGET_DIR:-target}/release/sqm deb-out

# A statically linked program with an install script, for systems without a package, in tarball-out/.
tarball: web
	lab/deps.sh tarball
	rustup target add $$(uname -m)-unknown-linux-musl
	cargo build --release --bin sqm --target $$(uname -m)-unknown-linux-musl
	packaging/tarball/build.sh $${CARGO_TARGET_DIR:-target}/$$(uname -m)-unknown-linux-musl/release/sqm tarball-out

# The program for a router, static and optimised for size, in target/openwrt/: `make router TARGET=mipsel-unknown-linux-musl`.
# With FEATURES=router,fleet it is also a router of a fleet, in target/openwrt-fleet/.
router:
	lab/deps.sh router
	packaging/openwrt/build-router.sh $(or $(TARGET),$$(uname -m)-unknown-linux-musl) $(FEATURES)

# The daemon of that program takes at most 4 MB of memory with one line, and in a fleet at most 1 MB more of anonymous memory. Boots
# the lab.
router-memory: lab-kernel nats
	$(MAKE) router TARGET=$$(uname -m)-unknown-linux-musl
	$(MAKE) router TARGET=$$(uname -m)-unknown-linux-musl FEATURES=router,fleet
	cargo build -p sqm --bin sqm --bin sqm-lab
	for folder in openwrt openwrt-fleet; do \
		bench/memory.sh $${CARGO_TARGET_DIR:-target}/$$folder/$$(uname -m)-unknown-linux-musl/router/sqm $${CARGO_TARGET_DIR:-target}/debug/sqm-lab || exit; done

# That program for MIPS, big and little endian, under qemu's user emulation; needs root. Nightly.
test-mips:
	lab/deps.sh mips
	$(MAKE) router TARGET=mips-unknown-linux-musl
	$(MAKE) router TARGET=mipsel-unknown-linux-musl
	cargo build -p sqm --bin sqm
	packaging/openwrt/test-mips.sh $${CARGO_TARGET_DIR:-target}/debug/sqm $${CARGO_TARGET_DIR:-target}/openwrt

# The program for routers, with and without its features, compiles for 32 bits without 64-bit atomics. A part of nightly.
check-32-bit:
	packaging/openwrt/check-32-bit.sh "" router

# The stripped sizes of the whole program and of the one for routers, each without and with the feature `fleet`, and of one without any
# feature, which only shapes. Fails if the fleet adds more than 2 MB.
size: web
	cargo build --release --bin sqm
	cargo build --release --bin sqm --no-default-features --features png --target-dir $${CARGO_TARGET_DIR:-target}/without-fleet
	cargo build --release --bin sqm --no-default-features --target-dir $${CARGO_TARGET_DIR:-target}/shape
	$(MAKE) router
	$(MAKE) router FEATURES=router,fleet
	bench/size.sh

# Boots a clean Debian 12 on the lab kernel, installs the package and removes it; needs root and debootstrap. Nightly.
test-deb: deb lab-kernel
	lab/deps.sh deb
	packaging/debian/test.sh deb-out/sqm_*.deb
