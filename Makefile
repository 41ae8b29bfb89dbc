# Every target does its own set-up: on a fresh clone `make demo` or `make test` is the first thing to type.
# Needs Linux, make, cargo (with rustfmt and clippy) and Python 3.11 or newer; `make PYTHON=python3.13 ...` picks one.

PYTHON ?= python3
CARGO_NEXTEST_VERSION := 0.9.143
CARGO_DENY_VERSION := 0.20.2
CARGO_MUTANTS_VERSION := 27.1.0

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# The machine may have two cores and the tests start many processes: one thing at a time, apart from the checks.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

VENV := .venv
PY := $(VENV)/bin/python
# One interpreter for cargo and maturin, or each would rebuild what the other has built.
export PYO3_PYTHON := $(CURDIR)/$(PY)
# Cargo's plug-ins are installed into the venv too, so that nothing is left behind outside the project.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# The frameworks that a feed is tested with have a venv of their own, which sees .venv's packages: torch is there once.
FRAMEWORKS := .venv-frameworks
# So have the tools that a wheel is built with: zig alone has 100 MB, and few need it.
WHEEL_TOOLS := .venv-wheel

VENV_STAMP := $(VENV)/.stamp-tools
FRAMEWORKS_STAMP := $(FRAMEWORKS)/.stamp
WHEEL_TOOLS_STAMP := $(WHEEL_TOOLS)/.stamp
EXTENSION_STAMP := $(VENV)/.stamp-extension
RUST_SOURCES := Cargo.toml $(wildcard Cargo.lock) pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml -o -path '*/assets/*' -o -path '*/src/*.py')
PYTHON_DIRS := $(wildcard python tests benchmarks examples docs)
# The package again, with the extension that has fault points: tests/chaos has its children import it.
FAULTS := $(TARGET_DIR)/faults
FAULTS_STAMP := $(FAULTS)/.stamp
SITE := $(TARGET_DIR)/docs
RUST_EXAMPLES := $(wildcard crates/*/examples/*.rs)

# Runs a command with a folder of its own for temporary files and sockets, and removes the folder whatever happens.
in_scratch = scratch=$$(mktemp -d /tmp/feedline.XXXXXX); trap 'rm -rf "$$scratch"' EXIT; \
	TMPDIR="$$scratch" FEEDLINE_DIR="$$scratch/feeds"

# `make test JOBS=6`: so many Python tests side by side. They wait more than they compute.
beside = -n $(or $(JOBS),4) --dist worksteal

.PHONY: help setup demo docs options test test-quick check bench simulate planted mutants chaos race soak faults fuzz fuzz-corpus clean
.PHONY: lint-rust lint-python types licences test-rust test-simulator test-loom test-fuzz test-rust-examples test-python
.PHONY: frameworks plugins test-frameworks wheel build-wheel lint-workflows

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(EXTENSION_STAMP) ## .venv with the tools of etc/requirements-dev.txt, and the extension built into it

demo: setup ## four training jobs with a loader each, then on one feed (about a minute)
	@$(PY) -m feedline demo $(ARGS)

test: setup check test-rust test-simulator test-loom test-fuzz test-rust-examples test-python ## everything: lints, types, Rust, Python
	@echo "all tests passed"

# What starts processes, and what measures, is left to `make test`.
test-quick: setup plugins ## the inner loop, under two minutes: unit tests in Rust, and Python tests without processes
	@$(in_scratch) cargo nextest run --workspace --exclude feedline-py --lib --status-level fail
	@$(in_scratch) $(PY) -m pytest -q -n $(or $(JOBS),2) --dist worksteal -m "not processes and not alone" $(ARGS)

test-frameworks: setup $(FRAMEWORKS_STAMP) ## Lightning, Accelerate, Keras, JAX, Ray and others on a feed
	@$(in_scratch) $(FRAMEWORKS)/bin/python -m pytest $(beside) tests/frameworks $(ARGS)

frameworks: $(FRAMEWORKS_STAMP)

# mypy has one thread, and cargo waits for single crates: together they take as long as cargo alone.
check: setup plugins ## formatting, lints, types, licences, documentation
	@$(MAKE) --no-print-directory -j2 --output-sync=target SIDE_BY_SIDE=1 \
		lint-rust types lint-python lint-workflows licences docs

# The types of a server's options, for type checkers and editors; a test compares them with the core's table.
options: setup ## write python/feedline/_server_options.py from the declarations in Rust
	@PYTHONPATH=tests $(PY) -m support.server_options

# Warnings are errors, broken links and anchors too. Sphinx reads everything anew: seconds, and nothing stale.
docs: setup ## the documentation as a site, in target/docs, with all its links checked
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --workspace --exclude feedline-py
	@rm -rf $(SITE)
	$(PY) -m sphinx -W --keep-going -q -E -c docs -d $(TARGET_DIR)/doctrees . $(SITE)
	@cp -r $(TARGET_DIR)/doc $(SITE)/rust
	@echo '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">' >$(SITE)/index.html
	$(PY) docs/_ext/check_links.py $(SITE)

fuzz: setup ## throw mutated bytes at every parser, SECS (60) for each; the seed is printed
	FUZZ_SECS=$(or $(SECS),60) $(fuzz_driver)

bench: setup ## Feedline beside its peers; a table here, a JSON file under benchmarks/runs/
	@$(PY) -m benchmarks $(ARGS)

simulate: test-simulator ## servers and consumers under virtual time: SCHEDULES=20000000 FIRST=1

planted: setup ## known faults, planted into the protocol one by one: the simulator must find each
	@$(PY) crates/feedline-protocol/planted/find.py $(ARGS)

# Each mutant is built and tested on its own. First the unit tests, without optimisation, which are built in a second; then the
# simulator for those that they miss. cargo-mutants ends with 2 or 3 where some were missed or timed out.
mutants: setup ## every line of the protocol changed in turn: the tests must notice (an hour or two; ARGS="--file ... -j2")
	@$(call cargo_plugin,mutants,$(CARGO_MUTANTS_VERSION))
	PROPTEST_CASES=64 CARGO_PROFILE_MUTANTS_OPT_LEVEL=0 cargo mutants -p feedline-protocol --profile mutants --timeout 40 \
		--output $(TARGET_DIR) $(ARGS) -- --lib || [ $$? -le 3 ]
	SCHEDULES=$(or $(SCHEDULES),3000) cargo mutants --iterate -p feedline-protocol --profile mutants --timeout 120 \
		--output $(TARGET_DIR) $(ARGS) -- --test simulator

chaos: setup ## a random schedule of faults: SECS=600 SEED=... POLICY=block|history|skip|replay|restart
	@$(in_scratch) PYTHONPATH=$(CURDIR)/tests $(PY) -m chaos --secs $(or $(SECS),60) \
		$(if $(SEED),--seed $(SEED)) $(if $(POLICY),--policy $(POLICY)) $(if $(CONSUMERS),--consumers $(CONSUMERS))

race: setup ## share() called by JOBS (50) processes at once, ROUNDS (10) times, some killed; SEED=...
	@$(in_scratch) PYTHONPATH=$(CURDIR)/tests $(PY) -m chaos.race --rounds $(or $(ROUNDS),10) --jobs $(or $(JOBS),50) \
		$(if $(SEED),--seed $(SEED))

wheel: setup build-wheel ## the wheel for this machine, in dist/, tried in empty environments without and with torch (minutes)
	@$(PY) tests/wheels/install.py dist/*.whl --torch-from $$($(PY) -c $(site_packages))

# LOAD busy processes beside the tests, STOPS of random processes in a second; 0 turns either off.
soak: setup faults ## for the night: the process tests, ROUNDS (1) times, JOBS (4) side by side; LOAD=2 STOPS=2 SEED=...
	@cargo build --quiet -p feedline-cli
	@$(in_scratch) PYTHONPATH=$(CURDIR)/tests $(PY) -m soak --rounds $(or $(ROUNDS),1) --jobs $(or $(JOBS),4) \
		--load $(or $(LOAD),2) --stops $(or $(STOPS),2) $(if $(SEED),--seed $(SEED)) $(ARGS)

clean: ## remove everything that make has made, .venv included
	rm -rf $(VENV) $(FRAMEWORKS) $(WHEEL_TOOLS) .venv-peers target build dist .mypy_cache .pytest_cache .ruff_cache python/feedline/*.so
	find python tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- set-up -----------------------------------------------------------------------------------------------------------

$(VENV_STAMP): etc/requirements-dev.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON) was not found: Feedline needs Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and Feedline needs Python 3.11 or newer" >&2; \
		echo "  name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v cargo >/dev/null || { \
		echo "cargo was not found: Feedline's core is written in Rust; rustup installs it" >&2; exit 1; }
	@[ -x $(PY) ] || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing etc/requirements-dev.txt into $(VENV) (torch is large: this may take minutes)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r etc/requirements-dev.txt
	@touch $@

$(EXTENSION_STAMP): $(VENV_STAMP) $(RUST_SOURCES)
	@echo "building the extension"
	@CARGO_TERM_QUIET=true PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --release --quiet
	@touch $@

faults: $(FAULTS_STAMP)

# With the profile of the Rust tests, whose dependencies it shares.
$(FAULTS_STAMP): $(VENV_STAMP) $(RUST_SOURCES) $(wildcard python/feedline/*.py)
	@echo "building the extension with fault points"
	@cargo build --quiet -p feedline-py --features faults,extension-module
	@rm -rf $(FAULTS) && mkdir -p $(FAULTS)/feedline
	@ln -s $(CURDIR)/python/feedline/* $(FAULTS)/feedline/
	@cp --remove-destination $(TARGET_DIR)/debug/lib_core.so $(FAULTS)/feedline/_core.abi3.so
	@touch $@

site_packages := 'import sysconfig; print(sysconfig.get_path("purelib"))'

# Packages of .venv are importable through a .pth file; those files of .venv itself aren't read, hence its second line.
$(FRAMEWORKS_STAMP): etc/requirements-frameworks.txt $(VENV_STAMP)
	@[ -x $(FRAMEWORKS)/bin/python ] || { echo "making $(FRAMEWORKS)"; $(PY) -m venv $(FRAMEWORKS); }
	@own=$$($(FRAMEWORKS)/bin/python -c $(site_packages)); \
		printf '%s\n' "$$($(PY) -c $(site_packages))" "$(CURDIR)/python" >"$$own/base.pth"
	@echo "installing etc/requirements-frameworks.txt into $(FRAMEWORKS) (this takes minutes)"
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -r etc/requirements-frameworks.txt
	@touch $@

$(WHEEL_TOOLS_STAMP): etc/requirements-wheel.txt
	@[ -x $(WHEEL_TOOLS)/bin/python ] || { echo "making $(WHEEL_TOOLS)"; $(PYTHON) -m venv $(WHEEL_TOOLS); }
	@echo "installing etc/requirements-wheel.txt into $(WHEEL_TOOLS)"
	@$(WHEEL_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r etc/requirements-wheel.txt
	@touch $@

# Without .venv: this is what a release builds on each architecture. maturin finds zig through the first python3 on the
# PATH, and checks that no symbol is newer than the tag allows.
build-wheel: $(WHEEL_TOOLS_STAMP)
	@rm -f dist/*.whl
	@echo "building the wheel (the first time compiles everything: minutes)"
	@PATH="$(CURDIR)/$(WHEEL_TOOLS)/bin:$$PATH" PYO3_PYTHON=$(CURDIR)/$(WHEEL_TOOLS)/bin/python CARGO_TERM_QUIET=true \
		ZIG_GLOBAL_CACHE_DIR=$(abspath $(TARGET_DIR))/zig CARGO_ZIGBUILD_CACHE_DIR=$(abspath $(TARGET_DIR))/zig \
		maturin build --release --locked --zig --compatibility manylinux_2_28 --auditwheel check --out dist --quiet
	@$(WHEEL_TOOLS)/bin/python tests/wheels/contents.py dist/*.whl

# Cargo's own look-up finds plug-ins on the PATH and in its home; only what is missing gets built, and without
# optimisation: they have seconds of work to do here, and their release profiles take minutes to build.
cargo_plugin = cargo $(1) --version >/dev/null 2>&1 || { \
	echo "installing cargo-$(1) $(2) into $(VENV) (once; this takes a minute or more)"; \
	cargo install --quiet --locked --debug --root $(VENV) cargo-$(1)@$(2); }

plugins:
	@$(call cargo_plugin,deny,$(CARGO_DENY_VERSION))
	@$(call cargo_plugin,nextest,$(CARGO_NEXTEST_VERSION))

# --- check ------------------------------------------------------------------------------------------------------------

lint-rust: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features feedline-core/fuzzing --quiet -- -D warnings
	cargo clippy -p feedline-shm --features faults --quiet -- -D warnings

lint-python: setup
	$(PY) -m ruff check $(PYTHON_DIRS)
	$(PY) -m ruff format --check $(PYTHON_DIRS)

# The first sees what isn't a workflow, the second what is an unsafe one. Both carry what they know with them.
lint-workflows: setup
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/zizmor --quiet --offline --no-progress --strict-collection .github

types: setup
	$(PY) -m mypy --strict $(PYTHON_DIRS)
	$(PY) -m mypy.stubtest feedline._core

# Not `advisories`: its database is fetched from elsewhere, and a check that needs more than the package registry
# would fail for reasons that aren't ours.
licences: setup plugins
	cargo deny --log-level warn check bans licenses sources

# --- test -------------------------------------------------------------------------------------------------------------

test-rust: setup plugins
	@$(in_scratch) cargo nextest run --workspace
	cargo test --workspace --doc --quiet

# With the checks of a debug build. A schedule that goes wrong is printed as a history.
test-simulator: setup
	SCHEDULES=$(or $(SCHEDULES),100000) $(if $(FIRST),FIRST=$(FIRST)) \
		cargo test --quiet -p feedline-protocol --profile fuzz --test simulator -- --nocapture

# Loom replaces the atomics of the whole crate, so it has a target folder of its own.
test-loom: setup
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom cargo test -p feedline-shm --test loom_model --release

# A profile of its own: fast, and with the checks of a debug build.
fuzz_driver = cargo test --quiet -p feedline-core --features fuzzing --profile fuzz --test fuzz

# Shares its dependencies with the Rust tests.
test-fuzz: setup
	FUZZ_SECS=5 cargo test --quiet --workspace --features feedline-core/fuzzing --test fuzz

# Replaces the valid messages; what once failed has a name of its own and stays.
fuzz-corpus: setup
	rm -f fuzz/corpus/*/[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]*
	FUZZ_WRITE=1 $(fuzz_driver)

test-rust-examples: setup
	@for example in $(RUST_EXAMPLES); do \
		crate=$$(basename "$$(dirname "$$(dirname "$$example")")"); name=$$(basename "$$example" .rs); \
		echo "cargo run -p $$crate --example $$name"; \
		cargo build --quiet -p "$$crate" --example "$$name"; \
		( $(in_scratch) timeout 60 cargo run --quiet -p "$$crate" --example "$$name" ); \
	done

# pytest ends with 5 where it finds no test: those that were asked for may all be in the other half.
or_none = $(if $(ARGS),|| [ $$? -eq 5 ])

# The plain binary is built as the Rust tests build it. Tests that measure run alone.
test-python: setup faults
	@cargo build --quiet -p feedline-cli
	@$(in_scratch) $(PY) -m pytest $(beside) -m "not alone" $(ARGS) $(or_none)
	@$(in_scratch) $(PY) -m pytest -m alone $(ARGS) $(or_none)
