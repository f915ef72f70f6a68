# Entry point for all tasks: `make help` lists them.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
CARGO ?= cargo

.PHONY: help
help: ## List all targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install missing Debian packages (fast when none is missing)
	@scripts/setup

.PHONY: build
build: setup ## Build the workspace
	$(CARGO) build --workspace --locked

.PHONY: lab
lab: setup ## Start a cluster of 3 Nodes on this machine, with a demo (LAB="--mode hybrid" passes options)
	@scripts/lab $(LAB)

.PHONY: image
image: setup ## Build the image as an OCI archive, without Docker: target/image/antrea-rs.tar
	@scripts/image

.PHONY: test
test: setup ## Run all tests, on a fresh machine too; with the image on a real kubelet if `make kubernetes` has built one
	$(CARGO) test --workspace --locked
	@if [[ -x $$(scripts/kubernetes --dir)/kubelet ]]; then \
	  $(CARGO) test --locked -p antrea-lab --test it -- --ignored a_cluster_with_a_real_kubelet; \
	fi
	@scripts/left-out

.PHONY: kubernetes
kubernetes: setup ## Build Kubernetes, etcd and Helm for the tests, once: about 12 minutes on 2 cores
	@scripts/kubernetes

.PHONY: test-kubernetes
test-kubernetes: kubernetes ## Run the tests that need a real Kubernetes
	$(CARGO) test --workspace --locked --lib --tests -- --ignored kubernetes

.PHONY: test-kernel
test-kernel: setup ## Run packet tests and labs on the openvswitch kernel module, in a VM without KVM; a table of results (ROW=text AGENT_KILLS=n SWITCH_KILLS=n)
	@scripts/setup kernel
	@scripts/test-kernel "$${ROW:-}"

.PHONY: upgrade
upgrade: setup ## Build the programs of an earlier version, for tests of upgrades (FROM=ref; some minutes, once)
	@scripts/upgrade

.PHONY: test-upgrade
test-upgrade: setup ## Upgrade a cluster from an earlier version and roll it back, under traffic; a table of losses (FROM=ref)
	@scripts/upgrade --test

.PHONY: test-rollout
test-rollout: setup ## Restart the DaemonSets of real kubelets under traffic, then upgrade from an earlier image and roll back; tables of losses (ROUNDS=n, FROM=ref)
	@scripts/setup kubernetes
	@scripts/rollout $${ROUNDS:-1}
	@scripts/rollout --upgrade

.PHONY: e2e
e2e: setup ## Kubernetes' own network conformance and policy suites on clusters with real kubelets; a table (E2E="encap:antrea", FOCUS=text; builds 10 minutes once)
	@scripts/e2e $(E2E)

.PHONY: lint
lint: setup ## Check formatting, spelling, lints and rustdoc
	$(CARGO) fmt --all --check
	@scripts/typos
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

.PHONY: format
format: ## Format the sources
	$(CARGO) fmt --all

.PHONY: codegen
codegen: kubernetes ## Write generated files: code from .proto, recorded messages of a new version, tables of keys, Services and mistakes, values of the chart
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p api --test it codegen
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p api --lib recorded
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-agent -p antrea-controller the_documentation_has_every_key
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-agent --test it the_chart_has_a_value_for_every_key
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-lab --test it every_kind_of_service_behaves
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-lab --test it -- --ignored a_cluster_with_a_real_kubelet

.PHONY: language-budget
language-budget: ## Lower the counts of words that CONTRIBUTING.md advises against
	ANTREA_CODEGEN=1 $(CARGO) test --quiet --locked -p testkit the_language_stays_within_its_budget

.PHONY: scenarios
scenarios: ## Rewrite the golden files of scenarios/<area>/<case>/ (look at `git diff scenarios` before you commit)
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p simcluster --test it

.PHONY: audit
audit: ## Check licences, banned crates, duplicate versions and sources of all dependencies
	@scripts/cargo-tool cargo-deny 0.20.2
	$(CARGO) deny --locked check -D unmatched-skip licenses bans sources

.PHONY: proptest-long
proptest-long: setup ## Property tests against the real tools, 20,000 cases each (CASES=n)
	PROPTEST_CASES=$${CASES:-20000} $(CARGO) test --locked -p openflow -p ovsdb -p ovs -p delta

.PHONY: simulator-long
simulator-long: setup ## Simulator against the switch with 100,000 packets (PACKETS=n), 1,000 policy sets (CASES=n)
	PACKETS=$${PACKETS:-100000} $(CARGO) test --locked -p simulator --test it random_nodes -- --nocapture
	PROPTEST_CASES=$${CASES:-1000} $(CARGO) test --locked -p simcluster flows_and_documentation -- --nocapture

.PHONY: apiserver-long
apiserver-long: setup ## kube-rs caches against the embedded API with broken connections (CHURN_SECONDS=n)
	CHURN_SECONDS=$${CHURN_SECONDS:-300} $(CARGO) test --locked -p apiserver --test it -- caches:: --nocapture

.PHONY: agent-long
agent-long: setup ## Add and remove 500 Pods on one Node, 32 at a time (PODS=n, AT_A_TIME=n)
	PODS=$${PODS:-500} AT_A_TIME=$${AT_A_TIME:-32} $(CARGO) test --locked -p antrea-agent --test it many_pods -- --nocapture

.PHONY: lab-long
lab-long: setup ## Kill agents 200 times and switches 20 times under traffic, agents and controllers 60 times under policy changes (AGENT_KILLS=n SWITCH_KILLS=n POLICY_KILLS=n)
	$(CARGO) build --locked -p antrea-agent -p antrea-cni -p antrea-controller
	AGENT_KILLS=$${AGENT_KILLS:-200} SWITCH_KILLS=$${SWITCH_KILLS:-20} POLICY_KILLS=$${POLICY_KILLS:-60} \
	  $(CARGO) test --locked -p antrea-lab --test it -- --nocapture endurance outages

.PHONY: record-long
record-long: setup ## Record 10,000 events of an agent while daemons are killed, and replay them (RECORD_EVENTS=n; release build)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	RECORD_EVENTS=$${RECORD_EVENTS:-10000} $(CARGO) test --release --locked -p antrea-lab --test it -- recording:: --nocapture

.PHONY: red-team
red-team: setup ## Attack labs in every mode, and the switch with 100,000 random frames; a table of outcomes (ATTACK=text MODE=name FRAMES=n)
	@scripts/setup red-team
	$(CARGO) build --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	RED_TEAM=long $(CARGO) test --locked -p antrea-lab --test it -- red_team --nocapture
	FRAMES=$${FRAMES:-100000} $(CARGO) test --locked -p pipeline --test it -- hostile --nocapture
	FRAMES=$${FRAMES:-100000} $(CARGO) test --locked -p simulator --test it -- hostile --nocapture

.PHONY: services-long
services-long: setup ## Add and remove 100 endpoints per second for a minute, count 10,000 connections, kill agents (release build)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	CHURN_SECONDS=$${CHURN_SECONDS:-60} CHURN_RATE=$${CHURN_RATE:-100} LATEST_MS=100 CONNECTIONS=10000 AGENT_KILLS=20 \
		$(CARGO) test --release --locked -p antrea-lab --test it services:: -- --nocapture --test-threads=1

.PHONY: policy-long
policy-long: ## Random cluster histories of 10,000 steps (STEPS=n, SEED=n), and 2,000 short ones (CASES=n)
	STEPS=$${STEPS:-10000} PROPTEST_CASES=$${CASES:-2000} $(CARGO) test --locked -p policy -p node -- --nocapture churn history on_the_way

.PHONY: fuzz
fuzz: setup ## Fuzz every decoder, a million executions each (RUNS=n)
	@scripts/cargo-tool cargo-fuzz 0.13.2
	@scripts/fuzz

.PHONY: bench-ovs
bench-ovs: setup ## Install flows and groups, compared with ovs-ofctl
	$(CARGO) run --release --locked -p benches --bin bench-ovs

.PHONY: bench-apiserver
bench-apiserver: setup ## Create and watch Pods in the embedded API, compared with kube-apiserver (PODS=n CLIENTS=n WATCHERS=n)
	$(CARGO) run --release --locked -p benches --bin bench-apiserver

.PHONY: bench-pipeline
bench-pipeline: ## Compile a large Node's flows, and add one Pod
	$(CARGO) run --release --locked -p benches --bin bench-pipeline

.PHONY: bench-cni
bench-cni: setup ## CNI ADD and DEL, compared with Debian's bridge plugin
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-cni

.PHONY: bench-agent
bench-agent: setup ## Memory of an agent with few and with many Pods, and its CPU when idle (SECONDS_IDLE=n)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-agent

.PHONY: bench-proxy
bench-proxy: setup ## 10,000 Services, compared with kube-proxy (`make kubernetes` builds it); Pod to Service against Pod to Pod (SERVICES=n)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-proxy

.PHONY: bench-realize
bench-realize: setup ## Time from a policy in the API to the switch, compared with ovs-ofctl adding the same flows
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	$(CARGO) run --release --locked -p benches --bin bench-realize

.PHONY: bench-policy
bench-policy: ## Policy computation at the scales of Antrea's tests: time, memory, latency of one change
	$(CARGO) run --release --locked -p benches --bin bench-policy

.PHONY: clean
clean: ## Remove build output
	$(CARGO) clean
