// CoreDNS with the plugins that are needed here: by the cluster's own DNS (kubernetes, ready), and by the backend of the
// conformance suite's UDP tests (forward, whoami), which runs the same image.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() { coremain.Run() }
