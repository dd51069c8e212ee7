#!/usr/bin/env bash
# manifest.sh: prints the objects of the chart with its defaults, for those who install without helm; deploy/install.yaml
# is its output. Definitions are not part of it (deploy/package.sh makes crds.yaml).
. "$(dirname "${BASH_SOURCE[0]}")/../tests/tools/lib.sh"
helm=$("$TOP/tests/tools/helm.sh")
cat <<'TXT'
# Made from the chart by deploy/manifest.sh; change the chart, not this.
#   deploy/package.sh
#   kubectl apply --server-side -f target/chart/crds.yaml
#   kubectl apply -f deploy/install.yaml
TXT
# What only helm understands goes; without annotations left, their list goes too. The Job comes after all that it needs.
"$helm" template eg "$TOP/deploy/chart/gateway-helm" --namespace envoy-gateway-system --set createNamespace=true |
  python3 "$TOP/deploy/manifest.py"
