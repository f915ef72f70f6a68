# The one entry: `make help` lists what there is.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
CARGO ?= cargo

.PHONY: help
help: ## List every target with a line each
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what is missing from Debian (fast and silent when nothing is)
	@scripts/setup

.PHONY: build
build: setup ## Build everything
	$(CARGO) build --workspace --locked

.PHONY: lab
lab: setup ## Start a cluster of 3 Nodes on this machine, with a demo (LAB="--mode hybrid" and the like)
	@scripts/lab $(LAB)

.PHONY: test
test: setup ## Pass every test, on a fresh machine too
	$(CARGO) test --workspace --locked
	@scripts/left-out

.PHONY: kubernetes
kubernetes: setup ## Build the Kubernetes to test against, once: some 12 minutes on 2 cores
	@scripts/kubernetes

.PHONY: test-kubernetes
test-kubernetes: kubernetes ## Pass the tests that need a real Kubernetes, too
	$(CARGO) test --workspace --locked --lib --tests -- --ignored kubernetes

.PHONY: lint
lint: setup ## Check format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: format
format: ## Format the sources
	$(CARGO) fmt --all

.PHONY: codegen
codegen: ## Write what tests compare: code from .proto, the tables of configuration keys and of Services
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p api --test it codegen
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-agent -p antrea-controller the_documentation_has_every_key
	ANTREA_CODEGEN=1 $(CARGO) test --locked -p antrea-lab --test it every_service_is_reached

.PHONY: audit
audit: ## Check licences, banned crates and sources of all dependencies
	@scripts/cargo-tool cargo-deny 0.20.2
	$(CARGO) deny --locked check licenses bans sources

.PHONY: proptest-long
proptest-long: setup ## The property tests against the real tools, 10,000 cases and more each (CASES=n)
	PROPTEST_CASES=$${CASES:-20000} $(CARGO) test --locked -p openflow -p ovsdb -p ovs -p delta

.PHONY: simulator-long
simulator-long: setup ## 100,000 packets through random Nodes, switch against simulator (PACKETS=n); 1,000 sets of policies (CASES=n)
	PACKETS=$${PACKETS:-100000} $(CARGO) test --locked -p simulator --test it random_nodes -- --nocapture
	PROPTEST_CASES=$${CASES:-1000} $(CARGO) test --locked -p antctl flows_and_documentation -- --nocapture

.PHONY: apiserver-long
apiserver-long: setup ## Caches of kube-rs against the embedded API while connections are cut, for minutes (CHURN_SECONDS=n)
	CHURN_SECONDS=$${CHURN_SECONDS:-300} $(CARGO) test --locked -p apiserver --test it -- caches:: --nocapture

.PHONY: agent-long
agent-long: setup ## 500 Pods come to a Node and go, 32 at a time (PODS=n, AT_A_TIME=n)
	PODS=$${PODS:-500} AT_A_TIME=$${AT_A_TIME:-32} $(CARGO) test --locked -p antrea-agent --test it many_pods -- --nocapture

.PHONY: lab-long
lab-long: setup ## Agents killed 200 times, switches 20, agents and controllers 60 under policies (AGENT_KILLS=n SWITCH_KILLS=n POLICY_KILLS=n)
	$(CARGO) build --locked -p antrea-agent -p antrea-cni -p antrea-controller
	AGENT_KILLS=$${AGENT_KILLS:-200} SWITCH_KILLS=$${SWITCH_KILLS:-20} POLICY_KILLS=$${POLICY_KILLS:-60} \
	  $(CARGO) test --locked -p antrea-lab --test it -- --nocapture endurance outages

.PHONY: services-long
services-long: setup ## A Service of which 100 endpoints a second come and go for a minute, and 10,000 connections counted, as released
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	CHURN_SECONDS=$${CHURN_SECONDS:-60} CHURN_RATE=$${CHURN_RATE:-100} LATEST_MS=100 CONNECTIONS=10000 AGENT_KILLS=20 \
		$(CARGO) test --release --locked -p antrea-lab --test it services:: -- --nocapture --test-threads=1

.PHONY: policy-long
policy-long: ## Random histories of a cluster, 10,000 steps and checked at every 100th (STEPS=n, SEED=n), 2,000 short ones (CASES=n)
	STEPS=$${STEPS:-10000} PROPTEST_CASES=$${CASES:-2000} $(CARGO) test --locked -p policy -p node -- --nocapture churn history on_the_way

.PHONY: fuzz
fuzz: setup ## Fuzz every decoder, a million executions each (RUNS=n)
	@scripts/cargo-tool cargo-fuzz 0.13.2
	@scripts/fuzz

.PHONY: bench-ovs
bench-ovs: setup ## Flows and groups to the switch, beside ovs-ofctl
	$(CARGO) run --release --locked -p benches --bin bench-ovs

.PHONY: bench-apiserver
bench-apiserver: setup ## Pods made and watched, beside the real Kubernetes (PODS=n CLIENTS=n WATCHERS=n)
	$(CARGO) run --release --locked -p benches --bin bench-apiserver

.PHONY: bench-pipeline
bench-pipeline: ## A large Node's flows, compiled from nothing and changed by one Pod
	$(CARGO) run --release --locked -p benches --bin bench-pipeline

.PHONY: bench-cni
bench-cni: setup ## CNI calls as a container runtime sees them, beside Debian's bridge plugin
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-cni

.PHONY: bench-agent
bench-agent: setup ## Memory of an agent with few and with many Pods, and what it does when idle (SECONDS_IDLE=n)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-agent

.PHONY: bench-proxy
bench-proxy: setup ## Many Services beside kube-proxy, which `make kubernetes` builds; Pod to Service beside Pod to Pod (SERVICES=n)
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni
	$(CARGO) run --release --locked -p benches --bin bench-proxy

.PHONY: bench-realize
bench-realize: setup ## From a policy at the API until the switch enforces it, beside ovs-ofctl with the same flows
	$(CARGO) build --release --locked -p antrea-agent -p antrea-cni -p antrea-controller -p antrea-lab
	$(CARGO) run --release --locked -p benches --bin bench-realize

.PHONY: bench-policy
bench-policy: ## What the controller computes at upstream's scales: time, memory, what one change costs
	$(CARGO) run --release --locked -p benches --bin bench-policy

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
