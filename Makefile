# Thin: every target is one command that also works without make.
TOOLS := tests/tools
.PHONY: run test test-long peer fuzz bench sim hitless soak advisories cluster-up cluster-down ha conformance

## run: builds, starts a standalone gateway with the example in deploy/standalone, shows answers, stays up
run:
	$(TOOLS)/run.sh

## test: everything that must hold, in under an hour on two cores
test:
	$(TOOLS)/test.sh

## test-long: the long forms; write the figures to docs/test-report.md
test-long:
	$(TOOLS)/test-long.sh

## peer CASES=dir [SET=file]: compares with recorded output of the Go Envoy Gateway
peer:
	cargo run -q -p peer -- --cases $(CASES) $(if $(SET),--set $(SET))

## fuzz: bounded fuzzing of YAML -> translation and of xDS requests -> server
fuzz:
	$(TOOLS)/fuzz.sh

## bench: start, memory and CPU for 100, 1,000 and 5,000 routes
bench:
	$(TOOLS)/bench.sh

## sim: leadership on virtual time
sim:
	$(TOOLS)/sim.sh $(or $(HISTORIES),100000)

## hitless [CHANGES=n]: changes under load, no request may fail
hitless:
	$(TOOLS)/hitless.sh $(or $(CHANGES),1000)

## soak [SOAK_SECONDS=n]: replicas under churn and random faults
soak:
	$(TOOLS)/soak.sh $(or $(SOAK_SECONDS),150)

## advisories: known vulnerabilities of dependencies (needs the network)
advisories:
	$$($(TOOLS)/rust-tools.sh)/bin/cargo-deny check advisories

## cluster-up: a Kubernetes of one node on this machine, for trials and tests (root; see docs/test-cluster.md)
cluster-up:
	$(TOOLS)/cluster.sh up

## cluster-down: ends it and removes everything that belongs to it
cluster-down:
	$(TOOLS)/cluster.sh down

## ha: three replicas end, die, sleep and lose the API server in the test cluster; a row per event
ha:
	$(TOOLS)/ha.sh

## conformance [WHAT=core|all]: the Gateway API conformance suite in the test cluster
conformance:
	$(TOOLS)/conformance.sh $(or $(WHAT),all)
