# Everything that can be made here; each target does its own set-up.
#
#   make test    everything that must hold: unit, property, simulation (seeds TEST_SEEDS, 1..2000), packet
#                and loom tests, fuzz corpora, then real programs through the engine; names what it skipped
#   make setup   Debian's packages that demo and tests use; make build: the programs alone
#   make fabtests FABTESTS=DIR  libfabric's fabtests (a folder of its source, version 1.17) through
#                the provider, two hosts with engines, over UDP, Ethernet and with loss; root, 20 minutes
#   make mpich-tests MPICH=DIR  lists of MPICH's tests (the folder test/mpi of its source, version 3.4) with
#                Debian's Open MPI on two hosts with engines; root, an hour
#   make imb IMB=DIR  all of Intel's IMB-MPI1 (its source), data checked, on two hosts with engines; root
#   make mpi-programs  MPI programs of Debian's packages that check their results, on two hosts with engines; root
#   make install what `make build` made, below DESTDIR, for PREFIX (/usr/local), with a systemd unit
#   make scripts packet scripts against the stack and against this machine's kernel; root
#   make packetdrill DIR=...  a folder of packetdrill scripts against the stack; the tool itself from
#                PACKETDRILL=path (source or binary), as installed, or fetched
#   make lint    formatting, clippy, and the rules of the tree (xtask tidy)
#   make test-vm the tests of a shared interface in a virtual machine: Debian's kernel, virtio-net
#   make demo    the comparison with the kernel; root
#   make congestion  goodput and fairness beside the kernel's, to docs/congestion.md; root, 5 minutes
#   make loss    goodput under loss beside the kernel's, to docs/loss.md, in windows of LOSS_SECONDS
#                (60); root, an hour
#   make scale   a million connections in simulation, a hundred thousand through a port, to
#                docs/scale.md; root, 4 GB of memory, 3 minutes
#   make bench   the kernel and Outboard beside each other over reduced grids, to target/bench; root,
#                25 minutes
#   make bench-full  the same over full grids in 5 rounds, to docs/bench.md; root, hours
#   make bench-micro  micro-benchmarks of single functions
#   make bench-ab BASE=commit  the demo's rows of that commit and of the tree by turns, in ROUNDS (5)
#                rounds, with the noise floor; root, 2 minutes a round
#   make bench-port  raw frames through an xdp port beside DPDK's testpmd; root, 4 minutes
#   make loom    the interleavings of the shared queues
#   make fuzz    every fuzz target, FUZZ_SECONDS each (60), noted in docs/fuzz.md
#   make sim     whole systems under virtual time, seeds SIM_SEEDS (1..10000)
#   make hashes  seeds TEST_SEEDS (1..2000) against crates/sim/hashes.txt; UPDATE=1 rewrites it
#   make instructions  instructions of fixed work, counted under callgrind, against
#                crates/sim/instructions.txt to within 2%; UPDATE=1 rewrites it
#   make programs  programs whose processes share connections (PostgreSQL, sshd, rsync, ...), PROGRAM_SECONDS
#                each (30); root
#   make nic     TCP bulk through a nic beside a plain veth; root, a minute
#   make kills   the engine killed KILLS (100) times under load; root
#   make holder-kills  processes that share connections killed HOLDER_KILLS (1000) times; root
#   make soak    real programs, SOAK_SECONDS each (600)
#   make coexist the kernel's services and accelerated ones on one address, for SOAK_SECONDS

CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
SIM_SEEDS ?= 1..10000
TEST_SEEDS ?= 1..2000
PREFIX ?= /usr/local
# Where cargo builds.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),$(CARGO_BUILD_TARGET_DIR),target))
BUILT ?= $(TARGET)/release
KILLS ?= 100
HOLDER_KILLS ?= 1000
PROGRAM_SECONDS ?= 30
LOSS_SECONDS ?= 60
ROUNDS ?= 5
# What bench and bench-full measure.
EXPERIMENTS := rpc eta connect latency profile ni nic copy emp
export SOAK_SECONDS KILLS HOLDER_KILLS PROGRAM_SECONDS
# Selected by name among the whole workspace: selecting their package alone would resolve other
# features and build most crates again.
REAL_PROGRAMS := $(patsubst tests/tests/%.rs,--test %,$(sort $(wildcard tests/tests/*.rs)))
# Tests that are skipped note it here (crates/skips).
export OUTBOARD_SKIPPED := $(TARGET)/skipped
# What scripts/runtimes installs for the tests of real programs.
export OUTBOARD_RUNTIMES := $(TARGET)/runtimes

.PHONY: all build install test fabtests mpich-tests imb mpi-programs test-vm scripts run-scripts packetdrill lint demo congestion loss scale bench bench-full bench-micro bench-ab bench-port sim hashes instructions kills holder-kills nic soak programs coexist fuzz loom setup setup-build

all: build

# The compiler and linker only.
setup-build:
	@scripts/setup build

# What the real-program tests and the demo run, too.
setup:
	@scripts/setup build programs

build: setup-build
	@echo "== building the programs, the preload library and the libfabric provider (release)"
	$(CARGO) build --release --package outboard --package outboard-preload --package outboard-fabric
	@mkdir -p $(BUILT)/fabric && ln -sf ../liboutboard_fi.so $(BUILT)/fabric/liboutboard-fi.so

# The loader finds the library, and libfabric the provider, in PREFIX/lib/outboard: `outboard mpi`
# says so. Settings that are there are kept.
install: build
	install -D -m 755 $(BUILT)/outboard $(DESTDIR)$(PREFIX)/bin/outboard
	install -D -m 755 $(BUILT)/liboutboard_preload.so \
	    $(DESTDIR)$(PREFIX)/lib/outboard/liboutboard_preload.so
	install -D -m 755 $(BUILT)/liboutboard_fi.so \
	    $(DESTDIR)$(PREFIX)/lib/outboard/liboutboard-fi.so
	for page in *.md docs/*.md docs/spec/*.md; do \
	    install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/doc/outboard/$$page || exit 1; done
	install -D -m 644 dist/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/outboard.conf
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's,@PREFIX@,$(PREFIX),' dist/outboard.service \
	    > $(DESTDIR)$(PREFIX)/lib/systemd/system/outboard.service
	test -e $(DESTDIR)/etc/outboard/engine.toml || \
	    install -D -m 644 dist/engine.toml $(DESTDIR)/etc/outboard/engine.toml

test: setup build
	@scripts/runtimes $(OUTBOARD_RUNTIMES)
	@mkdir -p $(TARGET) && : > $(OUTBOARD_SKIPPED)
	@echo "== unit, property, simulation and packet tests, fuzz corpora"
	$(CARGO) test --no-fail-fast --workspace --exclude outboard-tests
	@echo "== interleavings (loom), instructions of fixed work"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target loom instructions
	@echo "== simulation, seeds $(TEST_SEEDS)"
	$(BUILT)/outboard sim --seeds $(TEST_SEEDS) --require-coverage --hashes crates/sim/hashes.txt
	@echo "== simulation of messages, seeds 1..1000"
	$(BUILT)/outboard sim --messages --seeds 1..1000
	@echo "== packet scripts against this machine's kernel"
	@$(MAKE) --no-print-directory run-scripts BRIEF=--brief
	@echo "== real programs"
	$(CARGO) test --no-fail-fast --workspace $(REAL_PROGRAMS) -- --nocapture --test-threads=1
	@echo "== all tests passed; $$(wc -l < $(OUTBOARD_SKIPPED)) skipped"
	@sed 's/^/   /' $(OUTBOARD_SKIPPED)

test-vm: build
	@scripts/setup build programs vm
	@scripts/test-vm

lint: setup-build
	@echo "== formatting"
	$(CARGO) fmt --all --check
	@echo "== clippy"
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@echo "== rules of the tree"
	$(CARGO) xtask tidy
	@echo "== clauses of RFCs cited by code and tests"
	$(CARGO) xtask rfc

scripts: build
	@$(MAKE) --no-print-directory run-scripts

run-scripts:
	@if [ "$$(id -u)" = 0 ]; then \
		$(BUILT)/outboard script --kernel $(BRIEF) tests/packet; \
	else \
		echo "packet scripts against the kernel: root" | tee -a $(OUTBOARD_SKIPPED); \
		$(BUILT)/outboard script $(BRIEF) tests/packet; \
	fi

packetdrill: setup-build
	@PACKETDRILL="$(PACKETDRILL)" $(CARGO) xtask packetdrill $(DIR)

demo: setup build
	@$(BUILT)/outboard demo --output $(TARGET)/demo

# Ends with an error where bbr is farther from the kernel's than a tenth; the table is written first.
congestion: build
	$(BUILT)/outboard congestion --kernel > $(TARGET)/congestion.md; status=$$?; \
	    $(CARGO) xtask figures docs/congestion.md $(TARGET)/congestion.md && exit $$status

# Ends with an error where less than 0.95 of the kernel's goodput is reached; the report is written
# first.
loss: setup build
	$(BUILT)/outboard loss --seconds $(LOSS_SECONDS) > $(TARGET)/loss.md; status=$$?; \
	    $(CARGO) xtask figures docs/loss.md $(TARGET)/loss.md && exit $$status

# Ends with an error where a frame costs more than 1.15 times as much among all connections.
scale: build
	$(BUILT)/outboard scale > $(TARGET)/scale.md; status=$$?; \
	    $(CARGO) xtask figures docs/scale.md $(TARGET)/scale.md && exit $$status

# Each ends with an error where a cell failed; the others' reports are written all the same.
bench: setup build
	@for experiment in $(EXPERIMENTS); do \
	    $(BUILT)/outboard bench $$experiment --rounds 3 --output $(TARGET)/bench || failed=1; \
	done; exit $${failed:-0}

bench-full: setup build
	@for experiment in $(EXPERIMENTS); do \
	    $(BUILT)/outboard bench $$experiment --grid full --rounds 5 --output $(TARGET)/bench || failed=1; \
	done; \
	$(BUILT)/outboard bench table $(EXPERIMENTS:%=$(TARGET)/bench/%.json) > $(TARGET)/bench.md && \
	    $(CARGO) xtask figures docs/bench.md $(TARGET)/bench.md && exit $${failed:-0}

bench-micro: setup-build
	$(CARGO) bench --workspace --benches

bench-ab: setup
	$(CARGO) xtask bench-ab $(BASE) --rounds $(ROUNDS)

# The only target that installs DPDK (Debian's dpdk-dev).
bench-port: setup-build
	@scripts/setup programs peers
	$(CARGO) build --release --package outboard-port --example load
	$(CARGO) build --release --package outboard-tests --example bench_port
	$(BUILT)/examples/bench_port $(BUILT)/examples/load

fabtests: setup build
	@scripts/fabtests "$(FABTESTS)" $(TARGET)/fabtests
	$(CARGO) build --release --package outboard-tests --example fabtests
	OUTBOARD_EXECUTABLE=$(BUILT)/outboard $(BUILT)/examples/fabtests "$(FABTESTS)" $(TARGET)/fabtests

mpich-tests: setup build
	@scripts/mpich-tests "$(MPICH)" $(TARGET)/mpich-tests
	$(CARGO) build --release --package outboard-tests --example mpi_suites
	OUTBOARD_EXECUTABLE=$(BUILT)/outboard $(BUILT)/examples/mpi_suites mpich "$(MPICH)" $(TARGET)/mpich-tests

# The suite's own Makefile, with another compiler and the check of received data.
imb: setup build
	@test -d "$(IMB)/src_c" || { echo "imb: name the folder of Intel's MPI benchmarks: make imb IMB=DIR" >&2; exit 2; }
	@rm -rf $(TARGET)/imb && mkdir -p $(TARGET)/imb && cp -a "$(IMB)/src_c/." $(TARGET)/imb
	$(MAKE) -C $(TARGET)/imb TARGET=MPI1 CC=mpicc CFLAGS="-O1 -w -DCHECK"
	$(CARGO) build --release --package outboard-tests --example mpi_suites
	OUTBOARD_EXECUTABLE=$(BUILT)/outboard $(BUILT)/examples/mpi_suites imb $(TARGET)/imb/IMB-MPI1

# The only target that installs hpcc.
mpi-programs: setup build
	@scripts/setup programs mpi
	$(CARGO) build --release --package outboard-tests --example mpi_suites
	OUTBOARD_EXECUTABLE=$(BUILT)/outboard $(BUILT)/examples/mpi_suites programs

loom: setup-build
	$(CARGO) xtask loom

fuzz: setup-build
	$(CARGO) xtask fuzz --seconds $(FUZZ_SECONDS)

sim: build
	$(BUILT)/outboard sim --seeds $(SIM_SEEDS) --require-coverage

hashes: build
	$(BUILT)/outboard sim --seeds $(TEST_SEEDS) --hashes crates/sim/hashes.txt

instructions: setup
	$(CARGO) xtask instructions

soak: setup build
	$(CARGO) test --package outboard-tests --test programs -- --ignored --nocapture soak

programs: setup build
	@scripts/runtimes $(OUTBOARD_RUNTIMES)
	$(CARGO) test --package outboard-tests --test sharing -- --ignored --nocapture programs

coexist: setup build
	$(CARGO) test --package outboard-tests --test coexist -- --ignored --nocapture

kills: setup build
	$(CARGO) test --package outboard-tests --test kills -- --ignored --nocapture kills

nic: setup build
	$(CARGO) test --package outboard-tests --test nic -- --ignored --nocapture bulk_beside

holder-kills: setup build
	$(CARGO) test --package outboard-tests --test holders -- --ignored --nocapture holder_kills
