# One entry for everything. `make` alone prints what there is.

SHELL := /bin/bash
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

# Ledgers and definitions in memory, which tests of the runner stand on.
TEST_FEATURES := --features tidegate-runner/test-util,tidegate-runner/postgres

PREFIX ?= /usr/local
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/tidegate

.DEFAULT_GOAL := help
.PHONY: help setup run build install test lint unit e2e fmt fuzz-smoke deny torture schemes-crosscheck quota-soak bench-ingest bench-ingest-history bench-egress bench-quota bench-runner clean

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

setup: ## install what the build and the tests need (Debian packages, by name)
	@deploy/setup.sh build

run: setup build ## build, then start the appliance with the example configuration, and a provider for it to call
	$(CARGO) build --release --locked -p tidegate-tests --bin echo-provider
	@TIDEGATE=$(BINARY) deploy/run-example.sh

build: setup ## build the appliance (release)
	$(CARGO) build --release --locked

# Not from `build`: whoever installs may be root, and root has no toolchain.
install: ## put the binary, its unit for systemd and completions under PREFIX (build first; PREFIX=/usr/local DESTDIR=)
	@test -x $(BINARY) || { echo "$(BINARY) is not there: \`make build\` first, as yourself" >&2; exit 1; }
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/tidegate
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/bin|$(PREFIX)/bin|' deploy/systemd/tidegate.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/tidegate.service
	install -D -m 0644 deploy/systemd/tidegate.sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/tidegate.conf
	install -D -m 0644 deploy/example/tidegate.toml $(DESTDIR)$(PREFIX)/share/doc/tidegate/example/tidegate.toml
	install -D -m 0644 deploy/example/tenants/acme.toml $(DESTDIR)$(PREFIX)/share/doc/tidegate/example/tenants/acme.toml
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(BINARY) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/tidegate
	$(BINARY) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_tidegate
	$(BINARY) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/tidegate.fish

test: ## all set-up, formatting, lints and every test
	@deploy/setup.sh build test
	$(MAKE) --no-print-directory lint unit

fmt: ## format everything
	$(CARGO) fmt --all

lint: ## formatting and lints, as CI does
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(TEST_FEATURES) -- -D warnings

unit: ## unit, property, corpus and end-to-end tests
	$(CARGO) build --locked
	tests/tools/telling-skipped.sh $(CARGO) test --workspace --locked $(TEST_FEATURES)

e2e: ## the end-to-end scenarios alone, against a debug build
	@deploy/setup.sh build test
	$(CARGO) build --locked
	tests/tools/telling-skipped.sh $(CARGO) test --locked -p tidegate-tests

torture: ## 500 kills, 200 power cuts of each kind, 600 of a virtual machine, and every scenario that needs root; an hour
	@deploy/setup.sh build test torture
	$(CARGO) build --locked
	kernel="$$(tests/tools/guest-kernel.sh $(or $(CARGO_TARGET_DIR),target)/guest)" && \
	  TIDEGATE_TESTS_COMPLETE=1 TIDEGATE_KILLS=$${TIDEGATE_KILLS:-500} TIDEGATE_CUTS=$${TIDEGATE_CUTS:-200} \
	  TIDEGATE_GUEST_KERNEL="$$kernel" TIDEGATE_GUEST_CUTS=$${TIDEGATE_GUEST_CUTS:-500} TIDEGATE_GARBAGE=100000 \
	  $(CARGO) test --locked -p tidegate-tests --test durability --test bounds -- --nocapture --test-threads=1

schemes-crosscheck: ## presets beside the official SDKs, both ways; fetches some sixty packages (DELIVERIES=200; ONLY=stripe writes no table)
	@deploy/setup.sh build crosscheck
	$(CARGO) build --locked
	python3 -B tests/crosscheck/run.py --binary $(or $(CARGO_TARGET_DIR),target)/debug/tidegate \
	  --work $(or $(CARGO_TARGET_DIR),target)/crosscheck --deliveries $(or $(DELIVERIES),200) \
	  $(if $(ONLY),--only $(ONLY),--report docs/schemes-crosscheck.md) $(if $(SEED),--seed $(SEED))

quota-soak: ## quota end to end, at length: long windows by clocks that are off, faults of Redis; a quarter of an hour (TIMES=…)
	@deploy/setup.sh build test
	$(CARGO) build --locked
	TIDEGATE_TESTS_COMPLETE=1 TIDEGATE_QUOTA_TIMES=$(or $(TIMES),5) \
	  $(CARGO) test --locked -p tidegate-tests --test quota -- --nocapture --test-threads=1

fuzz-smoke: ## build the fuzz targets and run each for ten seconds
	@deploy/setup.sh build
	fuzz/smoke.sh 10

deny: ## licences, bans and sources of the dependencies (builds cargo-deny if it is not there)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked --quiet cargo-deny
	$(CARGO) deny check bans licenses sources

bench-ingest: setup ## ingress beside bare Pingora and its peers, and with 100,000 endpoints (SECONDS=5 ROUNDS=1: quick)
	@deploy/setup.sh bench
	$(CARGO) build --release --locked -p tidegate -p tidegate-bench
	$(BENCH_INGEST) compare $(if $(WITHOUT),--without $(WITHOUT))
	$(BENCH_INGEST) endpoints

bench-ingest-history: setup ## ingress on an empty log and on one of 10 million events (EVENTS=…; needs some 22 GB)
	$(CARGO) build --release --locked -p tidegate -p tidegate-bench
	$(BENCH_INGEST) history $(if $(EVENTS),--events $(EVENTS))

bench-egress: setup ## egress beside Squid, Envoy, HAProxy and no proxy (SECONDS=2 ROUNDS=1: quick; ONLY=absolute,governed)
	@deploy/setup.sh bench-egress
	$(CARGO) build --release --locked -p tidegate -p tidegate-bench
	$(or $(CARGO_TARGET_DIR),target)/release/bench-egress compare --seconds $(or $(SECONDS),5) --rounds $(or $(ROUNDS),3) \
	  $(if $(WITHOUT),--without $(WITHOUT)) $(if $(ONLY),--only $(ONLY))

bench-quota: setup ## quota: held blocks, memory, Redis beside a question for each call, a simulated fleet (SECONDS=3 ROUNDS=1 SEEDS=2: quick; ONLY=held,fleet)
	@deploy/setup.sh bench-quota
	$(CARGO) build --release --locked -p tidegate-bench --bin bench-quota
	$(or $(CARGO_TARGET_DIR),target)/release/bench-quota run --seconds $(or $(SECONDS),10) --rounds $(or $(ROUNDS),3) \
	  --seeds $(or $(SEEDS),5) $(if $(ONLY),--only $(ONLY))

bench-runner: setup ## the runner: steps, end to end, beside Restate, parked runs, neighbours, history (SECONDS=3 ROUNDS=1: quick; ONLY=noop,parked; HISTORY=10000000)
	@deploy/setup.sh bench bench-egress
	$(CARGO) build --release --locked -p tidegate -p tidegate-bench
	$(or $(CARGO_TARGET_DIR),target)/release/bench-runner run --seconds $(or $(SECONDS),10) --rounds $(or $(ROUNDS),3) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(HISTORY),--history $(HISTORY))

BENCH_INGEST = $(or $(CARGO_TARGET_DIR),target)/release/bench-ingest --seconds $(or $(SECONDS),20) --rounds $(or $(ROUNDS),3)

